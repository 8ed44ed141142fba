"""Where a scope's occurrences come from: a cron rule, a cadence, one instant, or its owner.

All but the owner's give a timeline, which can be walked in both directions; nothing here knows of
jobs, lateness or the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Protocol, assert_never

from reveille_cron import Schedule, parse, zone

# A Monday, so that a weekly cadence falls on Mondays at 00:00 UTC.
CADENCE_ANCHOR = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class CronRule:
    """Five cron fields, or a macro, read in a zone."""

    cron: str
    time_zone: str


@dataclass(frozen=True, slots=True)
class Cadence:
    """One occurrence per length of elapsed time, at its multiples since `CADENCE_ANCHOR`."""

    every: timedelta


@dataclass(frozen=True, slots=True)
class Once:
    """A single occurrence."""

    at: datetime


@dataclass(frozen=True, slots=True)
class Hook:
    """The job's owner is asked."""


Rule = CronRule | Cadence | Once | Hook


class Timeline(Protocol):
    """Occurrences in order; `after` and `before` are exclusive, answers are in UTC."""

    def next(self, after: datetime) -> datetime | None:
        """Return the first occurrence after an instant."""

    def previous(self, before: datetime) -> datetime | None:
        """Return the last occurrence before an instant."""

    def latest_at_or_before(self, now: datetime) -> datetime | None:
        """Return the newest occurrence, `now` included."""

    def count_between(self, start: datetime, end: datetime, limit: int = 1024) -> int:
        """Count the occurrences in `start` < t <= `end`, stopping at `limit`."""

    def firings(self, after: datetime) -> Iterator[datetime]:
        """Yield the occurrences after an instant."""


@dataclass(frozen=True, slots=True)
class CadenceTimeline:
    """The multiples of a length of time; zones and clock changes do not touch them."""

    every: timedelta

    def next(self, after: datetime) -> datetime | None:
        """Return the first multiple after an instant, None past the end of the calendar."""
        return self._multiple((after - CADENCE_ANCHOR) // self.every + 1)

    def previous(self, before: datetime) -> datetime | None:
        """Return the last multiple before an instant."""
        return self._multiple(-((CADENCE_ANCHOR - before) // self.every) - 1)

    def latest_at_or_before(self, now: datetime) -> datetime | None:
        """Return the newest multiple, `now` included."""
        return self._multiple((now - CADENCE_ANCHOR) // self.every)

    def count_between(self, start: datetime, end: datetime, limit: int = 1024) -> int:
        """Count by division."""
        after = (start - CADENCE_ANCHOR) // self.every
        return max(0, min(limit, (end - CADENCE_ANCHOR) // self.every - after))

    def firings(self, after: datetime) -> Iterator[datetime]:
        """Yield the multiples after an instant."""
        last: datetime | None = after
        while last is not None and (last := self.next(last)) is not None:
            yield last

    def _multiple(self, number: int) -> datetime | None:
        if number < 0:
            return None
        try:
            return CADENCE_ANCHOR + number * self.every
        except OverflowError:
            return None


@dataclass(frozen=True, slots=True)
class OnceTimeline:
    """One instant."""

    at: datetime

    def next(self, after: datetime) -> datetime | None:
        """Return the instant while it lies ahead."""
        return self.at if self.at > after else None

    def previous(self, before: datetime) -> datetime | None:
        """Return the instant once it lies behind."""
        return self.at if self.at < before else None

    def latest_at_or_before(self, now: datetime) -> datetime | None:
        """Return the instant once it has come."""
        return self.at if self.at <= now else None

    def count_between(self, start: datetime, end: datetime, limit: int = 1024) -> int:
        """Count one or none."""
        return min(limit, int(start < self.at <= end))

    def firings(self, after: datetime) -> Iterator[datetime]:
        """Yield the instant while it lies ahead."""
        if self.at > after:
            yield self.at


def timeline(rule: CronRule | Cadence | Once) -> Timeline:
    """Give the occurrences of a rule.

    Raises:
        CronError: the expression or the zone is refused.
    """
    match rule:
        case CronRule(cron, time_zone):
            return Schedule(parse(cron), zone(time_zone or "UTC"))
        case Cadence(every):
            return CadenceTimeline(every)
        case Once(at):
            return OnceTimeline(at.astimezone(UTC))
        case _:
            assert_never(rule)


@dataclass(slots=True)
class MemoTimeline:
    """A timeline that answers each question once, for the many scopes with one rule in a tick."""

    line: Timeline
    _known: dict[tuple[object, ...], object] = field(default_factory=dict)

    def next(self, after: datetime) -> datetime | None:
        """Return the first occurrence after an instant."""
        key = ("next", after)
        if key not in self._known:
            self._known[key] = self.line.next(after)
        return _instant(self._known[key])

    def previous(self, before: datetime) -> datetime | None:
        """Return the last occurrence before an instant."""
        key = ("previous", before)
        if key not in self._known:
            self._known[key] = self.line.previous(before)
        return _instant(self._known[key])

    def latest_at_or_before(self, now: datetime) -> datetime | None:
        """Return the newest occurrence, `now` included."""
        key = ("latest", now)
        if key not in self._known:
            self._known[key] = self.line.latest_at_or_before(now)
        return _instant(self._known[key])

    def count_between(self, start: datetime, end: datetime, limit: int = 1024) -> int:
        """Count the occurrences in `start` < t <= `end`, stopping at `limit`."""
        key = ("count", start, end, limit)
        if key not in self._known:
            self._known[key] = self.line.count_between(start, end, limit)
        counted = self._known[key]
        return counted if isinstance(counted, int) else 0

    def firings(self, after: datetime) -> Iterator[datetime]:
        """Yield the occurrences after an instant."""
        return self.line.firings(after)


def _instant(value: object) -> datetime | None:
    return value if isinstance(value, datetime) else None


def upcoming(line: Timeline, after: datetime, count: int) -> list[datetime]:
    """Return up to `count` occurrences after an instant."""
    return list(islice(line.firings(after), count))
