"""`reveille executions`: the scheduler's ledger."""

from __future__ import annotations

from reveille_cli.apis import SCHEDULER
from reveille_cli.declare import Noun, Param, Verb
from reveille_cli.nouns.shared import REQUEST_ID, in_states, only_of, the

NOUN = Noun(
    name="executions",
    help="Executions: what fell due by the clock, and what became of it. For operators.",
    api=SCHEDULER,
    verbs=(
        Verb(
            "list",
            "List occurrences, newest planned time first.",
            "ListExecutions",
            (
                only_of("job_name", "--job", "job"),
                only_of("scope_id", "--scope", "scope, such as a trigger"),
                in_states("states"),
                Param("plan_time_from", "Only planned at or after this instant.", flag="--from"),
                Param("plan_time_before", "Only planned before this instant.", flag="--before"),
            ),
            shows="executions",
        ),
        Verb(
            "get",
            "Show an occurrence.",
            "GetExecution",
            (the("execution_id", "The execution."),),
            shows="execution",
        ),
        Verb(
            "retry",
            "Give an occurrence that failed for good as many attempts as its job allows.",
            "RetryExecution",
            (the("execution_id", "The execution."), REQUEST_ID),
            shows="execution",
        ),
    ),
)
