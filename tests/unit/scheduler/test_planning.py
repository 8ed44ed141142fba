"""Which occurrence is due: the newest, once, counted from the right moment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.unit.scheduler.planning import (
    DAY,
    DUE,
    JOB,
    LATE,
    MINUTE,
    NOON,
    one,
    plan,
    scope,
    times,
)

from reveille_cron import CronError, Schedule
from reveille_scheduler.domain.job import CatchUp
from reveille_scheduler.domain.planning import Planner
from reveille_scheduler.domain.rule import Cadence, CronRule, Hook, Once, Rule

HOUR = timedelta(hours=1)


def test_an_hour_of_missed_occurrences_gives_one_run_and_says_how_many_were_folded() -> None:
    found = one(plan(scope("*/5 * * * *", latest=DUE - HOUR)))

    assert found.plan_time == DUE
    assert found.collapsed == 11
    assert not found.too_late


def test_a_minute_cron_after_a_day_of_downtime_fires_and_counts_up_to_its_bound() -> None:
    found = one(plan(scope("* * * * *", latest=DUE - DAY)))

    assert found.plan_time == DUE
    assert not found.too_late
    assert found.collapsed == 1024


def test_a_year_of_missed_minutes_costs_one_step_back_and_a_bounded_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps: list[str] = []
    step_back, walk = Schedule.latest_at_or_before, Schedule.firings

    def back(self: Schedule, now: datetime) -> datetime | None:
        steps.append("back")
        return step_back(self, now)

    def counted(self: Schedule, after: datetime) -> Iterator[datetime]:
        for fired in walk(self, after):
            steps.append("forward")
            yield fired

    monkeypatch.setattr(Schedule, "latest_at_or_before", back)
    monkeypatch.setattr(Schedule, "firings", counted)

    assert one(plan(scope(latest=DUE - 365 * DAY))).plan_time == DUE
    assert steps.count("back") == 1
    assert steps.count("forward") <= 1030


def test_what_was_planned_before_is_not_planned_again() -> None:
    planned = plan(scope("0 12 * * *", latest=DUE))

    assert planned.occurrences == ()
    assert planned.next_plan_at == DUE + DAY


@pytest.mark.parametrize("since", [DUE, DUE + timedelta(seconds=10)])
def test_a_rule_made_at_or_after_the_time_does_not_fire_for_it(since: datetime) -> None:
    assert plan(scope("0 12 * * *", since=since)).occurrences == ()


def test_an_edit_after_the_newest_plan_counts_from_the_edit() -> None:
    """Edited at 12:02 from 0 9 to 0 12: it does not fire for the 12:00 of today."""
    edited = scope("0 12 * * *", since=DUE + 2 * MINUTE, latest=DUE - 3 * HOUR)

    planned = plan(edited, now=DUE + 3 * MINUTE)

    assert planned.occurrences == ()
    assert planned.next_plan_at == DUE + DAY


def test_exactly_five_minutes_late_still_fires_and_more_does_not() -> None:
    assert not one(plan(scope("0 12 * * *"), now=DUE + LATE)).too_late
    late = one(plan(scope("0 12 * * *"), now=DUE + LATE + timedelta(microseconds=1)))

    assert late.too_late
    assert late.plan_time == DUE


def test_without_a_lateness_limit_an_old_occurrence_fires() -> None:
    found = one(plan(scope("0 0 * * *"), job=replace(JOB, max_lateness=None)))

    assert found.plan_time == DUE.replace(hour=0)
    assert not found.too_late


def test_what_lies_before_the_window_leaves_a_trace_and_does_not_fire() -> None:
    found = one(plan(scope("0 0 * * *"), job=replace(JOB, catch_up_window=6 * HOUR)))

    assert found.plan_time == DUE.replace(hour=0)
    assert found.too_late


@pytest.mark.parametrize("catch_up", list(CatchUp))
def test_a_patience_longer_than_the_window_does_not_widen_it(catch_up: CatchUp) -> None:
    day = replace(JOB, max_lateness=DAY, max_plans_per_tick=5)
    job = replace(day, catch_up=catch_up, catch_up_window=6 * HOUR)
    at_five, at_six = scope("0 5 * * *"), scope("0 6 * * *")

    assert one(plan(at_five, job=job, now=DUE)).too_late
    (*_, inside) = plan(at_six, job=job, now=DUE).occurrences
    assert (inside.plan_time, inside.too_late) == (DUE - 6 * HOUR, False)


def test_a_scope_overrides_its_jobs_lateness() -> None:
    patient = scope("0 0 * * *", max_lateness=DAY)
    hasty = scope("0 12 * * *", max_lateness=timedelta(seconds=1))
    boundless = scope("0 0 * * *", max_lateness=timedelta(0))

    assert [one(plan(each)).too_late for each in (patient, hasty, boundless)] == [
        False,
        True,
        False,
    ]


def test_a_scope_overrides_how_its_job_catches_up() -> None:
    job = replace(JOB, max_plans_per_tick=9, max_lateness=None)
    every = scope("0 * * * *", latest=DUE - 3 * HOUR, catch_up=CatchUp.EVERY_PLAN)

    assert times(plan(every, job=job, free=9)) == [DUE - 2 * HOUR, DUE - HOUR, DUE]


def test_the_next_look_is_the_next_occurrence_in_the_zone() -> None:
    planned = plan(scope("0 9 * * *", zone="Asia/Kathmandu"))

    assert planned.next_plan_at == datetime(2026, 6, 2, 3, 15, tzinfo=UTC)


def test_a_delay_moves_when_an_occurrence_is_due_and_not_what_it_is_called() -> None:
    job = replace(JOB, schedule_delay=timedelta(minutes=10))
    early = plan(scope("0 12 * * *"), job=job, now=DUE + timedelta(minutes=9))
    due = one(plan(scope("0 12 * * *"), job=job, now=DUE + timedelta(minutes=15)))

    assert times(early) == [DUE - DAY]
    assert early.next_plan_at == DUE + timedelta(minutes=10)
    assert due.plan_time == DUE
    assert (due.lateness, due.too_late) == (timedelta(minutes=5), False)


def test_one_instant_fires_once_also_when_it_is_found_late() -> None:
    once = Once(DUE)

    assert plan(scope(rule=once), now=DUE - MINUTE).next_plan_at == DUE
    fired = plan(scope(rule=once))
    assert times(fired) == [DUE]
    assert fired.next_plan_at is None
    assert plan(scope(rule=once, latest=DUE)).occurrences == ()


@pytest.mark.parametrize(("hours", "too_late"), [(23, False), (25, True)])
def test_one_instant_may_have_a_day_where_its_job_has_minutes(hours: int, too_late: bool) -> None:
    once = scope(rule=Once(DUE), max_lateness=DAY)

    assert one(plan(once, now=DUE + hours * HOUR)).too_late is too_late


def test_a_cadence_is_planned_on_its_grid() -> None:
    found = plan(scope(rule=Cadence(timedelta(minutes=5))), now=NOON + 4 * MINUTE)

    assert one(found).plan_time == DUE
    assert found.next_plan_at == DUE + 5 * MINUTE


def test_equal_rules_are_evaluated_once_in_a_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[datetime] = []
    evaluate = Schedule.latest_at_or_before

    def counted(self: Schedule, now: datetime) -> datetime | None:
        asked.append(now)
        return evaluate(self, now)

    monkeypatch.setattr(Schedule, "latest_at_or_before", counted)
    planner = Planner(JOB, NOON)
    for number in range(50):
        planner.plan(replace(scope("0 12 * * *"), id=str(number)), 1)

    assert len(asked) == 1


def test_a_rule_that_cannot_be_evaluated_says_so() -> None:
    with pytest.raises(CronError):
        plan(scope("61 * * * *"))
    with pytest.raises(TypeError):
        plan(scope(rule=Hook()))


def test_a_fixed_job_in_a_gap_is_planned_once_at_its_end() -> None:
    """02:30 does not exist on 8 March in New York; the day's run is planned at 03:00."""
    gap = datetime(2026, 3, 8, 7, 0, tzinfo=UTC)
    due = scope("30 2 * * *", zone="America/New_York", since=gap - DAY)

    planned = plan(due, now=gap + MINUTE)

    assert times(planned) == [gap]
    assert planned.next_plan_at == datetime(2026, 3, 9, 6, 30, tzinfo=UTC)
    assert plan(replace(due, latest_plan=gap), now=gap + HOUR).occurrences == ()


def test_planning_never_gives_the_future() -> None:
    rules: list[Rule] = [
        CronRule("* * * * *", "UTC"),
        Cadence(timedelta(seconds=7)),
        Once(NOON + MINUTE),
    ]
    for rule in rules:
        for offset in range(0, 120, 7):
            now = NOON + timedelta(seconds=offset)
            assert all(each <= now for each in times(plan(scope(rule=rule), now=now)))
