"""Record planned occurrences inside a planning transaction, and make the claims of those to run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from reveille_runtime.carrier import SpanSeed
from reveille_runtime.db import Tx
from reveille_runtime.ids import new_id, new_token
from reveille_scheduler.domain.job import Job
from reveille_scheduler.domain.occurrence import Claim
from reveille_scheduler.domain.planning import Occurrence
from reveille_scheduler.domain.scope import Scope
from reveille_scheduler.store import executions
from reveille_scheduler.store.executions import Begun, NewExecution

# Occurrences after which a transaction takes no further scope: most of them can be too late, which
# take up no place.
MOST_RECORDED = 1000


@dataclass(frozen=True, slots=True)
class Recorder:
    """Writes occurrences of one job as this replica; `since` is when the claim began."""

    job: Job
    runner: str
    since: float

    async def record(self, tx: Tx, found: Sequence[tuple[Scope, Occurrence]]) -> list[Claim]:
        """Record what was not recorded before; gives the claims to execute."""
        rows = [self._row(scope, occurrence) for scope, occurrence in found]
        begun = await executions.insert(tx, rows, self.runner) if rows else {}
        return [
            claim_of(self.job, row, attempt, self.since)
            for row in rows
            if (attempt := begun.get(row.id)) is not None
        ]

    def _row(self, scope: Scope, occurrence: Occurrence) -> NewExecution:
        late = occurrence.too_late
        return NewExecution(
            id=new_id(),
            job_name=scope.job_name,
            scope_kind=scope.kind,
            scope_id=scope.id,
            plan_time=occurrence.plan_time,
            max_attempts=self.job.max_attempts,
            token=None if late else new_token(),
            lease=self.job.stale_timeout,
            retried_for=self.job.retry_deadline,
            collapsed=occurrence.collapsed,
            carrier=SpanSeed.root().carrier(),
            reason="too_late" if late else "",
            message=_lateness(occurrence.lateness) if late else "",
        )


def claim_of(job: Job, row: NewExecution, begun: Begun, since: float) -> Claim:
    """Make the claim of a row that was recorded as running."""
    if row.token is None:
        raise ValueError("a skipped occurrence has no claim")
    return Claim(
        id=row.id,
        token=row.token,
        job_name=row.job_name,
        scope_kind=row.scope_kind,
        scope_id=row.scope_id,
        plan_time=row.plan_time,
        attempt=begun.attempt,
        started_at=begun.started_at,
        carrier=row.carrier,
        handler=job.handler,
        run_timeout=job.run_timeout,
        stale_timeout=job.stale_timeout,
        max_attempts=begun.max_attempts,
        give_backs=begun.give_backs,
        retry_until=begun.retry_until,
        since=since,
    )


def _lateness(length: timedelta) -> str:
    return f"found {int(length.total_seconds())} s after its time, later than its limit allows"
