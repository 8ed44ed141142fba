"""End the attempts of executors that vanished, so that they can be tried again.

An expired lease alone proves nothing: after an outage of the database every lease looks expired.
The witness confirms those seen expired twice while our own renewals succeeded.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from reveille_runtime import logs
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database
from reveille_runtime.lease import ExpiryWitness, LeaseKeeper
from reveille_scheduler import crash_points
from reveille_scheduler.domain.job import Job
from reveille_scheduler.domain.retrying import next_retry
from reveille_scheduler.store import executions, jobs
from reveille_scheduler.store.executions import Expired
from reveille_scheduler.usecases.trace import Tracing

# How many expired claims one look takes note of; they are ended in batches.
MOST_SEEN = 5000
_log = logs.get_logger(__name__)


class TakeOver:
    """Looks at expired claims once; confirmed ones are failed with `lease_expired`."""

    def __init__(
        self,
        database: Database,
        keeper: LeaseKeeper,
        witness: ExpiryWitness,
        tracing: Tracing,
        batch: int,
    ) -> None:
        self._database = database
        self._keeper = keeper
        self._witness = witness
        self._tracing = tracing
        self._batch = batch

    async def __call__(self) -> float | None:
        """Look once, and end all that is confirmed."""
        async with self._database.session() as session:
            found = await executions.expired(session, MOST_SEEN)
        confirmed = set(
            self._witness.observe(
                [each.lease for each in found], self._keeper.ok_for(self._witness.interval)
            )
        )
        gone = [each for each in found if each.lease in confirmed]
        for first in range(0, len(gone), self._batch):
            await self._end(gone[first : first + self._batch])
        return None

    async def _end(self, gone: Sequence[Expired]) -> None:
        async with self._database.transaction() as tx:
            known = await jobs.by_name(tx, {each.job_name for each in gone})
            retries = {each.lease: _retry(each, known[each.job_name]) for each in gone}
            ended = await executions.take_over(
                tx, [(each.lease, retries[each.lease]) for each in gone]
            )
        crash_point(crash_points.AFTER_TAKE_OVER)
        if ended:
            self._tracing.taken_over(len(ended))
            _log.warning(
                "Occurrences of vanished executors were taken over.",
                action="execution.taken_over",
                count=len(ended),
            )
        for each in gone:
            span = ended.get(each.lease.id)
            if span is not None and retries[each.lease] is None:
                self._tracing.settled(
                    each.carrier,
                    each.job_name,
                    each.plan_time,
                    span.start,
                    span.end,
                    outcome="failed",
                    reason="lease_expired",
                )


def _retry(expired: Expired, job: Job) -> datetime | None:
    """Say when it is tried again: at once, unless the job forbids to begin it a second time."""
    if not job.allow_stale_reentry:
        return None
    return next_retry(
        now=expired.now,
        attempt=expired.attempt,
        max_attempts=expired.max_attempts,
        backoff=(),
        until=expired.retry_until,
    )
