"""`reveille wakeups`: why agents were woken."""

from __future__ import annotations

from reveille_cli.apis import WAKEUPS
from reveille_cli.declare import Noun, Verb
from reveille_cli.names import AGENT
from reveille_cli.nouns.shared import WORKSPACE, in_states, only_of, the

NOUN = Noun(
    name="wakeups",
    help="Wakeups: why somebody wanted an agent awake, and what came of it.",
    api=WAKEUPS,
    verbs=(
        Verb(
            "list",
            "List wakeups, newest first.",
            "ListWakeups",
            (WORKSPACE, only_of("agent_id", "--agent", "agent", AGENT), in_states("states")),
            shows="wakeups",
        ),
        Verb(
            "get", "Show a wakeup.", "GetWakeup", (the("wakeup_id", "The wakeup."),), shows="wakeup"
        ),
    ),
)
