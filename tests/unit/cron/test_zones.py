"""Zone names, and the clock changes of every zone as the tz database itself lists them."""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from itertools import pairwise

import pytest

from reveille_cron import (
    TZDATA_VERSION,
    CronError,
    Reason,
    Schedule,
    parse,
    render_local,
    zone,
    zone_names,
)
from reveille_cron.segments import CLOCK_CORRECTION, Segment, segments_of

YEARS = range(2020, 2038)
START = datetime(2020, 1, 1, tzinfo=UTC)
END = datetime(2038, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.mark.parametrize("name", ["UTC", "Europe/Berlin", "America/Argentina/Ushuaia", "EST5EDT"])
def test_a_zone_goes_by_its_iana_name(name: str) -> None:
    assert zone(name).key == name
    assert zone(name) is zone(name)


def test_the_empty_name_is_utc() -> None:
    assert zone("") is zone("UTC")


@pytest.mark.parametrize(
    "name",
    [
        "Local",
        "local",
        "localtime",
        "Factory",
        "posixrules",
        "posix/Europe/Berlin",
        "right/UTC",
        "Europe",
        "Europe/",
        "Europe/Atlantis",
        "Europe/Berlin ",
        " ",
        "europe/berlin",
        "EUROPE/BERLIN",
        "../../etc/passwd",
        "/usr/share/zoneinfo/UTC",
        "./UTC",
        "Europe/../UTC",
        "Europe\\Berlin",
        "UTC+1",
        "+01:00",
        "CEST",
        "zones",
        "tzdata.zi",
        "__init__.py",
        "UTC\x00",
        "\N{FULLWIDTH LATIN CAPITAL LETTER U}TC",
        "x" * 100_000,
    ],
)
def test_anything_else_is_refused(name: str) -> None:
    with pytest.raises(CronError) as refused:
        zone(name)

    assert refused.value.reason is Reason.INVALID_TIMEZONE
    assert refused.value.field == "time_zone"
    assert len(str(refused.value)) < 200
    assert str(refused.value).isascii()


@pytest.mark.parametrize(
    ("name", "meant"),
    [("europe/berlin", "Europe/Berlin"), ("Europe/Berlni", "Europe/Berlin"), ("utc ", "UTC")],
)
def test_a_refusal_offers_the_name_that_was_meant(name: str, meant: str) -> None:
    with pytest.raises(CronError, match=f"did you mean {meant}"):
        zone(name)


def test_the_edition_of_the_database_is_visible() -> None:
    assert TZDATA_VERSION.startswith("20")
    assert len(zone_names()) > 500


def test_the_date_is_the_zones() -> None:
    instant = datetime(2026, 3, 28, 23, 30, tzinfo=UTC)

    assert render_local(instant, zone("Europe/Berlin")) == "2026-03-29"
    assert render_local(instant, zone("America/New_York")) == "2026-03-28"
    with pytest.raises(ValueError, match="carries its zone"):
        render_local(datetime(2026, 3, 28), zone("UTC"))  # noqa: DTZ001


def compiled(name: str) -> bytes:
    return files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()


def listed_changes(raw: bytes) -> list[tuple[datetime, timedelta]]:
    """Read the changes of offset a TZif file lists, from its 64-bit block."""

    def counts(position: int) -> tuple[int, ...]:
        return struct.unpack(">20x6l", raw[position : position + 44])

    isut, isstd, leaps, times, types, characters = counts(0)
    block = 44 + times * 5 + types * 6 + characters + leaps * 8 + isstd + isut
    _, _, _, times, types, _ = counts(block)
    at = block + 44
    instants = struct.unpack(f">{times}q", raw[at : at + 8 * times])
    kinds = raw[at + 8 * times : at + 9 * times]
    table = at + 9 * times
    offsets = [
        struct.unpack(">l2x", raw[table + 6 * kind : table + 6 * kind + 6])[0]
        for kind in range(types)
    ]
    epoch = datetime(1970, 1, 1)  # noqa: DTZ001
    known, changes = offsets[0], []
    for instant, kind in zip(instants, kinds, strict=True):
        if offsets[kind] != known:
            known = offsets[kind]
            changes.append((epoch + timedelta(seconds=instant), timedelta(seconds=known)))
    return changes


def test_no_clock_change_since_1970_is_overlooked() -> None:
    for raw, name in {compiled(name): name for name in sorted(zone_names())}.items():
        listed = [
            (instant, offset)
            for instant, offset in listed_changes(raw)
            if 1970 <= instant.year <= 2037
        ]
        # A file's list ends where its rule takes over; what lies behind is not compared.
        last = listed[-1][0] if listed else datetime(1970, 1, 1)  # noqa: DTZ001
        segments = [
            each for year in range(1970, last.year + 1) for each in segments_of(zone(name), year)
        ]
        found = [
            (later.start, later.offset)
            for earlier, later in pairwise(segments)
            if earlier.offset != later.offset and later.start <= last
        ]
        assert found == [change for change in listed if change[0] > segments[0].start], name


@cache
def history(name: str) -> tuple[Segment, ...]:
    return tuple(each for year in YEARS for each in segments_of(zone(name), year))


def different_zones() -> list[str]:
    """One name for each set of zones whose clocks agree from 2020 to 2037."""
    # Most zones end with the same few changes and the same rule; their histories, which take long,
    # are made only once for all that do.
    names = sorted(zone_names(), reverse=True)
    ends = {recent(compiled(name)): name for name in names}
    return sorted({history(name): name for name in sorted(ends.values(), reverse=True)}.values())


def recent(raw: bytes) -> tuple[object, ...]:
    """What a TZif file says of the time since 2020: the offset before, the changes, the rule."""
    listed = listed_changes(raw)
    offsets = [offset for instant, offset in listed if instant.year < YEARS.start]
    *_, rule, _ = raw.rsplit(b"\n", 2)
    return rule, *offsets[-1:], *listed[len(offsets) :]


def changes(name: str) -> list[tuple[datetime, datetime, datetime]]:
    """The clock changes of a zone: the instant, the wall time it left and the one it entered."""
    return [
        (later.start.replace(tzinfo=UTC), earlier.end + earlier.offset, later.start + later.offset)
        for earlier, later in pairwise(history(name))
        if earlier.offset != later.offset
    ]


def dates_fired(name: str, hour: int, minute: int, start: datetime, end: datetime) -> list[str]:
    """The dates a daily job fired for; a made-up firing counts for the date it makes up."""
    time_zone = zone(name)
    skipping = {instant: left for instant, left, entered in changes(name) if left < entered}
    dates: list[str] = []
    for fired in Schedule(parse(f"{minute} {hour} * * *"), time_zone).firings(start):
        if fired >= end:
            return dates
        wall = fired.astimezone(time_zone).replace(tzinfo=None)
        if (wall.hour, wall.minute) != (hour, minute):
            left = skipping[fired]
            meant = left.replace(hour=hour, minute=minute)
            wall = meant if meant >= left else meant + DAY
        dates.append(wall.date().isoformat())
    raise AssertionError("a daily job has no end")


def dates_there_are(name: str, hour: int, minute: int, start: datetime, end: datetime) -> list[str]:
    """The local dates whose hour lies in a stretch of time, but for clock corrections."""
    time_zone = zone(name)
    first = start.astimezone(time_zone).replace(tzinfo=None)
    last = end.astimezone(time_zone).replace(tzinfo=None)
    corrections = [
        (left, entered) for _, left, entered in changes(name) if entered - left >= CLOCK_CORRECTION
    ]
    dates: list[str] = []
    at = first.replace(hour=hour, minute=minute, second=0)
    while at < last:
        if at > first and not any(left <= at < entered for left, entered in corrections):
            dates.append(at.date().isoformat())
        at += DAY
    return dates


def hard_times(name: str) -> list[tuple[int, int]]:
    """The hours and minutes at which the clock of a zone jumps, in its midst and beside it."""
    times: dict[tuple[int, int], None] = {(0, 0): None}
    for _, left, entered in changes(name):
        low, high = sorted((left, entered))
        for at in ((low + (high - low) / 2), low, high, high - timedelta(minutes=1)):
            times[(at.hour, at.minute)] = None
    return list(times)


@pytest.mark.parametrize("name", different_zones())
def test_a_fixed_daily_job_fires_once_for_every_date_there_is(name: str) -> None:
    times = hard_times(name)
    hour, minute = times[min(1, len(times) - 1)]
    start, end = START + DAY / 2, END - DAY / 2
    assert dates_fired(name, hour, minute, start, end) == dates_there_are(
        name, hour, minute, start, end
    )
    # Two changes of each kind, at every time that could be hard, days around.
    for instant, _, _ in changes(name)[:2] + changes(name)[-2:]:
        for hour, minute in times:
            start, end = instant - 2 * DAY - DAY / 2, instant + 2 * DAY + DAY / 2
            assert dates_fired(name, hour, minute, start, end) == dates_there_are(
                name, hour, minute, start, end
            ), (hour, minute, instant)
