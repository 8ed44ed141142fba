"""`reveille scopes`: what jobs are planned for, such as triggers."""

from __future__ import annotations

from reveille_cli.apis import SCHEDULER
from reveille_cli.declare import Noun, Param, Verb
from reveille_cli.nouns.shared import REQUEST_ID, the

_JOB = the("job_name", "The job.")

NOUN = Noun(
    name="scopes",
    help="Scopes: what a job is planned for, such as a trigger. For operators.",
    api=SCHEDULER,
    verbs=(
        Verb("list", "List the scopes of a job.", "ListScopes", (_JOB,), shows="scopes"),
        Verb(
            "preview",
            "Tell when a scope fires next, its job's delay and its share of the jitter included.",
            "PreviewSchedule",
            (
                _JOB,
                the("kind", "The scope's kind, such as autopilot_trigger."),
                the("scope_id", "The scope, such as a trigger's id."),
                Param("after", "Strictly after this instant, in RFC 3339; else now."),
                Param("count", "How many, 1 to 100."),
            ),
        ),
        Verb(
            "backfill",
            "Execute what a scope missed in a range; what was executed is left alone.",
            "BackfillScope",
            (
                _JOB,
                the("kind", "The scope's kind, such as autopilot_trigger."),
                the("scope_id", "The scope, such as a trigger's id."),
                Param(
                    "start_time",
                    "The first planned instant, in RFC 3339.",
                    flag="--from",
                    required=True,
                ),
                Param("end_time", "The last planned instant.", flag="--to", required=True),
                REQUEST_ID,
            ),
        ),
    ),
)
