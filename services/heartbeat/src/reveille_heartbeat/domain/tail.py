"""The newest news of one run, kept for those who follow it until all of them have taken it.

One reader fills it, any number of watchers take from it, each at its own pace. What it holds is
bounded, whoever is slow: when it is full the reader waits, and a watcher that still takes nothing
is cut off. Positions are those of the stored events and output, so one who was cut off, or comes
later, finds what it missed in the tables and joins where the tail begins.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, assert_never

from reveille_heartbeat.domain.values import LogStream, Run


@dataclass(frozen=True, slots=True)
class Position:
    """How far somebody has come: the last event, and the next byte of each stream."""

    event: int = 0
    stdout: int = 0
    stderr: int = 0

    def offset(self, stream: LogStream) -> int:
        """Give the next byte of a stream."""
        return self.stdout if stream is LogStream.STDOUT else self.stderr

    def covers(self, other: Position) -> bool:
        """Tell whether nothing up to the other is missing here."""
        return (
            self.event >= other.event
            and self.stdout >= other.stdout
            and self.stderr >= other.stderr
        )


# Grows with everything about a run that a watcher sees.
Version = tuple[int, bool, datetime | None]


@dataclass(frozen=True, slots=True)
class Moved:
    """The run, after it changed."""

    run: Run
    version: Version


@dataclass(frozen=True, slots=True)
class Happened:
    """Something that happened in the run."""

    seq: int
    type: str
    message: str
    facts: Mapping[str, Any]
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Said:
    """A piece of output."""

    stream: LogStream
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Over:
    """The run has ended, and everything of it was told."""


News = Moved | Happened | Said | Over


def beyond(news: News, position: Position) -> tuple[News | None, Position]:
    """Give what of some news is new at a position, and the position after it."""
    match news:
        case Moved() | Over():
            return news, position
        case Happened():
            if news.seq <= position.event:
                return None, position
            return news, replace(position, event=news.seq)
        case Said():
            known, end = position.offset(news.stream), news.offset + len(news.data)
            if end <= known:
                return None, position
            missing = max(0, known - news.offset)
            if missing:
                news = Said(news.stream, news.offset + missing, news.data[missing:])
            if news.stream is LogStream.STDOUT:
                return news, replace(position, stdout=end)
            return news, replace(position, stderr=end)
        case _:
            assert_never(news)


def is_newer(version: Version, known: Version | None) -> bool:
    """Tell whether a run moved since: every part of a version only grows."""
    if known is None:
        return True
    progress, known_progress = version[2], known[2]
    if progress is not None and (known_progress is None or progress > known_progress):
        return True
    return version[:2] > known[:2]


def weight(news: News) -> int:
    """Tell about how many bytes some news takes."""
    return 512 + len(news.data) if isinstance(news, Said) else 512


@dataclass(slots=True, eq=False)
class Place:
    """How far one watcher has taken from a tail."""

    at: int
    cut: bool = False


@dataclass(slots=True)
class Tail:
    """See above. `head` is how far the reader has come."""

    head: Position
    most: int
    version: Version | None = None
    # Before the oldest news that is kept.
    base: Position = field(init=False)
    held: int = 0
    over: bool = False
    _news: deque[News] = field(default_factory=deque)
    _first: int = 0
    _places: set[Place] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.base = self.head

    @property
    def full(self) -> bool:
        """Whether somebody has to take before more goes in."""
        return self.held >= self.most

    @property
    def half_full(self) -> bool:
        """Whether its watchers have not come far since it was full."""
        return self.held > self.most // 2

    def join(self, position: Position) -> Place | None:
        """Begin to take; None when the tail begins only after this position, or is at its end."""
        if self.over or not position.covers(self.base):
            return None
        place = Place(self._first)
        self._places.add(place)
        return place

    def leave(self, place: Place) -> None:
        """Take no more."""
        self._places.discard(place)
        self._forget()

    def put(self, news: Sequence[News]) -> None:
        """Add what the reader has found."""
        for each in news:
            _, self.head = beyond(each, self.head)
            if isinstance(each, Moved):
                self.version = each.version
            self.over = self.over or isinstance(each, Over)
            self.held += weight(each)
            self._news.append(each)
        self._forget()

    def take(self, place: Place) -> News | None:
        """Give the next of a watcher's news; None when it has taken all."""
        at = place.at - self._first
        if at >= len(self._news):
            return None
        news = self._news[at]
        place.at += 1
        if at == 0:
            self._forget()
        return news

    def cut(self) -> list[Place]:
        """Cut off those who keep the tail full: whoever has taken the least."""
        slow = [place for place in self._places if place.at == self._first]
        for place in slow:
            place.cut = True
            self._places.discard(place)
        self._forget()
        return slow

    def _forget(self) -> None:
        """Let go of what everybody has taken."""
        slowest = min((place.at for place in self._places), default=self._first + len(self._news))
        while self._first < slowest:
            gone = self._news.popleft()
            self._first += 1
            self.held -= weight(gone)
            _, self.base = beyond(gone, self.base)
