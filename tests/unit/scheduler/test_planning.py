"""Which occurrence is due: the newest, once, counted from the right moment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from reveille_scheduler.domain.planning import DueScope, Planned, first_plan, planner

DAY = timedelta(days=1)
LATE = timedelta(minutes=5)
NOON = datetime(2026, 6, 1, 12, 0, 30, tzinfo=UTC)


def plan(
    cron: str,
    *,
    now: datetime = NOON,
    effective_from: datetime = NOON - 10 * DAY,
    latest: datetime | None = None,
    window: timedelta = DAY,
    max_lateness: timedelta | None = LATE,
    zone: str = "UTC",
) -> Planned:
    return planner(now)(DueScope(cron, zone, effective_from, latest), window, max_lateness)


def test_an_hour_of_missed_occurrences_gives_one_run_and_says_how_many_were_folded() -> None:
    planned = plan("*/5 * * * *", latest=NOON.replace(minute=0, second=0) - timedelta(hours=1))

    assert planned.plan_time == NOON.replace(second=0)
    assert planned.collapsed == 11
    assert not planned.too_late


def test_a_minute_cron_after_a_year_counts_up_to_its_bound_only() -> None:
    planned = plan("* * * * *", window=timedelta(days=366), effective_from=NOON - 365 * DAY)

    assert planned.plan_time == NOON.replace(second=0)
    assert planned.collapsed == 1024


def test_what_was_planned_before_is_not_planned_again() -> None:
    planned = plan("0 12 * * *", latest=NOON.replace(second=0))

    assert planned.plan_time is None
    assert planned.next_plan_at == NOON.replace(second=0) + DAY


def test_a_trigger_made_after_the_time_does_not_fire_for_it() -> None:
    planned = plan("0 12 * * *", effective_from=NOON.replace(second=10))

    assert planned.plan_time is None


def test_an_occurrence_at_the_very_moment_it_counts_from_does_not_fire() -> None:
    planned = plan("0 12 * * *", effective_from=NOON.replace(second=0))

    assert planned.plan_time is None


def test_exactly_five_minutes_late_still_fires_and_more_does_not() -> None:
    due = NOON.replace(second=0)

    assert not plan("0 12 * * *", now=due + LATE).too_late
    late = plan("0 12 * * *", now=due + LATE + timedelta(microseconds=1))

    assert late.too_late
    assert late.plan_time == due


def test_without_a_lateness_limit_an_old_occurrence_fires() -> None:
    planned = plan("0 0 * * *", max_lateness=None)

    assert planned.plan_time == NOON.replace(hour=0, minute=0, second=0)
    assert not planned.too_late


def test_what_lies_before_the_window_is_forgotten() -> None:
    planned = plan("0 0 * * *", window=timedelta(hours=6))

    assert planned.plan_time is None


def test_the_next_look_is_the_next_occurrence_in_the_zone() -> None:
    planned = plan("0 9 * * *", zone="Asia/Kathmandu")

    assert planned.next_plan_at == datetime(2026, 6, 2, 3, 15, tzinfo=UTC)


def test_a_new_scope_is_looked_at_when_it_first_can_fire() -> None:
    assert first_plan("0 12 * * *", "UTC", NOON) == NOON.replace(second=0) + DAY
