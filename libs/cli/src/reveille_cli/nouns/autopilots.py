"""`reveille autopilots`: the rules."""

from __future__ import annotations

import json
import re
from typing import Any

import typer

from reveille.autopilot.v1 import run_pb2
from reveille_cli.apis import AUTOPILOTS
from reveille_cli.declare import Noun, Param, Verb
from reveille_cli.exits import ExitCode
from reveille_cli.failures import refused
from reveille_cli.jsonform import plain
from reveille_cli.names import AGENT, AUTOPILOT
from reveille_cli.nouns.shared import ETAG, REQUEST_ID, WORKSPACE, the
from reveille_cli.printer import Printer

_ID = the("autopilot_id", "The autopilot.", AUTOPILOT)

_JSON = re.compile(r"\s*application/(?:[^\s;]+\+)?json\s*(?:;.*)?", re.IGNORECASE)


def _payload(request: Any, value: str | bytes, name: str) -> None:
    payload = value if isinstance(value, bytes) else value.encode()
    if payload and (not request.content_type or _JSON.fullmatch(request.content_type)):
        try:
            json.loads(payload, parse_constant=_no_number)
        except (ValueError, RecursionError) as error:
            raise refused(
                name,
                f"this is no JSON: {error}",
                hint="--content-type tells what else it is, such as text/plain",
            ) from error
    request.payload = payload


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


def _judge(run: run_pb2.AutopilotRun, printer: Printer) -> None:
    """Tell a run that was refused, or failed at once, from one that was accepted."""
    outcomes = {
        run_pb2.RUN_STATE_SKIPPED: ("skipped", ExitCode.CONFLICT),
        run_pb2.RUN_STATE_FAILED: ("failed", ExitCode.FAILED),
    }
    if run.state in outcomes:
        word, code = outcomes[run.state]
        reason = plain(run)["reason"] or "no reason was given"
        printer.note(f"{word}: {run.message} ({reason})" if run.message else f"{word}: {reason}")
        raise typer.Exit(code)


NOUN = Noun(
    name="autopilots",
    help="Autopilots: rules that say what an agent shall do when something sets them off.",
    api=AUTOPILOTS,
    verbs=(
        Verb(
            "create",
            "Create an autopilot, in force at once.",
            "CreateAutopilot",
            (
                Param("title", "The title.", argument=True),
                WORKSPACE,
                Param(
                    "agent_id",
                    "The agent that works.",
                    flag="--agent",
                    required=True,
                    names=AGENT,
                ),
                Param("execution_mode", "What a trigger makes.", flag="--mode", required=True),
                Param("prompt", "What the agent is asked to do.", file=True, required=True),
                Param(
                    "issue_title_template",
                    "The title of created issues; {{date}} is the planned date.",
                    flag="--issue-title",
                ),
                REQUEST_ID,
            ),
            shows="autopilot",
        ),
        Verb("list", "List the autopilots.", "ListAutopilots", (WORKSPACE,), shows="autopilots"),
        Verb("get", "Show an autopilot.", "GetAutopilot", (_ID,), shows="autopilot"),
        Verb(
            "pause",
            "Take an autopilot out of force.",
            "PauseAutopilot",
            (_ID, ETAG),
            shows="autopilot",
            note="Paused: its triggers make no runs until `reveille autopilots resume`.",
        ),
        Verb(
            "resume",
            "Put an autopilot in force again; what it missed does not count.",
            "ResumeAutopilot",
            (_ID, ETAG),
            shows="autopilot",
        ),
        Verb(
            "run",
            "Run an autopilot now. Exits with 0 when the run was accepted, 5 when it was skipped,"
            " 1 when it failed at once; the run is shown either way.",
            "RunAutopilot",
            (
                _ID,
                Param("trigger_id", "Run as this trigger.", flag="--trigger"),
                # Before the payload, which is read by it.
                Param("content_type", "The payload's media type; JSON when left out."),
                Param(
                    "payload",
                    "What the agent gets to read, JSON unless --content-type says otherwise.",
                    file=True,
                    apply=_payload,
                ),
                REQUEST_ID,
            ),
            shows="run",
            judge=_judge,
        ),
    ),
)
