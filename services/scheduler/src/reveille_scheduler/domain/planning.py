"""Which occurrences of a scope are due, and when to look at the scope again.

What was missed is caught up by the scope's policy, and nothing is lost silently: what is found too
late, or lies before the catch-up window, is recorded as skipped, and an occurrence tells how many
older ones were folded into it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from reveille_scheduler.domain.calendar import LAST, Calendar, seed_of
from reveille_scheduler.domain.job import MOST_PLANS, CatchUp, Job
from reveille_scheduler.domain.rule import (
    Cadence,
    CronRule,
    MemoTimeline,
    Once,
    Rule,
    timeline,
)

# Folded occurrences are counted up to here; a larger number tells an operator nothing more.
MOST_COUNTED = 1024
# How long a hook is left alone when it names no time, and when its answer was cut.
ASK_AGAIN = timedelta(minutes=1)
ASK_SOON = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Policy:
    """A scope's rules of catching up: the job's, unless the scope overrides them."""

    catch_up: CatchUp
    window: timedelta
    max_lateness: timedelta | None
    most: int

    @classmethod
    def of(cls, job: Job, catch_up: CatchUp | None, max_lateness: timedelta | None) -> Policy:
        """Apply a scope's overrides; an override of the lateness by zero means no limit."""
        limit = job.max_lateness if max_lateness is None else (max_lateness or None)
        return cls(catch_up or job.catch_up, job.catch_up_window, limit, job.max_plans_per_tick)

    def too_late(self, lateness: timedelta) -> bool:
        """Tell whether that late is no longer executed; exactly at the limit still is."""
        limit = self.window if self.max_lateness is None else min(self.window, self.max_lateness)
        return lateness > limit


@dataclass(frozen=True, slots=True)
class DueScope:
    """What planning needs to know of a scope; `latest_plan` is the newest instant in the ledger."""

    kind: str
    id: str
    rule: Rule
    effective_from: datetime
    latest_plan: datetime | None
    catch_up: CatchUp | None = None
    max_lateness: timedelta | None = None

    @property
    def since(self) -> datetime:
        """The instant up to which everything is settled: later occurrences count."""
        if self.latest_plan is None:
            return self.effective_from
        return max(self.effective_from, self.latest_plan)


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One occurrence to record."""

    plan_time: datetime
    lateness: timedelta
    too_late: bool
    collapsed: int = 0


@dataclass(frozen=True, slots=True)
class Planned:
    """The occurrences to record, and the next instant at which there can be another."""

    occurrences: tuple[Occurrence, ...]
    next_plan_at: datetime | None


class Planner:
    """Plans the due scopes of one job in one tick; equal rules are evaluated once in it."""

    def __init__(self, job: Job, now: datetime) -> None:
        self._job = job
        self._now = now
        self._lines: dict[Rule, MemoTimeline] = {}

    def plan(self, scope: DueScope, free: int) -> Planned:
        """Plan a scope of which `free` more occurrences may be executed now.

        Raises:
            CronError: its rule cannot be evaluated any more.
        """
        calendar = self.calendar(scope)
        policy = Policy.of(self._job, scope.catch_up, scope.max_lateness)
        if policy.catch_up is CatchUp.EVERY_PLAN:
            return self._every(calendar, policy, scope.since, free)
        return self._latest(calendar, policy, scope.since)

    def calendar(self, scope: DueScope) -> Calendar:
        """Give the scope's occurrences with their due times."""
        rule = scope.rule
        if not isinstance(rule, CronRule | Cadence | Once):
            raise TypeError("a scope that its owner plans has no timeline")
        if rule not in self._lines:
            self._lines[rule] = MemoTimeline(timeline(rule))
        seed = seed_of(self._job.name, scope.kind, scope.id)
        return Calendar(self._lines[rule], self._job.schedule_delay, self._job.jitter, seed)

    def _latest(self, calendar: Calendar, policy: Policy, since: datetime) -> Planned:
        newest = calendar.newest_due(self._now)
        if newest is None:
            horizon = self._now - self._job.schedule_delay - self._job.jitter
            return Planned((), calendar.next_due(max(horizon, since)))
        following = calendar.next_due(max(newest, since))
        if newest <= since:
            return Planned((), following)
        return Planned((self._folded(calendar, policy, since, newest),), following)

    def _every(self, calendar: Calendar, policy: Policy, since: datetime, free: int) -> Planned:
        found: list[Occurrence] = []
        cursor = since
        dropped = self._last_before_window(calendar)
        if dropped is not None and dropped > since:
            # One row stands for all that is too old to be executed one by one.
            found.append(self._folded(calendar, policy, since, dropped))
            cursor = dropped
        while len(found) < max(1, policy.most):
            following = calendar.line.next(cursor)
            if following is None or calendar.due(following) > self._now:
                break
            occurrence = self._occurrence(calendar, policy, following)
            if not occurrence.too_late:
                if free == 0:
                    break
                free -= 1
            found.append(occurrence)
            cursor = following
        return Planned(tuple(found), calendar.next_due(cursor))

    def _last_before_window(self, calendar: Calendar) -> datetime | None:
        edge = self._now - self._job.catch_up_window
        last = calendar.line.latest_at_or_before(edge - calendar.delay)
        if last is None:
            return None
        return last if calendar.due(last) < edge else calendar.line.previous(last)

    def _folded(
        self, calendar: Calendar, policy: Policy, since: datetime, newest: datetime
    ) -> Occurrence:
        older = calendar.line.count_between(since, newest, MOST_COUNTED + 1) - 1
        return self._occurrence(calendar, policy, newest, min(older, MOST_COUNTED))

    def _occurrence(
        self, calendar: Calendar, policy: Policy, plan_time: datetime, collapsed: int = 0
    ) -> Occurrence:
        lateness = self._now - calendar.due(plan_time)
        return Occurrence(plan_time, lateness, policy.too_late(lateness), collapsed)

    def plan_hook(
        self,
        scope: DueScope,
        plan_times: Sequence[datetime],
        ask_again: datetime | None,
        free: int,
    ) -> Planned:
        """Take what a scope's owner planned: in its order, from the front, never the future.

        `plan_times` are those that the ledger does not hold. One that changes nothing must not take
        the place of one that does: an owner may say the same again and again.
        """
        policy = Policy.of(self._job, scope.catch_up, scope.max_lateness)
        wanted = [each for each in dict.fromkeys(plan_times) if each > scope.effective_from]
        cut = wanted[: policy.most or MOST_PLANS]
        short = len(cut) < len(wanted)
        found: list[Occurrence] = []
        looks = [self._now + ASK_AGAIN if ask_again is None else ask_again]
        for plan_time in cut:
            if plan_time > self._now:
                looks.append(plan_time)
                continue
            lateness = self._now - plan_time
            occurrence = Occurrence(plan_time, lateness, policy.too_late(lateness))
            if not occurrence.too_late:
                if free == 0:
                    short = True
                    break
                free -= 1
            found.append(occurrence)
        soonest = self._now + ASK_SOON
        return Planned(tuple(found), soonest if short else min(max(soonest, min(looks)), LAST))
