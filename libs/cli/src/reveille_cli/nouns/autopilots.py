"""`reveille autopilots`: the rules."""

from __future__ import annotations

from reveille_cli.apis import AUTOPILOTS
from reveille_cli.declare import Noun, Param, Verb
from reveille_cli.nouns.shared import ETAG, REQUEST_ID, WORKSPACE, the

_ID = the("autopilot_id", "The autopilot.")

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
                Param("agent_id", "The agent that works.", flag="--agent", required=True),
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
            "Run an autopilot now. A refusal is a run in state skipped.",
            "RunAutopilot",
            (
                _ID,
                Param("trigger_id", "Run as this trigger.", flag="--trigger"),
                Param("payload", "What the agent gets to read.", file=True),
                Param("content_type", "The payload's media type; JSON when left out."),
                REQUEST_ID,
            ),
            shows="run",
        ),
    ),
)
