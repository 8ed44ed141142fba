"""End the attempts of executors that vanished, so that they can be tried again.

An expired lease alone proves nothing: after an outage of the database every lease looks expired.
The witness confirms those seen expired twice while our own renewals succeeded.
"""

from __future__ import annotations

from reveille_runtime.db import Database
from reveille_runtime.lease import ExpiryWitness, LeaseKeeper
from reveille_scheduler.domain.retrying import next_retry
from reveille_scheduler.store import executions, jobs
from reveille_scheduler.usecases.trace import Tracing


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
        """Look once; 0 means that there are more right now."""
        async with self._database.session() as session:
            found = await executions.expired(session, self._batch)
        confirmed = set(
            self._witness.observe(
                [each.lease for each in found], self._keeper.ok_for(self._witness.interval)
            )
        )
        if not confirmed:
            return None
        gone = [each for each in found if each.lease in confirmed]
        async with self._database.transaction() as tx:
            known = await jobs.by_name(tx, {each.job_name for each in gone})
            retries = {
                each.lease: next_retry(
                    now=each.now,
                    plan_time=each.plan_time,
                    attempt=each.attempt,
                    max_attempts=each.max_attempts,
                    backoff=(),
                    deadline=known[each.job_name].retry_deadline,
                )
                for each in gone
            }
            ended = await executions.take_over(
                tx, [(each.lease, retries[each.lease]) for each in gone]
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
        return 0 if len(found) == self._batch and ended else None
