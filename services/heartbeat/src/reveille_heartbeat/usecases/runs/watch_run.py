"""Following runs: one reader for all that are followed in this process, however many follow them.

Who begins to follow a run, or comes back, first reads what is stored, at its own pace; then it
takes from the run's tail, which the reader fills. A tail that is full waits for its watchers; the
slowest are cut off when it stays so for `patience` seconds, and may come back where they were.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from uuid import UUID

from reveille_heartbeat.domain.tail import (
    Moved,
    News,
    Over,
    Place,
    Position,
    Tail,
    Version,
    beyond,
    is_newer,
)
from reveille_heartbeat.domain.values import LogStream
from reveille_heartbeat.usecases.runs.run_news import ReadNews, Seen
from reveille_heartbeat.usecases.visible import require_visible
from reveille_runtime.access import Actor
from reveille_runtime.errors import ResourceExhausted
from reveille_runtime.lifecycle import Wakeable
from reveille_runtime.server import draining_error

MOST_BYTES = 1 << 20
PATIENCE = 5.0


@dataclass(slots=True, eq=False)
class _Watcher:
    """Somebody who takes from a tail, and how to wake or end it."""

    place: Place
    task: asyncio.Task[object]
    news: asyncio.Event = field(default_factory=asyncio.Event)
    cut_at: float = 0.0


@dataclass(slots=True, eq=False)
class _Followed:
    """A run that is followed here, with its output or without."""

    run_id: UUID
    output: bool
    tail: Tail
    watchers: set[_Watcher] = field(default_factory=set)
    full_since: float | None = None


class WatchRuns:
    """`__call__` follows one run; `step` is the reader's, repeated by a loop that `wait`s here."""

    def __init__(
        self,
        read: ReadNews,
        hint: Wakeable,
        draining: asyncio.Event,
        *,
        most_bytes: int = MOST_BYTES,
        patience: float = PATIENCE,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._hint = hint
        self._draining = draining
        self._most = most_bytes
        self._patience = patience
        self._monotonic = monotonic
        self._followed: dict[tuple[UUID, bool], _Followed] = {}
        # Cut off, and not gone yet: in a write to somebody who reads nothing.
        self._stuck: set[_Watcher] = set()
        self._room = asyncio.Event()

    @property
    def watchers(self) -> int:
        """How many take from a tail here."""
        return sum(len(each.watchers) for each in self._followed.values())

    async def __call__(
        self, actor: Actor, run_id: UUID, position: Position, *, output: bool
    ) -> AsyncGenerator[News, None]:
        """Yield where the run stands, and then everything new until its end.

        Raises:
            NotFound: there is no such run, or none that the caller may know of.
            ResourceExhausted: OVERLOADED, the caller takes too slowly.
            Unavailable: the server stops.
        """
        if not output:
            position = Position(position.event)
        version: Version | None = None
        joined: tuple[_Followed, _Watcher] | None = None
        while joined is None:
            (found,) = await self._read([Seen(run_id, position, version, output)])
            require_visible(actor, None if found is None else found.run, "run", run_id)
            if found is None:
                raise AssertionError("what is visible is there")
            for news in found.news:
                _, position = beyond(news, position)
                version = news.version if isinstance(news, Moved) else version
                yield news
                if isinstance(news, Over):
                    return
            if self._draining.is_set():
                raise draining_error()
            if not found.more:
                if version is not None:
                    # All that had happened by then is known, whatever numbers were used.
                    position = replace(position, event=max(position.event, version[0]))
                joined = await self._join(run_id, position, version, output=output)
        followed, watcher = joined
        try:
            async with contextlib.aclosing(self._live(followed.tail, watcher)) as told:
                async for news in told:
                    fresh, position = beyond(news, position)
                    if isinstance(news, Moved):
                        if not is_newer(news.version, version):
                            continue
                        version = news.version
                    if fresh is not None:
                        yield fresh
        finally:
            self._leave(followed, watcher)

    async def _live(self, tail: Tail, watcher: _Watcher) -> AsyncGenerator[News, None]:
        while True:
            watcher.news.clear()
            was_full = tail.half_full
            while not watcher.place.cut and (news := tail.take(watcher.place)) is not None:
                if was_full and not tail.half_full:
                    self._room.set()
                was_full = tail.half_full
                yield news
                if isinstance(news, Over):
                    return
            if watcher.place.cut:
                raise ResourceExhausted(
                    "OVERLOADED",
                    "this reader is too slow; go on from what was received last",
                    retry_after=1.0,
                )
            await _first_of(watcher.news.wait(), self._draining.wait())
            if self._draining.is_set():
                raise draining_error()

    async def wait(self, timeout: float) -> bool:
        """Wait for a reason to read on, at most so many seconds."""
        await _first_of(self._hint.wait(timeout), self._room.wait())
        return True

    async def step(self) -> float | None:
        """Read what is new of every run that is followed; 0 when there is more at once."""
        self._room.clear()
        self._end_the_stuck()
        wanted = [each for each in self._followed.values() if self._has_room(each)]
        if not wanted:
            return None
        seen = [
            Seen(each.run_id, each.tail.head, each.tail.version, each.output) for each in wanted
        ]
        more = False
        for followed, found in zip(wanted, await self._read(seen), strict=True):
            if found is None:
                # Retention has removed it under its watchers.
                continue
            followed.tail.put(found.news)
            more = more or found.more
            for watcher in followed.watchers:
                watcher.news.set()
        return 0.0 if more else None

    def _has_room(self, followed: _Followed) -> bool:
        """Wait for the slow, for a while; then go on without them."""
        tail, now = followed.tail, self._monotonic()
        if not tail.half_full:
            followed.full_since = None
        elif tail.full and followed.full_since is None:
            followed.full_since = now
        if followed.full_since is not None and now - followed.full_since >= self._patience:
            followed.full_since = None
            slow = tail.cut()
            for watcher in [each for each in followed.watchers if each.place in slow]:
                followed.watchers.discard(watcher)
                watcher.cut_at = now
                watcher.news.set()
                self._stuck.add(watcher)
        return not tail.full and not tail.over

    def _end_the_stuck(self) -> None:
        """End the calls of those who do not even take the word that they are cut off."""
        for watcher in list(self._stuck):
            if self._monotonic() - watcher.cut_at >= self._patience:
                self._stuck.discard(watcher)
                watcher.task.cancel()

    async def _join(
        self, run_id: UUID, position: Position, version: Version | None, *, output: bool
    ) -> tuple[_Followed, _Watcher] | None:
        key = (run_id, output)
        if key not in self._followed:
            begin = await self._begin(run_id, position, version, output=output)
            if key not in self._followed:
                tail = Tail(begin, self._most, version)
                self._followed[key] = _Followed(run_id, output, tail)
        followed = self._followed[key]
        place = followed.tail.join(position)
        if place is None:
            return None
        task = asyncio.current_task()
        if task is None:
            raise AssertionError("a watcher runs in a task")
        watcher = _Watcher(place, task)
        followed.watchers.add(watcher)
        return followed, watcher

    async def _begin(
        self, run_id: UUID, position: Position, version: Version | None, *, output: bool
    ) -> Position:
        """Say where a tail begins: where its first watcher is, but never beyond what there is."""
        event = min(position.event, 0 if version is None else version[0])
        ends = await self._read.ends(run_id) if output else {}
        return Position(
            event,
            min(position.stdout, ends.get(LogStream.STDOUT, 0)),
            min(position.stderr, ends.get(LogStream.STDERR, 0)),
        )

    def _leave(self, followed: _Followed, watcher: _Watcher) -> None:
        self._stuck.discard(watcher)
        followed.watchers.discard(watcher)
        followed.tail.leave(watcher.place)
        key = (followed.run_id, followed.output)
        if not followed.watchers and self._followed.get(key) is followed:
            del self._followed[key]


async def _first_of(*waits: Awaitable[object]) -> None:
    tasks = [asyncio.ensure_future(each) for each in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
