"""Jitter: the same everywhere, spread evenly, never up to the next occurrence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reveille_scheduler.domain.calendar import LAST, Calendar, seed_of, share
from reveille_scheduler.domain.rule import Cadence, CronRule, Once, timeline

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def spread(cron: str, jitter: timedelta, scope_id: str = "a") -> Calendar:
    line = timeline(CronRule(cron, "UTC"))
    return Calendar(line, timedelta(0), jitter, seed_of("tidy", "folder", scope_id))


def test_scopes_of_one_minute_are_spread_over_the_jitter() -> None:
    dues = [spread("0 12 * * *", 10 * MINUTE, str(number)).due(NOON) for number in range(2_000)]

    assert min(dues) >= NOON
    assert max(dues) < NOON + 10 * MINUTE
    per_minute = [sum((due - NOON) // MINUTE == minute for due in dues) for minute in range(10)]
    assert min(per_minute) > 140


def test_a_scopes_share_is_fixed_for_ever() -> None:
    """Written out: another release, another replica and the preview give this very number."""
    assert share("tidy/folder/a", NOON) == share("tidy/folder/a", NOON)
    assert round(share("tidy/folder/a", NOON), 6) == 0.499145
    assert share("tidy/folder/b", NOON) != share("tidy/folder/a", NOON)


def test_without_jitter_an_occurrence_is_due_at_its_time() -> None:
    assert spread("0 12 * * *", timedelta(0)).due(NOON) == NOON


def test_jitter_longer_than_the_gap_keeps_the_order() -> None:
    calendar = spread("* * * * *", timedelta(hours=5))
    plans = [NOON + n * MINUTE for n in range(50)]
    dues = [calendar.due(plan) for plan in plans]

    assert dues == sorted(dues)
    assert all(plan <= due < plan + MINUTE for plan, due in zip(plans, dues, strict=True))


def test_the_only_occurrence_may_use_all_of_the_jitter() -> None:
    calendar = Calendar(timeline(Once(NOON)), timedelta(0), timedelta(hours=1), "seed")

    assert NOON <= calendar.due(NOON) < NOON + timedelta(hours=1)
    assert calendar.next_due(NOON - MINUTE) == calendar.due(NOON)


@pytest.mark.parametrize("jitter", [timedelta(0), timedelta(hours=1)])
def test_no_delay_leads_beyond_the_end_of_time(jitter: timedelta) -> None:
    end = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    calendar = Calendar(timeline(Once(end)), MINUTE, jitter, "seed")

    assert calendar.next_due(NOON) == LAST
    assert calendar.newest_due(NOON) is None
    assert Calendar(timeline(Once(end - MINUTE)), MINUTE).next_due(NOON) == end


@given(
    every=st.integers(1, 5_000),
    jitter=st.integers(0, 86_400),
    delay=st.integers(0, 86_400),
    offset=st.integers(0, 10_000_000),
    seed=st.text(max_size=5),
)
def test_the_newest_due_is_due_and_the_one_after_it_is_not(
    every: int, jitter: int, delay: int, offset: int, seed: str
) -> None:
    calendar = Calendar(
        timeline(Cadence(timedelta(seconds=every))),
        timedelta(seconds=delay),
        timedelta(seconds=jitter),
        seed,
    )
    now = NOON + timedelta(seconds=offset)
    newest = calendar.newest_due(now)
    assert newest is not None
    following = calendar.next_due(newest)

    assert calendar.due(newest) <= now
    assert following is not None
    assert following > now
