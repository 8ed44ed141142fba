"""Store what owners want planned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from reveille_cron import CronError, Schedule, parse, zone
from reveille_runtime.db import Database, Tx
from reveille_runtime.errors import FieldViolation, InvalidArgument
from reveille_scheduler.domain.calendar import FIRST, LAST
from reveille_scheduler.domain.job import LONGEST, Job
from reveille_scheduler.domain.planning import DueScope, Planner
from reveille_scheduler.domain.rule import Cadence, CronRule, Hook, Once
from reveille_scheduler.domain.scope import Scope, ScopeDeletion, ScopeKey, ScopeWish
from reveille_scheduler.store import jobs, scopes
from reveille_scheduler.usecases.jobs import unknown_job

W = TypeVar("W", ScopeWish, ScopeDeletion)
SHORTEST_CADENCE = timedelta(seconds=1)


class Scopes:
    """The registry of scopes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, wishes: Sequence[ScopeWish]) -> list[Scope]:
        """Store wishes; one at or below the stored revision changes nothing.

        Raises:
            InvalidArgument: rules cannot be evaluated, each is named; nothing is stored.
            NotFound: a job is not registered.
        """
        async with self._database.transaction() as tx:
            known = await self._jobs(tx, [each.job_name for each in wishes])
            now = await scopes.now(tx)
            _judge(wishes, now)
            newest = _newest(wishes)
            await scopes.put(tx, [_with_times(each, known[each.job_name], now) for each in newest])
            stored = await scopes.by_key(tx, [each.key for each in newest])
        return [stored[each.key] for each in wishes]

    async def delete(self, deletions: Sequence[ScopeDeletion]) -> None:
        """Leave tombstones.

        Raises:
            NotFound: a job is not registered.
        """
        async with self._database.transaction() as tx:
            await self._jobs(tx, [each.job_name for each in deletions])
            await scopes.delete(tx, _newest(deletions))

    async def page(self, job_name: str, after: tuple[str, str] | None, limit: int) -> list[Scope]:
        """List a job's scopes by kind and id."""
        async with self._database.session() as tx:
            return await scopes.page(tx, job_name, after, limit)

    @staticmethod
    async def _jobs(tx: Tx, names: Sequence[str]) -> Mapping[str, Job]:
        known = await jobs.by_name(tx, names)
        for name in names:
            if name not in known:
                raise unknown_job(name)
        return known


def _newest(wanted: Iterable[W]) -> list[W]:
    """Keep the newest word on each scope, sorted so that two batches cannot deadlock."""
    newest: dict[ScopeKey, W] = {}
    for each in wanted:
        if each.key not in newest or newest[each.key].revision < each.revision:
            newest[each.key] = each
    return [newest[key] for key in sorted(newest)]


def _with_times(
    wish: ScopeWish, job: Job, now: datetime
) -> tuple[ScopeWish, datetime, datetime | None]:
    """Say from when a wish counts and when it is looked at first."""
    since = wish.effective_from or now
    if not wish.enabled:
        return wish, since, None
    if isinstance(wish.rule, Hook):
        return wish, since, now
    due = DueScope(wish.kind, wish.id, wish.rule, since, None)
    return wish, since, Planner(job, now).calendar(due).next_due(since)


def _judge(wishes: Sequence[ScopeWish], now: datetime) -> None:
    """Refuse rules that cannot be evaluated or never fire, and times that cannot be kept."""
    violations = []
    for index, wish in enumerate(wishes):
        match wish.rule:
            case CronRule(cron, time_zone):
                try:
                    Schedule(parse(cron), zone(time_zone or "UTC")).require_firing(now)
                except CronError as error:
                    field = "time_zone" if error.field == "time_zone" else "cron"
                    violations.append(
                        FieldViolation(f"scopes[{index}].{field}", str(error), error.reason.upper())
                    )
            case Cadence(every) if not is_cadence(every):
                violations.append(
                    FieldViolation(
                        f"scopes[{index}].cadence",
                        "must be whole seconds, from 1 second to 366 days",
                        "OUT_OF_BOUNDS",
                    )
                )
            case Once(at) if not FIRST <= at <= LAST:
                violations.append(_outside_time(f"scopes[{index}].run_at"))
        if wish.effective_from is not None and not FIRST <= wish.effective_from <= LAST:
            violations.append(_outside_time(f"scopes[{index}].effective_from"))
    if violations:
        raise InvalidArgument(violations)


def _outside_time(field: str) -> FieldViolation:
    return FieldViolation(
        field, "is the very first or last instant, which means infinity here", "OUT_OF_BOUNDS"
    )


def is_cadence(every: timedelta) -> bool:
    """Tell whether a length of time may be a scope's cadence."""
    return SHORTEST_CADENCE <= every <= LONGEST and every % SHORTEST_CADENCE == timedelta(0)
