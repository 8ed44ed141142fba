"""Catching up on everything: forward, oldest first, bounded, nothing lost without a trace."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.scheduler.planning import DUE, EVERY, MINUTE, NOON, one, plan, scope, times

from reveille_scheduler.domain.rule import Cadence, timeline

HOUR = timedelta(hours=1)


def test_missed_occurrences_come_oldest_first_and_a_tick_takes_so_many() -> None:
    planned = plan(scope("*/5 * * * *", latest=DUE - HOUR), job=EVERY, free=9)

    assert times(planned) == [DUE - HOUR + n * 5 * MINUTE for n in range(1, 6)]
    # More is due right now.
    assert planned.next_plan_at == DUE - HOUR + 30 * MINUTE


def test_only_as_many_as_have_a_slot_are_begun() -> None:
    planned = plan(scope("*/5 * * * *", latest=DUE - HOUR), job=EVERY, free=1)

    assert times(planned) == [DUE - 55 * MINUTE]
    assert planned.next_plan_at == DUE - 50 * MINUTE


def test_without_a_slot_late_ones_are_still_recorded() -> None:
    job = replace(EVERY, max_lateness=10 * MINUTE)
    planned = plan(scope("*/5 * * * *", latest=DUE - 30 * MINUTE), job=job, free=0)

    assert times(planned) == [DUE - n * MINUTE for n in (25, 20, 15, 10)]
    assert all(each.too_late for each in planned.occurrences)
    assert planned.next_plan_at == DUE - 5 * MINUTE


def test_what_lies_before_the_window_is_one_row_that_counts_the_others() -> None:
    job = replace(EVERY, catch_up_window=2 * HOUR)
    planned = plan(scope("0 * * * *", latest=DUE - 10 * HOUR), job=job, now=NOON, free=9)

    trace, *rest = planned.occurrences
    assert (trace.plan_time, trace.too_late) == (DUE - 2 * HOUR, True)
    assert trace.collapsed == 7
    assert [each.plan_time for each in rest] == [DUE - HOUR, DUE]


def test_nothing_is_planned_twice() -> None:
    planned = plan(scope("0 * * * *", latest=DUE), job=EVERY)

    assert planned.occurrences == ()
    assert planned.next_plan_at == DUE + HOUR


def test_a_new_scope_has_nothing_to_catch_up_on() -> None:
    assert plan(scope("0 * * * *", since=NOON), job=EVERY).occurrences == ()


def test_occurrences_that_are_not_yet_due_wait() -> None:
    job = replace(EVERY, schedule_delay=HOUR)

    assert one(plan(scope("0 * * * *", latest=DUE - 2 * HOUR), job=job)).plan_time == DUE - HOUR


@given(
    behind=st.integers(0, 3_000),
    every=st.integers(1, 90),
    window=st.integers(1, 2_000),
    most=st.integers(1, 20),
    free=st.integers(1, 5),
    jitter=st.integers(0, 120),
)
@settings(deadline=None)
def test_ticks_end_with_every_occurrence_recorded_or_counted_once(
    behind: int, every: int, window: int, most: int, free: int, jitter: int
) -> None:
    """However far behind, with any bounds: ticks reach the present and account for each slot."""
    job = replace(
        EVERY,
        catch_up_window=window * MINUTE,
        max_plans_per_tick=most,
        jitter=jitter * MINUTE,
    )
    latest: datetime | None = None
    due = scope(rule=Cadence(every * MINUTE), since=NOON - behind * MINUTE)
    recorded: list[datetime] = []
    counted = 0
    for _ in range(4_000):
        planned = plan(replace(due, latest_plan=latest), job=job, free=free)
        if not planned.occurrences:
            break
        assert len(planned.occurrences) <= most
        assert sum(not each.too_late for each in planned.occurrences) <= free
        recorded += times(planned)
        counted += sum(1 + each.collapsed for each in planned.occurrences)
        latest = recorded[-1]

    assert recorded == sorted(set(recorded))
    assert planned.next_plan_at is not None
    assert planned.next_plan_at > NOON
    slots = timeline(Cadence(every * MINUTE)).count_between(
        due.effective_from, latest or due.effective_from, 1024
    )
    assert min(counted, 1024) == slots
