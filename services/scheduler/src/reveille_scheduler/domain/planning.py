"""Which occurrence of a scope is due, and when to look at the scope again.

Only the newest missed occurrence is executed: after an outage one run catches up, and the ledger
says how many older ones were folded into it. What is found too late is recorded, not executed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache

from reveille_cron import Schedule, parse, zone

# Folded occurrences are counted up to here; a larger number tells an operator nothing more.
MOST_COUNTED = 1024


@dataclass(frozen=True, slots=True)
class DueScope:
    """What planning needs to know of a scope; `latest_plan` is the newest instant in the ledger."""

    cron: str
    time_zone: str
    effective_from: datetime
    latest_plan: datetime | None


@dataclass(frozen=True, slots=True)
class Planned:
    """The occurrence to record, if any, and the next instant at which there can be another."""

    plan_time: datetime | None
    collapsed: int
    too_late: bool
    next_plan_at: datetime | None


def planner(now: datetime) -> Callable[[DueScope, timedelta, timedelta | None], Planned]:
    """Make the planner of one tick; equal (expression, zone) pairs are evaluated once in it."""

    @cache
    def occurrences(cron: str, time_zone: str) -> tuple[Schedule, datetime | None, datetime | None]:
        schedule = Schedule(parse(cron), zone(time_zone))
        return schedule, schedule.latest_at_or_before(now), schedule.next(now)

    def plan(scope: DueScope, window: timedelta, max_lateness: timedelta | None) -> Planned:
        schedule, newest, following = occurrences(scope.cron, scope.time_zone)
        anchor = max(scope.effective_from, now - window)
        if scope.latest_plan is not None:
            anchor = max(anchor, scope.latest_plan)
        if newest is None or newest <= anchor:
            return Planned(None, 0, too_late=False, next_plan_at=following)
        passed = schedule.count_between(anchor, newest, limit=MOST_COUNTED + 1) - 1
        late = max_lateness is not None and now - newest > max_lateness
        return Planned(newest, max(0, min(passed, MOST_COUNTED)), late, following)

    return plan


def first_plan(cron: str, time_zone: str, after: datetime) -> datetime | None:
    """Give the first instant at which a new or edited scope can be due."""
    return Schedule(parse(cron), zone(time_zone)).next(after)
