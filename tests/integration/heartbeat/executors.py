"""What executors do with the rows of runs, without a service around it: claim them, end them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from reveille_heartbeat.adapters.process.identity import this_executor
from reveille_heartbeat.domain.limits import RunLimits
from reveille_heartbeat.usecases.agents.agent_statuses import AgentStatuses
from reveille_heartbeat.usecases.issues.consequences import Consequences
from reveille_heartbeat.usecases.runs.claim_runs import ClaimRuns
from reveille_heartbeat.usecases.runs.finishing import Finisher
from reveille_heartbeat.usecases.runs.run_spans import RunSpans
from reveille_heartbeat.usecases.wakeups.deciding import Decider
from reveille_heartbeat.usecases.wakeups.enqueuing import Enqueuing
from reveille_heartbeat.usecases.wakeups.promote_deferred import Promotion
from reveille_runtime.hints import Notifier
from reveille_runtime.ids import new_id, new_token
from reveille_runtime.telemetry import Telemetry
from reveille_testkit.database import TestDatabase

LEASE = timedelta(seconds=30)


async def claimer(
    database: TestDatabase, number: int, limits: RunLimits | None = None
) -> ClaimRuns:
    """One executor of several, as it would be in a process of its own."""
    db = await database.open("heartbeat", pool_max=2)
    promotion = Promotion(Decider(Telemetry.off(), new_id))
    executor = this_executor(f"spool-{number}")
    notifier = Notifier(db, enabled=False)
    return ClaimRuns(db, executor, LEASE, notifier, promotion, new_token, limits or RunLimits())


async def finisher(database: TestDatabase, jitter: Callable[[], float] = lambda: 0.5) -> Finisher:
    """Writes ends as an executor does."""
    db = await database.open("heartbeat")
    decider = Decider(Telemetry.off(), new_id)
    promotion = Promotion(decider)
    consequences = Consequences(Enqueuing(decider, suppressed=False), promotion, new_id)
    notifier = Notifier(db, enabled=False)
    return Finisher(
        db,
        notifier,
        RunSpans(Telemetry.off()),
        decider,
        promotion,
        consequences,
        AgentStatuses(db, notifier),
        jitter,
    )
