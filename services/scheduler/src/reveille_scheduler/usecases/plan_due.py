"""Plan due scopes: record the occurrence that is due, claim it, and say where to look next.

All of it is one transaction under the scopes' row locks, so a scope is planned by one replica at
a time; the ledger's unique key decides should two ever meet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from reveille_cron import CronError
from reveille_runtime.carrier import SpanSeed
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx
from reveille_runtime.ids import new_id, new_token
from reveille_scheduler import crash_points
from reveille_scheduler.domain.job import Job
from reveille_scheduler.domain.occurrence import Claim
from reveille_scheduler.domain.planning import Planned, planner
from reveille_scheduler.store import executions, jobs, scopes
from reveille_scheduler.store.executions import NewExecution
from reveille_scheduler.store.scopes import LockedScope, Move


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """What one round of planning did: the claims to execute, and how much it looked at."""

    claims: tuple[Claim, ...]
    looked_at: int


@dataclass(frozen=True, slots=True)
class _Candidate:
    scope: LockedScope
    job: Job
    planned: Planned


class PlanDue:
    """Plans a batch of due scopes."""

    def __init__(self, database: Database, runner: str) -> None:
        self._database = database
        self._runner = runner

    async def __call__(self, limit: int) -> PlannedBatch:
        """Plan at most `limit` scopes."""
        async with self._database.transaction() as tx:
            locked = await scopes.lock_due(tx, limit)
            if not locked:
                return PlannedBatch((), 0)
            batch = await self._plan(tx, locked)
        crash_point(crash_points.AFTER_CLAIM)
        return batch

    async def _plan(self, tx: Tx, locked: list[UUID]) -> PlannedBatch:
        due = await scopes.read_due(tx, locked)
        known = await jobs.by_name(tx, {each.job_name for each in due})
        candidates: list[_Candidate] = []
        moves: list[Move] = []
        if due:
            # One reading of the clock for the batch, so that equal rules are evaluated once.
            now = max(each.now for each in due)
            plan = planner(now)
            for scope in due:
                planned = _safely(plan, scope, known[scope.job_name])
                if isinstance(planned, Planned):
                    candidates.append(_Candidate(scope, known[scope.job_name], planned))
                    moves.append(Move(scope.row_id, planned.next_plan_at))
                else:
                    moves.append(Move(scope.row_id, None, planned))
        rows = [_row(each) for each in candidates if each.planned.plan_time is not None]
        recorded = await executions.insert(tx, rows, self._runner) if rows else {}
        await scopes.move(tx, moves)
        claims = []
        for row in rows:
            started_at = recorded.get(row.id)
            if started_at is not None and row.token is not None:
                job = known[row.job_name]
                claims.append(
                    Claim(
                        id=row.id,
                        token=row.token,
                        job_name=row.job_name,
                        scope_kind=row.scope_kind,
                        scope_id=row.scope_id,
                        plan_time=row.plan_time,
                        attempt=1,
                        started_at=started_at,
                        carrier=row.carrier,
                        handler=job.handler,
                        run_timeout=job.run_timeout,
                        stale_timeout=job.stale_timeout,
                    )
                )
        return PlannedBatch(tuple(claims), len(locked))


def _safely(plan: Callable[..., Planned], scope: LockedScope, job: Job) -> Planned | str:
    """Plan one scope; a rule that cannot be evaluated any more must not stop the others."""
    try:
        return plan(scope.due, job.catch_up_window, job.max_lateness)
    except CronError as error:
        return str(error)


def _row(candidate: _Candidate) -> NewExecution:
    planned, scope, job = candidate.planned, candidate.scope, candidate.job
    plan_time = planned.plan_time
    assert plan_time is not None  # noqa: S101 - the caller filtered on it
    late = timedelta(0) if not planned.too_late else scope.now - plan_time
    return NewExecution(
        id=new_id(),
        job_name=scope.job_name,
        scope_kind=scope.kind,
        scope_id=scope.scope_id,
        plan_time=plan_time,
        max_attempts=job.max_attempts,
        token=None if planned.too_late else new_token(),
        lease=job.stale_timeout,
        collapsed=planned.collapsed,
        carrier=SpanSeed.root().carrier(),
        reason="too_late" if planned.too_late else "",
        message=(
            f"found {int(late.total_seconds())} s after its time; the limit is "
            f"{int((job.max_lateness or late).total_seconds())} s"
            if planned.too_late
            else ""
        ),
    )
