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
from reveille_cli.names import AGENT, AUTOPILOT, PROJECT, SQUAD
from reveille_cli.nouns.shared import ETAG, REQUEST_ID, WORKSPACE, in_states, the
from reveille_cli.printer import Printer

_ID = the("autopilot_id", "The autopilot.", AUTOPILOT)

_OVERLAP = "What becomes of an occurrence while an earlier run has no outcome yet."
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


def _subscribers(request: Any, user_ids: list[str], name: str) -> None:
    del name
    request.autopilot.subscriber_user_ids.extend(each for each in user_ids if each)


COLLABORATORS = Noun(
    name="collaborators",
    help="Members who may change an autopilot of another.",
    api=AUTOPILOTS,
    verbs=(
        Verb(
            "add",
            "Let a member change an autopilot.",
            "AddCollaborator",
            (_ID, the("user_id", "The member.")),
            shows="collaborator",
        ),
        Verb(
            "remove",
            "Let a member change an autopilot no longer.",
            "RemoveCollaborator",
            (_ID, the("user_id", "The member.")),
            note="Removed.",
        ),
        Verb(
            "list",
            "List who was let in.",
            "ListCollaborators",
            (_ID,),
            shows="collaborators",
        ),
    ),
)

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
                Param("agent_id", "The agent that works.", flag="--agent", names=AGENT),
                Param(
                    "squad_id", "The squad whose leader works instead.", flag="--squad", names=SQUAD
                ),
                Param("execution_mode", "What a trigger makes.", flag="--mode", required=True),
                Param("prompt", "What the agent is asked to do.", file=True, required=True),
                Param(
                    "issue_title_template",
                    "The title of created issues; {{date}} is the planned date.",
                    flag="--issue-title",
                ),
                Param("overlap_policy", _OVERLAP, flag="--overlap"),
                Param(
                    "project_id", "The project of created issues.", flag="--project", names=PROJECT
                ),
                Param(
                    "subscriber_user_ids",
                    "A member who follows it; may be repeated.",
                    flag="--subscriber",
                ),
                REQUEST_ID,
            ),
            shows="autopilot",
        ),
        Verb(
            "list",
            "List the autopilots; those in use, unless states are named.",
            "ListAutopilots",
            (WORKSPACE, in_states("statuses", "--status")),
            shows="autopilots",
            beside="summaries",
        ),
        Verb(
            "get",
            "Show an autopilot.",
            "GetAutopilot",
            (_ID,),
            shows="autopilot",
            beside="summary",
        ),
        Verb(
            "update",
            "Change an autopilot; what is not named stays, and an empty value clears.",
            "UpdateAutopilot",
            (
                the("autopilot.autopilot_id", "The autopilot.", AUTOPILOT),
                Param("autopilot.title", "The title.", flag="--title"),
                Param(
                    "autopilot.prompt", "What the agent is asked to do.", flag="--prompt", file=True
                ),
                Param(
                    "autopilot.issue_title_template",
                    "The title of created issues; {{date}} is the planned date.",
                    flag="--issue-title",
                ),
                Param("autopilot.agent_id", "The agent that works.", flag="--agent", names=AGENT),
                Param(
                    "autopilot.squad_id",
                    "The squad whose leader works.",
                    flag="--squad",
                    names=SQUAD,
                ),
                Param("autopilot.execution_mode", "What a trigger makes.", flag="--mode"),
                Param("autopilot.overlap_policy", _OVERLAP, flag="--overlap"),
                Param(
                    "autopilot.project_id",
                    "The project of created issues (none when empty).",
                    flag="--project",
                    names=PROJECT,
                    clears=True,
                ),
                Param(
                    "autopilot.subscriber_user_ids",
                    "A member who follows it; may be repeated, and an empty one clears the list.",
                    flag="--subscriber",
                    many=True,
                    apply=_subscribers,
                ),
                Param("autopilot.etag", ETAG.help, flag="--etag"),
            ),
            shows="autopilot",
            mask="autopilot",
            read="GetAutopilot",
        ),
        Verb(
            "archive",
            "Take an autopilot out of force for good; what it made stays.",
            "ArchiveAutopilot",
            (_ID, ETAG),
            shows="autopilot",
            note="Archived: it makes no runs any more.",
        ),
        Verb(
            "history",
            "List what an autopilot has said, newest first, and who published it.",
            "ListRuleVersions",
            (_ID,),
            shows="rule_versions",
        ),
        Verb(
            "version",
            "Show the whole of what an autopilot said once: that of a run by its rule_version_id.",
            "GetRuleVersion",
            (the("rule_version_id", "The version."),),
            shows="rule_version",
        ),
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
        Verb(
            "usage",
            "Show how much of its quota of runs a workspace has used.",
            "GetUsage",
            (WORKSPACE,),
        ),
    ),
    actions=(("collaborators", COLLABORATORS),),
)
