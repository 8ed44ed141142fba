"""What the tests of planning share: a job, a scope, and one call that plans."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from reveille_scheduler.domain.job import CatchUp, Job
from reveille_scheduler.domain.planning import DueScope, Occurrence, Planned, Planner
from reveille_scheduler.domain.rule import CronRule, Rule

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
LATE = timedelta(minutes=5)
NOON = datetime(2026, 6, 1, 12, 0, 30, tzinfo=UTC)
DUE = NOON.replace(second=0)
JOB = Job(
    name="tidy",
    handler="owner",
    catch_up_window=DAY,
    max_lateness=LATE,
    run_timeout=timedelta(minutes=2),
    stale_timeout=timedelta(minutes=5),
    heartbeat_interval=timedelta(seconds=30),
    max_attempts=3,
    retry_backoff=(),
    retry_deadline=timedelta(hours=1),
)
EVERY = replace(JOB, catch_up=CatchUp.EVERY_PLAN, max_plans_per_tick=5, max_lateness=None)


def scope(
    cron: str = "* * * * *",
    *,
    rule: Rule | None = None,
    since: datetime = NOON - 10 * DAY,
    latest: datetime | None = None,
    zone: str = "UTC",
    catch_up: CatchUp | None = None,
    max_lateness: timedelta | None = None,
) -> DueScope:
    return DueScope(
        "folder", "nightly", rule or CronRule(cron, zone), since, latest, catch_up, max_lateness
    )


def plan(due: DueScope, *, job: Job = JOB, now: datetime = NOON, free: int = 1) -> Planned:
    return Planner(job, now).plan(due, free)


def one(planned: Planned) -> Occurrence:
    (found,) = planned.occurrences
    return found


def times(planned: Planned) -> list[datetime]:
    return [each.plan_time for each in planned.occurrences]
