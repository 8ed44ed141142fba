"""`reveille squads`: groups of agents that are woken through their leader."""

from __future__ import annotations

from reveille_cli.apis import AGENTS
from reveille_cli.declare import Noun, Param, Verb
from reveille_cli.names import AGENT, SQUAD
from reveille_cli.nouns.shared import ETAG, REQUEST_ID, WORKSPACE, the, why

_ID = the("squad_id", "The squad.", SQUAD)
_MEMBER = "Another agent of the squad; may be repeated."

NOUN = Noun(
    name="squads",
    help="Squads: groups of agents, each woken through its leader.",
    api=AGENTS,
    verbs=(
        Verb(
            "create",
            "Create a squad.",
            "CreateSquad",
            (
                Param("name", "The name, unique in the workspace.", argument=True),
                WORKSPACE,
                Param(
                    "leader_agent_id",
                    "The agent that is woken for it.",
                    flag="--leader",
                    required=True,
                    names=AGENT,
                ),
                Param("member_agent_ids", _MEMBER, flag="--member", names=AGENT),
                REQUEST_ID,
            ),
            shows="squad",
        ),
        Verb("list", "List the squads by name.", "ListSquads", (WORKSPACE,), shows="squads"),
        Verb("get", "Show a squad.", "GetSquad", (_ID,), shows="squad"),
        Verb(
            "update",
            "Change a squad; what is not named stays, and the members given are all there are.",
            "UpdateSquad",
            (
                the("squad.squad_id", "The squad.", SQUAD),
                Param("squad.name", "The name.", flag="--name"),
                Param(
                    "squad.leader_agent_id",
                    "The agent that is woken for it.",
                    flag="--leader",
                    names=AGENT,
                ),
                Param("squad.member_agent_ids", _MEMBER, flag="--member", names=AGENT),
                Param("squad.etag", ETAG.help, flag="--etag"),
            ),
            shows="squad",
            mask="squad",
            read="GetSquad",
        ),
        Verb(
            "pause",
            "Refuse wakes for a squad; its agents stay as they are.",
            "PauseSquad",
            (_ID, why("squad"), ETAG),
            shows="squad",
            note="Paused: it is not woken until `reveille squads resume`.",
        ),
        Verb("resume", "Let a squad be woken again.", "ResumeSquad", (_ID, ETAG), shows="squad"),
        Verb(
            "archive",
            "Never wake a squad again; its agents stay as they are.",
            "ArchiveSquad",
            (_ID, ETAG),
            shows="squad",
            note="Archived: it is not woken any more.",
        ),
    ),
)
