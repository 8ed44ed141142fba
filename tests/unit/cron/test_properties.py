"""Random expressions in random zones, against a walk over every minute written anew here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from reveille_cron import Schedule, parse, zone, zone_names

MINUTE = timedelta(minutes=1)
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)

# Clock changes of every kind since 2000: hours and half hours, at midnight and over it, no
# daylight saving at all, three hours, a whole day, and the turn of a year.
CHANGES = [
    ("America/New_York", "2026-03-08T07:00:00Z"),
    ("America/New_York", "2026-11-01T06:00:00Z"),
    ("Europe/Dublin", "2026-10-25T01:00:00Z"),
    ("Europe/Berlin", "2026-03-29T01:00:00Z"),
    ("Australia/Lord_Howe", "2026-10-03T15:30:00Z"),
    ("Australia/Lord_Howe", "2026-04-04T15:00:00Z"),
    ("Antarctica/Troll", "2026-03-29T01:00:00Z"),
    ("Antarctica/Troll", "2026-10-25T01:00:00Z"),
    ("Antarctica/Casey", "2021-10-02T16:01:00Z"),
    ("Antarctica/Casey", "2023-03-08T16:00:00Z"),
    ("America/Santiago", "2026-09-06T04:00:00Z"),
    ("America/Santiago", "2026-04-05T03:00:00Z"),
    ("America/Nuuk", "2024-03-31T01:00:00Z"),
    ("America/St_Johns", "2011-11-06T02:31:00Z"),
    ("America/St_Johns", "2011-03-13T03:31:00Z"),
    ("America/Caracas", "2016-05-01T07:00:00Z"),
    ("Africa/Casablanca", "2026-02-15T02:00:00Z"),
    ("Africa/Casablanca", "2026-03-22T02:00:00Z"),
    ("Africa/Cairo", "2026-04-23T22:00:00Z"),
    ("Asia/Pyongyang", "2018-05-04T15:00:00Z"),
    ("Asia/Pyongyang", "2015-08-14T15:00:00Z"),
    ("Pacific/Apia", "2011-12-30T10:00:00Z"),
    ("Pacific/Chatham", "2026-09-26T14:00:00Z"),
    ("Pacific/Norfolk", "2015-10-03T15:30:00Z"),
    ("Asia/Dhaka", "2009-12-31T18:00:00Z"),
]


@dataclass(frozen=True)
class Case:
    """An expression with the sets of values it was written from."""

    text: str
    matches: Callable[[datetime], bool]
    wildcard: bool


@st.composite
def fields(draw: st.DrawFn, low: int, high: int, *, dense: bool) -> tuple[str, frozenset[int]]:
    """One field's text and its values; a dense one names most of them most of the time."""
    texts: list[str] = []
    values: set[int] = set()
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["star", "star", "value", "range", "from"] if dense else
                                    ["value", "value", "range", "from", "star"]))  # fmt: skip
        step = draw(st.integers(1, min(high - low + 1, 20)))
        first = draw(st.integers(low, high))
        last = draw(st.integers(first, high))
        if kind == "star":
            step = draw(st.sampled_from([1, 1, step]))
            texts.append("*" if step == 1 else f"*/{step}")
            values |= set(range(low, high + 1, step))
        elif kind == "value":
            texts.append(str(first))
            values.add(first)
        elif kind == "range":
            texts.append(f"{first}-{last}/{step}")
            values |= set(range(first, last + 1, step))
        else:
            texts.append(f"{first}/{step}")
            values |= set(range(first, high + 1, step))
    return ",".join(texts), frozenset(values)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    minute, minutes = draw(fields(0, 59, dense=False))
    hour, hours = draw(fields(0, 23, dense=draw(st.booleans())))
    day, days = draw(fields(1, 31, dense=True))
    month, months = draw(
        st.sampled_from([("*", frozenset(range(1, 13)))]) | fields(1, 12, dense=True)
    )
    weekday, weekdays = draw(fields(0, 6, dense=True))
    both = day.startswith("*") or weekday.startswith("*")

    def matches(wall: datetime) -> bool:
        on_day, on_weekday = wall.day in days, wall.isoweekday() % 7 in weekdays
        return (
            wall.minute in minutes
            and wall.hour in hours
            and wall.month in months
            and ((on_day and on_weekday) if both else (on_day or on_weekday))
        )

    # A month that always matches keeps the expression from naming no date at all.
    months = months | {1}
    text = f"{minute} {hour} {day} {month},1 {weekday}"
    return Case(text, matches, minute.startswith("*") or hour.startswith("*"))


@st.composite
def moments(draw: st.DrawFn) -> tuple[str, datetime]:
    """A zone and an instant, more often than not within two days of a clock change."""
    if draw(st.integers(0, 3)):
        name, changed = draw(st.sampled_from(CHANGES))
        return name, datetime.fromisoformat(changed) + MINUTE * draw(st.integers(-2880, 720))
    name = draw(st.sampled_from(sorted(zone_names())))
    return name, EPOCH + MINUTE * draw(st.integers(0, 38 * 365 * 1440))


def walk(case: Case, name: str, start: datetime, minutes: int) -> list[datetime]:
    """Look at every minute of `start` < t <= `start` + minutes, as Debian's rule reads."""
    time_zone = zone(name)
    since = start - 28 * 60 * MINUTE  # what the clock has shown before matters to a fixed job
    seen: set[datetime] = set()
    fired = []
    wall = (since - MINUTE).astimezone(time_zone).replace(tzinfo=None)
    for number in range(28 * 60 + minutes + 1):
        instant = since + number * MINUTE
        previous, wall = wall, instant.astimezone(time_zone).replace(tzinfo=None)
        hit = case.matches(wall)
        if not case.wildcard:
            hit = hit and wall not in seen
            jump = wall - previous - MINUTE
            if timedelta(0) < jump < timedelta(hours=3):
                missed = (previous + step * MINUTE for step in range(1, jump // MINUTE + 1))
                hit = hit or any(case.matches(each) for each in missed)
            seen.add(wall)
        if hit and instant > start:
            fired.append(instant)
    return fired


@settings(max_examples=250, deadline=None)
@given(cases(), moments())
def test_equals_a_walk_over_every_minute(case: Case, moment: tuple[str, datetime]) -> None:
    name, start = moment
    schedule = Schedule(parse(case.text), zone(name))
    minutes = 2880
    expected = walk(case, name, start, minutes)
    end = start + minutes * MINUTE
    firings = []
    for fired in schedule.firings(start):
        if fired > end:
            break
        firings.append(fired)

    assert firings == expected
    assert schedule.count_between(start, end, limit=3000) == len(expected)
    back = []
    at = schedule.latest_at_or_before(end)
    while at is not None and at > start:
        back.append(at)
        at = schedule.previous(at)
    assert back[::-1] == expected


@settings(max_examples=250, deadline=None)
@given(cases(), moments(), st.integers(0, 59_999_999))
def test_firings_rise_and_the_way_back_inverts_the_way_on(
    case: Case, moment: tuple[str, datetime], microseconds: int
) -> None:
    name, minute = moment
    after = minute + timedelta(microseconds=microseconds)
    schedule = Schedule(parse(case.text), zone(name))
    upcoming = schedule.upcoming(after, 5)

    assert len(upcoming) == 5
    assert all(left < right for left, right in zip([after, *upcoming], upcoming, strict=False))
    assert [schedule.next(at) for at in [after, *upcoming[:-1]]] == upcoming
    assert [schedule.previous(at) for at in upcoming[1:]] == upcoming[:-1]
    assert all(schedule.latest_at_or_before(at) == at for at in upcoming)
    before = schedule.previous(upcoming[0])
    assert before is None or before <= after
    assert before is None or schedule.next(before) == upcoming[0]
