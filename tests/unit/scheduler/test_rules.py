"""Where occurrences come from: cadence, one instant, cron; forwards and backwards."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reveille_cron import CronError
from reveille_scheduler.domain.rule import (
    Cadence,
    CronRule,
    MemoTimeline,
    Once,
    Timeline,
    timeline,
    upcoming,
)

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
instants = st.datetimes(
    min_value=datetime(1970, 1, 1),  # noqa: DTZ001 - the strategy adds the zone
    max_value=datetime(2100, 1, 1),  # noqa: DTZ001 - as above
    timezones=st.just(UTC),
)
rules = st.one_of(
    st.integers(1, 10_000_000).map(lambda seconds: Cadence(timedelta(seconds=seconds))),
    instants.map(Once),
    st.sampled_from(
        [
            CronRule("*/7 * * * *", "UTC"),
            CronRule("30 2 * * *", "America/New_York"),
            CronRule("0 0 * * MON", ""),
        ]
    ),
)


@pytest.mark.parametrize(
    "zone", ["UTC", "Asia/Kathmandu", "America/New_York", "Australia/Lord_Howe"]
)
def test_a_cadence_is_floored_in_utc_whatever_zone_the_instant_carries(zone: str) -> None:
    local = datetime(2026, 6, 1, 12, 7, 31, tzinfo=UTC).astimezone(ZoneInfo(zone))

    floored = timeline(Cadence(timedelta(minutes=5))).latest_at_or_before(local)

    assert floored == datetime(2026, 6, 1, 12, 5, tzinfo=UTC)
    assert floored.utcoffset() == timedelta(0)


def test_a_weekly_cadence_falls_on_mondays() -> None:
    week = timeline(Cadence(timedelta(days=7)))

    assert week.latest_at_or_before(NOON) == datetime(2026, 6, 1, tzinfo=UTC)
    assert datetime(2026, 6, 1, tzinfo=UTC).weekday() == 0


def test_a_cadence_does_not_move_with_the_wall_clock() -> None:
    """Six hours before and after New York springs forward are six hours."""
    every = timeline(Cadence(timedelta(hours=6)))
    around = upcoming(every, datetime(2026, 3, 7, 23, tzinfo=UTC), 4)

    assert {later - earlier for earlier, later in pairwise(around)} == {timedelta(hours=6)}


def test_a_cadence_ends_with_the_calendar() -> None:
    week = timeline(Cadence(timedelta(days=7)))

    assert week.next(datetime(9999, 12, 31, tzinfo=UTC)) is None
    assert week.previous(datetime(1, 1, 1, tzinfo=UTC)) is None
    assert len(upcoming(week, datetime(9999, 12, 1, tzinfo=UTC), 100)) < 6


@given(rule=rules, at=instants)
def test_every_timeline_is_consistent_in_both_directions(
    rule: Cadence | CronRule | Once, at: datetime
) -> None:
    line = timeline(rule)
    for each in (line, MemoTimeline(line)):
        following, before = each.next(at), each.previous(at)
        assert following is None or following > at
        assert before is None or before < at
        if following is not None and following.year < 2090:
            assert each.latest_at_or_before(following) == following
            assert each.previous(following + timedelta(microseconds=1)) == following
            assert each.latest_at_or_before(at) == each.previous(following)


@given(rule=rules, at=instants, limit=st.integers(1, 30))
def test_counting_equals_walking(rule: Cadence | CronRule | Once, at: datetime, limit: int) -> None:
    line = timeline(rule)
    end = at + timedelta(days=3)
    walked = sum(1 for each in islice(line.firings(at), limit) if each <= end)

    assert line.count_between(at, end, limit) == min(walked, limit)


def test_a_memo_asks_once() -> None:
    asked: list[datetime] = []

    class Counting:
        def __init__(self, line: Timeline) -> None:
            self._line = line

        def __getattr__(self, name: str) -> object:
            return getattr(self._line, name)

        def next(self, after: datetime) -> datetime | None:
            asked.append(after)
            return self._line.next(after)

    memo = MemoTimeline(Counting(timeline(Once(NOON))))  # type: ignore[arg-type]  # a stand-in
    assert [memo.next(NOON - timedelta(days=1)) for _ in range(3)] == [NOON] * 3
    assert len(asked) == 1


@pytest.mark.parametrize(
    "rule", [CronRule("", "UTC"), CronRule("0 0 30 2 *", "UTC"), CronRule("@daily", "Local")]
)
def test_a_rule_that_is_none_has_no_timeline(rule: CronRule) -> None:
    with pytest.raises(CronError):
        timeline(rule)
