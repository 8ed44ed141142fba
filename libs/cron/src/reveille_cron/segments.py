"""Time zones as stretches of constant offset, found by asking the zone, a year at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

# Debian cron's line between daylight saving and a clock that was set anew.
CLOCK_CORRECTION: Final = timedelta(hours=3)
# More than any zone's distance from UTC, and any jump of its clock.
DAYS_ASIDE: Final = timedelta(days=2)
_LOOK: Final = timedelta(days=4)
_SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of UTC in which a zone's offset does not change. All datetimes are naive.

    Attributes:
        start: Its first instant, in UTC.
        end: The first instant after it, in UTC.
        offset: Wall clock minus UTC.
        reached: The wall time the clock had reached when the offset changed; what lies below
            it was shown before and is a repetition now.
        skipped: The wall times `(from, to)` the clock left out when it jumped to `start`, if
            it did and the jump was no clock correction.
    """

    start: datetime
    end: datetime
    offset: timedelta
    reached: datetime
    skipped: tuple[datetime, datetime] | None


@lru_cache(maxsize=4096)
def segments_of(zone: ZoneInfo, year: int) -> tuple[Segment, ...]:
    """Return the segments of one UTC year (2 to 9998), cut at its two ends."""
    new_year = datetime(year, 1, 1)  # noqa: DTZ001
    end = datetime(year + 1, 1, 1)  # noqa: DTZ001
    # Two days more in front: an overlap may reach over the turn of the year.
    start = new_year - DAYS_ASIDE
    offset = _offset(zone, start)
    reached = start + offset
    skipped: tuple[datetime, datetime] | None = None
    segments: list[Segment] = []
    for change in [*_changes(zone, start, end), end]:
        if change > new_year:
            begin, gap = (start, skipped) if start >= new_year else (new_year, None)
            segments.append(Segment(begin, change, offset, reached, gap))
        reached = change + offset
        if change < end:
            offset = _offset(zone, change)
            entered = change + offset
            skipped = (reached, entered) if reached < entered < reached + CLOCK_CORRECTION else None
        start = change
    return tuple(segments)


def _changes(zone: ZoneInfo, start: datetime, end: datetime) -> Iterator[datetime]:
    """Yield the instants in `start` < t < `end` at which the offset changes.

    A look every few days is enough: no zone changes and changes back sooner than that (Recife
    did within a week, in October 2000).
    """
    known = _offset(zone, start)
    at = start
    while at < end:
        ahead = min(at + _LOOK, end - _SECOND)
        if ahead <= at:
            return
        then = _offset(zone, ahead)
        while then != known:
            low, high = at, ahead  # the offset is `known` at low, another at high
            while high - low > _SECOND:
                middle = low + ((high - low) // 2 // _SECOND or 1) * _SECOND
                if _offset(zone, middle) == known:
                    low = middle
                else:
                    high = middle
            yield high
            at, known = high, _offset(zone, high)
        at = ahead


def _offset(zone: ZoneInfo, instant: datetime) -> timedelta:
    marked = instant.replace(tzinfo=zone)
    return zone.fromutc(marked) - marked  # within one zone, a difference of wall times
