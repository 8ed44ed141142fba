"""Mend scopes' hints of when to look next: rules, zones and jobs change under them.

The hint is derived from rule and ledger. New zone data, a job with another delay or jitter, or a
rule that an older release could not read make it wrong; this walks all scopes, a stretch at a time.
"""

from __future__ import annotations

from reveille_runtime import logs
from reveille_runtime.db import Database
from reveille_runtime.validation import NIL
from reveille_scheduler.domain.job import Job
from reveille_scheduler.domain.planning import Planner
from reveille_scheduler.domain.rule import Hook
from reveille_scheduler.store import jobs, scopes
from reveille_scheduler.store.scopes import LockedScope, Move
from reveille_scheduler.usecases.unplannable import why_not

STRETCH = 200
_log = logs.get_logger(__name__)


class CheckScopes:
    """One step looks at one stretch, and says whether another follows."""

    def __init__(self, database: Database, stretch: int = STRETCH) -> None:
        self._database = database
        self._stretch = stretch
        self._after = NIL

    async def __call__(self) -> float | None:
        """Look at the next stretch; None at the end of a walk."""
        async with self._database.session() as tx:
            seen = await scopes.to_check(tx, self._after, self._stretch)
            known = await jobs.by_name(tx, {each.scope.job_name for each in seen})
            wrong = [
                (each, move)
                for each in seen
                if each.scope.enabled
                and not each.scope.deleted
                and not isinstance(each.scope.rule, Hook)
                and (move := _move(each, known[each.scope.job_name])) is not None
            ]
            mended = await scopes.correct(tx, wrong) if wrong else 0
        if mended:
            _log.info("Scopes' next times were mended.", action="scopes.mended", count=mended)
        if len(seen) < self._stretch:
            self._after = NIL
            return None
        self._after = seen[-1].row_id
        # All walks of all replicas together must stay small beside the planning.
        return 0.05


def _move(seen: LockedScope, job: Job) -> Move | None:
    """Derive the hint anew; None when it is right."""
    try:
        due = Planner(job, seen.now).calendar(seen.due).next_due(seen.due.since)
    except Exception as error:  # noqa: BLE001 (one scope must not end the walk over all)
        if seen.scope.plan_error:
            return None
        return Move(seen.row_id, None, why_not(seen.scope, error))
    if due == seen.scope.next_plan_at and not seen.scope.plan_error:
        return None
    return Move(seen.row_id, due)
