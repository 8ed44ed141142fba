"""An expression in a time zone: the instants at which it fires, in both directions.

Debian cron's rule for clock changes. A wildcard job fires whenever the wall clock shows a
matching minute: skipped minutes are lost, repeated ones fire twice. Every other job fires once:
matching minutes that a jump of less than three hours skips are made up together at the first
instant after it, and a repeated minute fires the first time only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import Final
from zoneinfo import ZoneInfo

from reveille_cron.errors import invalid_cron
from reveille_cron.expression import Expression
from reveille_cron.segments import DAYS_ASIDE, Segment, segments_of
from reveille_cron.walk import first_match, last_match

HORIZON_YEARS: Final = 40
_TICK: Final = timedelta(microseconds=1)
# Outside these, a neighbouring zone offset would leave the range of datetime.
_FIRST_YEAR: Final = 2
LAST_YEAR: Final = 9998
_EARLIEST: Final = datetime(_FIRST_YEAR, 1, 1) - _TICK  # noqa: DTZ001
_LATEST: Final = datetime(LAST_YEAR + 1, 1, 1)  # noqa: DTZ001


@dataclass(frozen=True, slots=True)
class Schedule:
    """When an expression fires in a zone.

    Instants taken may carry any zone, instants given are in UTC. Searches end after 40 years,
    either way, and outside the years 2 to 9998 nothing fires. `None` says that nothing was
    found: an accepted expression may still never fire in its zone (a wildcard job whose only
    hour is always skipped).
    """

    expression: Expression
    zone: ZoneInfo

    def next(self, after: datetime) -> datetime | None:
        """Return the first firing strictly after an instant."""
        return next(self.firings(after), None)

    def previous(self, before: datetime) -> datetime | None:
        """Return the last firing strictly before an instant."""
        return self._last_before(min(_naive(before), _LATEST))

    def latest_at_or_before(self, now: datetime) -> datetime | None:
        """Return the newest firing that is due, `now` included."""
        return self._last_before(min(_naive(now), _LATEST - _TICK) + _TICK)

    def upcoming(self, after: datetime, count: int) -> list[datetime]:
        """Return up to `count` firings strictly after an instant, in order."""
        return list(islice(self.firings(after), count))

    def count_between(self, start: datetime, end: datetime, limit: int = 1024) -> int:
        """Count the firings in `start` < t <= `end`, stopping at `limit`."""
        within = takewhile(lambda fired: fired <= end, self.firings(start))
        return sum(1 for _ in islice(within, limit))

    def require_firing(self, after: datetime) -> datetime:
        """Return the first firing strictly after an instant, for a check at save time.

        Raises:
            CronError: With reason `invalid_cron`, if it never fires in this zone.
        """
        fired = self.next(after)
        if fired is None:
            raise invalid_cron(
                "expression",
                f"it never fires in {self.zone.key}: the clock always skips its only times",
                "name an hour that the zone's clock shows, or a minute and hour without '*'",
            )
        return fired

    def firings(self, after: datetime) -> Iterator[datetime]:
        """Yield the firings strictly after an instant, in order, each within 40 years of the last.

        The way to walk: it does not search anew for every firing.
        """
        last = max(_naive(after), _EARLIEST)
        for segment in self._segments(last):
            if segment.start.year - last.year > HORIZON_YEARS:
                return
            while (fired := self._first_in(segment, last)) is not None:
                _in_order(last, fired)
                yield fired.replace(tzinfo=UTC)
                last = fired

    def _last_before(self, limit: datetime) -> datetime | None:
        for segment in self._segments_back(limit):
            fired = self._last_in(segment, limit)
            if fired is not None:
                _in_order(fired, limit)
                return fired.replace(tzinfo=UTC)
        return None

    def _segments(self, after: datetime) -> Iterator[Segment]:
        """Yield the segments from an instant on, leaving out years without a matching date."""
        year = max(after.year, _FIRST_YEAR)
        while year <= LAST_YEAR:
            start = max(after, datetime(year, 1, 1)) - DAYS_ASIDE  # noqa: DTZ001
            stop = datetime(min(year + HORIZON_YEARS, LAST_YEAR) + 1, 1, 1)  # noqa: DTZ001
            match = first_match(self.expression, start, stop + DAYS_ASIDE)
            if match is None:
                return
            year = max(year, (match - DAYS_ASIDE).year)
            for segment in segments_of(self.zone, year):
                if segment.end > after:
                    yield segment
            year += 1

    def _segments_back(self, before: datetime) -> Iterator[Segment]:
        """Yield the segments up to an instant, newest first, leaving out years as above."""
        year = min(before.year, LAST_YEAR)
        oldest = max(before.year - HORIZON_YEARS, _FIRST_YEAR)
        while year >= oldest:
            stop = min(before, datetime(year + 1, 1, 1)) + DAYS_ASIDE  # noqa: DTZ001
            start = datetime(oldest, 1, 1) - DAYS_ASIDE  # noqa: DTZ001
            match = last_match(self.expression, start, stop)
            if match is None:
                return
            year = min(year, (match + DAYS_ASIDE).year)
            for segment in reversed(segments_of(self.zone, year)):
                if segment.start < before:
                    yield segment
            year -= 1

    def _first_in(self, segment: Segment, after: datetime) -> datetime | None:
        if segment.start > after and self._makes_up(segment):
            return segment.start
        wall = max(self._opens(segment), after + _TICK + segment.offset)
        match = first_match(self.expression, wall, segment.end + segment.offset)
        return None if match is None else match - segment.offset

    def _last_in(self, segment: Segment, before: datetime) -> datetime | None:
        stop = min(segment.end, before) + segment.offset
        match = last_match(self.expression, self._opens(segment), stop)
        if match is not None:
            return match - segment.offset
        return segment.start if self._makes_up(segment) else None

    def _opens(self, segment: Segment) -> datetime:
        """Return the first wall time of a segment at which the job may fire."""
        start = segment.start + segment.offset
        return start if self.expression.wildcard else max(start, segment.reached)

    def _makes_up(self, segment: Segment) -> bool:
        """Say whether the start of a segment fires for minutes that were skipped before it."""
        if self.expression.wildcard or segment.skipped is None:
            return False
        return first_match(self.expression, *segment.skipped) is not None


def _naive(instant: datetime) -> datetime:
    if instant.utcoffset() is None:
        raise ValueError("an instant carries its zone")
    return instant.astimezone(UTC).replace(tzinfo=None)


def _in_order(earlier: datetime, later: datetime) -> None:
    # The scheduler's cursor moves by this answer: standing still would loop for ever.
    if not earlier < later:
        raise AssertionError(f"the walk went from {earlier} to {later}")
