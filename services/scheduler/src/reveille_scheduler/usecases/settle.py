"""Write the end of attempts: their outcome, and when a failed one is tried again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database
from reveille_runtime.lease import Lease, LeaseLost
from reveille_scheduler import crash_points
from reveille_scheduler.domain.job import Job
from reveille_scheduler.domain.occurrence import Claim, Ending, clipped
from reveille_scheduler.domain.retrying import next_after_give_back, next_retry
from reveille_scheduler.domain.states import ExecutionState
from reveille_scheduler.store import executions, jobs
from reveille_scheduler.store.executions import Settlement
from reveille_scheduler.usecases.trace import Tracing


@dataclass(frozen=True, slots=True)
class Ended:
    """An attempt that ended."""

    claim: Claim
    ending: Ending


class Settle:
    """Settles a batch of attempts; the one whose lease was lost gets `LeaseLost`.

    The others get whether their scope has something due that waited for their place.
    """

    def __init__(self, database: Database, tracing: Tracing) -> None:
        self._database = database
        self._tracing = tracing

    async def __call__(self, batch: Sequence[Ended]) -> Sequence[bool | Exception]:
        """Write the batch in one statement."""
        failed = {
            each.claim.job_name for each in batch if each.ending.state is ExecutionState.FAILED
        }
        async with self._database.session() as tx:
            # Only a failure needs more than the one statement.
            known = await jobs.by_name(tx, failed) if failed else {}
            now = await executions.now(tx) if failed else None
            settlements = [_settlement(each, known, now) for each in batch]
            written = await executions.settle(tx, settlements)
        crash_point(crash_points.AFTER_SETTLE)
        answers: list[bool | Exception] = []
        for settlement, ended in zip(settlements, batch, strict=True):
            claim, settled = ended.claim, written.get(ended.claim.id)
            if settled is None:
                answers.append(LeaseLost(settlement.lease))
                continue
            if settlement.next_retry_at is None:
                self._tracing.settled(
                    claim.carrier,
                    claim.job_name,
                    claim.plan_time,
                    settled.span.start,
                    settled.span.end,
                    outcome=settlement.ending.state.value,
                    reason=settlement.ending.reason,
                )
            answers.append(settled.awaited)
        return answers


def _settlement(ended: Ended, known: Mapping[str, Job], now: datetime | None) -> Settlement:
    claim, ending = ended.claim, ended.ending
    lease = Lease(claim.id, claim.token)
    if ending.state is not ExecutionState.FAILED or now is None:
        return Settlement(lease, ending, None)
    if ending.given_back:
        retry = next_after_give_back(
            now=now,
            give_backs=claim.give_backs + 1,
            until=claim.retry_until,
            at_once=ending.at_once,
        )
    else:
        retry = next_retry(
            now=now,
            attempt=claim.attempt,
            max_attempts=claim.max_attempts,
            backoff=known[claim.job_name].retry_backoff,
            until=claim.retry_until,
        )
    if retry is None and (ending.given_back or claim.attempt < claim.max_attempts):
        ending = replace(
            ending,
            reason="retry_deadline",
            message=clipped(f"not tried again, its retry deadline has passed: {ending.message}"),
        )
    elif retry is None:
        ending = replace(
            ending,
            reason="attempts_exhausted",
            message=clipped(f"attempt {claim.attempt} was the last: {ending.message}"),
        )
    return Settlement(lease, ending, retry)
