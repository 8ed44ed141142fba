"""Claim the next attempt of occurrences whose time has come, at their own plan times.

These are failures to be tried again, and missed occurrences that a backfill asked for.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx
from reveille_runtime.ids import new_token
from reveille_runtime.lease import Lease
from reveille_scheduler import crash_points
from reveille_scheduler.domain.job import Job
from reveille_scheduler.domain.occurrence import Claim
from reveille_scheduler.domain.retrying import is_overdue
from reveille_scheduler.domain.states import ExecutionState
from reveille_scheduler.store import executions, jobs
from reveille_scheduler.store.executions import DueRetry, ScopeName, Span, Withdrawal
from reveille_scheduler.usecases.trace import Tracing

# Scopes with promised attempts that a claim looks at by name; with more of them than that, it looks
# at those of as many attempts that are due for longest as well.
STRETCH = 500
_FIRST = ("", "")
_OVERTAKEN = "its rule was changed, switched off or deleted before it could be tried again"
_OVERDUE = "not tried again: no scheduler was there until after its retry deadline"


@dataclass(frozen=True, slots=True)
class RetryBatch:
    """The claims to execute, and whether there may be more."""

    claims: tuple[Claim, ...]
    more: bool


class ClaimRetries:
    """Claims a batch of a job's due retries; those that a newer rule has overtaken are skipped.

    It goes from scope to scope: what waits for the places of busy scopes is not read. Where scopes
    with promised attempts are many, a claim looks at a stretch of them and the next one goes on
    from there; what is due for longest does not wait for that.
    """

    def __init__(
        self,
        database: Database,
        tracing: Tracing,
        runner: str,
        monotonic: Callable[[], float] = time.monotonic,
        stretch: int = STRETCH,
    ) -> None:
        self._database = database
        self._tracing = tracing
        self._runner = runner
        self._monotonic = monotonic
        self._stretch = stretch
        # The last scope of a job that was looked at, where others follow.
        self._marks: dict[str, ScopeName] = {}

    async def __call__(self, job_name: str, limit: int) -> RetryBatch:
        """Claim at most `limit` retries."""
        began = self._monotonic()
        async with self._database.transaction() as tx:
            job = (await jobs.by_name(tx, [job_name])).get(job_name)
            if job is None:
                return RetryBatch((), more=False)
            locked = await executions.lock_due_retries(
                tx, job_name, await self._scopes(tx, job_name), limit, job.plans_per_scope
            )
            if not locked:
                return RetryBatch((), more=False)
            due = await executions.read_due_retries(tx, locked)
            withdrawn = [each for retry in due if (each := _withdrawal(retry)) is not None]
            ended = await executions.withdraw(tx, withdrawn) if withdrawn else {}
            gone = {each.retry.id for each in withdrawn}
            chosen = _within_slots(
                [retry for retry in due if retry.id not in gone], job.plans_per_scope
            )
            claims = await self._claim(tx, job, chosen, began) if chosen else []
        for each in withdrawn:
            self._tell(each, ended.get(each.retry.id))
        crash_point(crash_points.AFTER_RETRY_CLAIM)
        return RetryBatch(tuple(claims), more=bool(claims) or bool(ended))

    async def _scopes(self, tx: Tx, job_name: str) -> list[ScopeName]:
        """Say in which scopes to look for due retries."""
        after = self._marks.pop(job_name, _FIRST)
        stretch = await executions.promised_scopes(tx, job_name, after, self._stretch)
        if len(stretch) == self._stretch:
            self._marks[job_name] = stretch[-1]
        elif after == _FIRST:
            return stretch
        longest = await executions.longest_due_scopes(tx, job_name, self._stretch)
        return list({*stretch, *longest})

    async def _claim(self, tx: Tx, job: Job, due: Sequence[DueRetry], since: float) -> list[Claim]:
        leases = {retry.id: Lease(retry.id, new_token()) for retry in due}
        begun = await executions.claim_retries(
            tx, list(leases.values()), job.stale_timeout, job.retry_deadline, self._runner
        )
        return [
            Claim(
                id=retry.id,
                token=leases[retry.id].token,
                job_name=retry.job_name,
                scope_kind=retry.scope_kind,
                scope_id=retry.scope_id,
                plan_time=retry.plan_time,
                attempt=attempt.attempt,
                started_at=attempt.started_at,
                carrier=retry.carrier,
                handler=job.handler,
                run_timeout=job.run_timeout,
                stale_timeout=job.stale_timeout,
                max_attempts=attempt.max_attempts,
                give_backs=attempt.give_backs,
                retry_until=attempt.retry_until,
                since=since,
            )
            for retry in due
            if (attempt := begun.get(retry.id)) is not None
        ]

    def _tell(self, withdrawal: Withdrawal, span: Span | None) -> None:
        if span is not None:
            self._tracing.settled(
                withdrawal.retry.carrier,
                withdrawal.retry.job_name,
                withdrawal.retry.plan_time,
                span.start,
                span.end,
                outcome=withdrawal.state.value,
                reason=withdrawal.reason,
            )


def _withdrawal(retry: DueRetry) -> Withdrawal | None:
    """Judge whether a promised attempt is still to be made."""
    if not retry.in_force:
        return Withdrawal(retry, ExecutionState.SKIPPED, "superseded", _OVERTAKEN)
    if retry.state is ExecutionState.FAILED and is_overdue(retry.now, retry.retry_until):
        return Withdrawal(retry, ExecutionState.FAILED, "retry_deadline", _OVERDUE)
    return None


def _within_slots(due: Sequence[DueRetry], slots: int) -> list[DueRetry]:
    """Keep the oldest plans of each scope for which it has a free slot."""
    taken: Counter[tuple[str, str]] = Counter()
    chosen: list[DueRetry] = []
    for retry in due:
        scope = (retry.scope_kind, retry.scope_id)
        if retry.running + taken[scope] < slots:
            taken[scope] += 1
            chosen.append(retry)
    return chosen
