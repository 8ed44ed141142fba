"""Plan due scopes: record the occurrences that are due, claim them, and say where to look next.

All of it is one transaction under the scopes' row locks, so a scope is planned by one replica at
a time; the ledger's unique key decides should two ever meet.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx
from reveille_runtime.validation import NIL
from reveille_scheduler import crash_points
from reveille_scheduler.domain.occurrence import Claim
from reveille_scheduler.domain.planning import Occurrence, Planned, Planner
from reveille_scheduler.domain.scope import Scope
from reveille_scheduler.store import jobs, scopes
from reveille_scheduler.store.scopes import LockedScope, Mark, Move
from reveille_scheduler.usecases.recording import MOST_RECORDED, Recorder
from reveille_scheduler.usecases.unplannable import why_not

START = Mark(datetime(1, 1, 2, tzinfo=UTC), NIL)
# How long the scopes before the mark may be left out of sight.
RESCAN_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """What one round of planning did: the claims to execute, and whether there may be more."""

    claims: tuple[Claim, ...]
    more: bool


class PlanDue:
    """Plans a batch of a job's due scopes.

    It goes on from where the last batch ended: entries that are dead but cannot be vacuumed yet
    are not walked over again and again. The scopes before the mark are seen once a second.
    """

    def __init__(
        self,
        database: Database,
        runner: str,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._runner = runner
        self._monotonic = monotonic
        self._marks: dict[str, tuple[Mark, float]] = {}

    async def __call__(self, job_name: str, limit: int) -> PlannedBatch:
        """Plan at most `limit` scopes and claim at most as many occurrences."""
        began = self._monotonic()
        mark, since = self._marks.pop(job_name, (START, began))
        if began - since >= RESCAN_SECONDS:
            mark, since = START, began
        async with self._database.transaction() as tx:
            job = (await jobs.by_name(tx, [job_name])).get(job_name)
            if job is None:
                return PlannedBatch((), more=False)
            locked = await scopes.lock_due(tx, job_name, limit, job.plans_per_scope, mark)
            claims, reached = await self._plan(
                tx, Recorder(job, self._runner, began), locked, limit
            )
        crash_point(crash_points.AFTER_CLAIM)
        if reached is not None and (len(locked) == limit or reached != locked[-1]):
            self._marks[job_name] = (reached, since)
        # A short batch beyond the mark says nothing about the scopes before it.
        return PlannedBatch(tuple(claims), more=job_name in self._marks or mark != START)

    async def _plan(
        self, tx: Tx, recorder: Recorder, locked: list[Mark], limit: int
    ) -> tuple[list[Claim], Mark | None]:
        """Plan locked scopes in their order; gives the claims and the last scope looked at."""
        if not locked:
            return [], None
        job = recorder.job
        read = {each.row_id: each for each in await scopes.read_due(tx, _ids(locked))}
        due = [read[mark.row_id] for mark in locked if mark.row_id in read]
        # One reading of the clock for the batch, so that equal rules are evaluated once; the
        # first, so that nothing is planned before its time.
        planner = Planner(job, min(each.now for each in due)) if due else None
        found: list[tuple[Scope, Occurrence]] = []
        moves: list[Move] = []
        claimable, reached = limit, locked[0]
        for mark in locked:
            if claimable == 0 or len(found) >= MOST_RECORDED:
                # The batch is full: the others stay due, beyond the mark.
                break
            reached = mark
            each = read.get(mark.row_id)
            if each is None or planner is None or each.running >= job.plans_per_scope:
                # Edited, or busy, since it was found.
                continue
            free = min(job.plans_per_scope - each.running, claimable)
            planned = _safely(planner, each, free)
            if isinstance(planned, str):
                moves.append(Move(each.row_id, None, planned))
                continue
            found += [(each.scope, occurrence) for occurrence in planned.occurrences]
            claimable -= sum(not occurrence.too_late for occurrence in planned.occurrences)
            moves.append(Move(each.row_id, planned.next_plan_at))
        claims = await recorder.record(tx, found)
        await scopes.move(tx, moves)
        return claims, reached


def _ids(marks: list[Mark]) -> list[UUID]:
    return [each.row_id for each in marks]


def _safely(planner: Planner, locked: LockedScope, free: int) -> Planned | str:
    """Plan one scope; a rule that cannot be evaluated any more must not stop the others."""
    try:
        return planner.plan(locked.due, free)
    except Exception as error:  # noqa: BLE001 (whatever it was, the next scope may be sound)
        return why_not(locked.scope, error)
