"""Claim the next attempt of failed occurrences whose time has come, at their own plan times."""

from __future__ import annotations

from dataclasses import dataclass

from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx
from reveille_runtime.ids import new_token
from reveille_runtime.lease import Lease
from reveille_scheduler import crash_points
from reveille_scheduler.domain.occurrence import Claim
from reveille_scheduler.store import executions, jobs
from reveille_scheduler.store.executions import DueRetry
from reveille_scheduler.usecases.trace import Tracing

_OVERTAKEN = "its rule was changed, switched off or deleted before it could be tried again"


@dataclass(frozen=True, slots=True)
class RetryBatch:
    """The claims to execute, and how many failed occurrences were looked at."""

    claims: tuple[Claim, ...]
    looked_at: int


class ClaimRetries:
    """Claims a batch of due retries; those that a newer rule has overtaken become skipped."""

    def __init__(self, database: Database, tracing: Tracing, runner: str) -> None:
        self._database = database
        self._tracing = tracing
        self._runner = runner

    async def __call__(self, limit: int) -> RetryBatch:
        """Claim at most `limit` retries."""
        async with self._database.transaction() as tx:
            locked = await executions.lock_due_retries(tx, limit)
            if not locked:
                return RetryBatch((), 0)
            due = await executions.read_due_retries(tx, locked)
            overtaken = [retry.id for retry in due if not retry.in_force]
            ended = await executions.supersede(tx, overtaken, _OVERTAKEN) if overtaken else []
            claims = await self._claim(tx, _one_per_scope(due))
        for row in ended:
            self._tracing.settled(
                row["trace_carrier"],
                row["job_name"],
                row["plan_time"],
                row["created_at"],
                row["finished_at"],
                outcome="skipped",
                reason="superseded",
            )
        crash_point(crash_points.AFTER_RETRY_CLAIM)
        return RetryBatch(tuple(claims), len(locked))

    async def _claim(self, tx: Tx, due: list[DueRetry]) -> list[Claim]:
        if not due:
            return []
        known = await jobs.by_name(tx, {retry.job_name for retry in due})
        leases = {retry.id: Lease(retry.id, new_token()) for retry in due}
        claimed = await executions.claim_retries(
            tx,
            [(leases[retry.id], known[retry.job_name].stale_timeout) for retry in due],
            self._runner,
        )
        claims = []
        for retry in due:
            if retry.id not in claimed:
                continue
            attempt, started_at = claimed[retry.id]
            job = known[retry.job_name]
            claims.append(
                Claim(
                    id=retry.id,
                    token=leases[retry.id].token,
                    job_name=retry.job_name,
                    scope_kind=retry.scope_kind,
                    scope_id=retry.scope_id,
                    plan_time=retry.plan_time,
                    attempt=attempt,
                    started_at=started_at,
                    carrier=retry.carrier,
                    handler=job.handler,
                    run_timeout=job.run_timeout,
                    stale_timeout=job.stale_timeout,
                )
            )
        return claims


def _one_per_scope(due: list[DueRetry]) -> list[DueRetry]:
    """Keep the oldest plan of each scope that is not at work: a scope runs one at a time."""
    chosen: dict[tuple[str, str, str], DueRetry] = {}
    for retry in due:
        if retry.in_force and not retry.busy:
            chosen.setdefault((retry.job_name, retry.scope_kind, retry.scope_id), retry)
    return list(chosen.values())
