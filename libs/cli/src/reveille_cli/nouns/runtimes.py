"""`reveille runtimes`: places at which agents run."""

from __future__ import annotations

from reveille_cli.apis import AGENTS
from reveille_cli.declare import Noun, Param, Verb
from reveille_cli.names import RUNTIME
from reveille_cli.nouns.shared import WORKSPACE, the

_ID = the("runtime_id", "The runtime.", RUNTIME)
_METADATA = Param("metadata", "What is told about it, a JSON object.", file=True)

NOUN = Noun(
    name="runtimes",
    help="Runtimes: places at which agents run, present for as long as somebody says so.",
    api=AGENTS,
    verbs=(
        Verb(
            "register",
            "Make a runtime known; it is away until it is reported.",
            "RegisterRuntime",
            (
                Param("name", "The name, unique in the workspace.", argument=True),
                WORKSPACE,
                _METADATA,
            ),
            shows="runtime",
        ),
        Verb(
            "report",
            "Tell that a runtime is there, and whether it can run agents.",
            "ReportRuntime",
            (
                _ID,
                Param("presence", "For how long that holds, such as 1m; 0 is over at once."),
                Param(
                    "unusable_reason",
                    "Why it is of no use although it is there.",
                    flag="--unusable",
                ),
                _METADATA,
            ),
            shows="runtime",
        ),
        Verb("list", "List the runtimes by name.", "ListRuntimes", (WORKSPACE,), shows="runtimes"),
        Verb(
            "delete",
            "Remove a runtime; its agents have none until they get another.",
            "DeleteRuntime",
            (_ID,),
            note="Removed.",
        ),
    ),
)
