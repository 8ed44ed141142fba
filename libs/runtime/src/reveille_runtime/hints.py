"""Hints: "look now", over NOTIFY. Losing every one costs latency only, since loops poll too.

Channels are shared by a whole database, so a channel's name begins with its schema
(`autopilot.feed`). A listener that hears nothing looks the same as one with nothing to hear;
therefore it sends itself a probe from another connection, and connects anew when it is deaf.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import asyncpg

from reveille_runtime import logs
from reveille_runtime.backoff import Backoff
from reveille_runtime.lifecycle import TaskScope
from reveille_runtime.queries import load_queries
from reveille_runtime.sqlstate import is_transient

if TYPE_CHECKING:
    from reveille_runtime.config import DatabaseSettings
    from reveille_runtime.db import Database

    Connection = asyncpg.Connection[asyncpg.Record]

Q = load_queries("reveille_runtime", "hints.sql")
_log = logs.get_logger(__name__)
_RECONNECT = Backoff(first=0.1, longest=30.0)


class HearingLost(Exception):
    """The listening connection broke, or a probe did not come back."""


class Hearing(StrEnum):
    """How a listener is doing, for `reveille status`."""

    OFF = "off"
    DEAF = "deaf"
    HEARS = "hears"


class Hint:
    """One waiter's view of a channel: news since the last wait, however often it was told."""

    def __init__(self) -> None:
        self._news = asyncio.Event()

    def set(self) -> None:
        """Wake the waiter, now or at its next wait."""
        self._news.set()

    async def wait(self, timeout: float) -> bool:
        """Wait for a hint, at most `timeout` seconds; tell whether there was one."""
        try:
            async with asyncio.timeout(timeout):
                await self._news.wait()
        except TimeoutError:
            return False
        # Cleared before the caller reads its tables: what comes while it reads wakes it again.
        self._news.clear()
        return True


class HintBus:
    """The process' one LISTEN connection; a component with `run` and `stop`.

    `settings` is where to listen: behind a pooler in transaction mode, the server itself. `db` is
    where probes are sent from. With `enabled=False` nothing listens and hints never come.
    """

    def __init__(
        self,
        settings: DatabaseSettings,
        db: Database,
        *,
        enabled: bool = True,
        probe_interval: float = 10.0,
        probe_timeout: float = 5.0,
    ) -> None:
        self.name = "hints"
        self.hearing = Hearing.DEAF if enabled else Hearing.OFF
        self._settings = settings
        self._db = db
        self._enabled = enabled
        self._probe_interval = probe_interval
        self._probe_timeout = probe_timeout
        self._probe_channel = f"reveille.probe.{secrets.token_hex(8)}"
        # Held weakly: a stream that ends takes its hint with it.
        self._hints: dict[str, WeakSet[Hint]] = {}
        self._probe_heard = asyncio.Event()
        self._changed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._state_changed = asyncio.Condition()

    def event(self, *channels: str) -> Hint:
        """Subscribe to channels for as long as the hint is kept; each waiter takes its own."""
        hint = Hint()
        for channel in channels:
            self._hints.setdefault(channel, WeakSet()).add(hint)
        self._changed.set()
        return hint

    async def until(self, hearing: Hearing) -> None:
        """Wait until the listener is in that state."""
        async with self._state_changed:
            await self._state_changed.wait_for(lambda: self.hearing is hearing)

    async def stop(self) -> None:
        """Stop listening; safe at any time, more than once."""
        self._stopping.set()

    async def run(self) -> None:
        """Listen until stopped, connecting anew whenever hearing is lost."""
        failures = 0
        while self._enabled and not self._stopping.is_set():
            try:
                async with self._connected() as (connection, broken):
                    await self._listen(connection, broken)
            except Exception as error:  # noqa: BLE001 (the loops poll meanwhile, whatever it was)
                # A connection that has heard its probes was good: begin the backoff anew.
                failures = 1 if self.hearing is Hearing.HEARS else failures + 1
                await self._now(Hearing.DEAF, f"{type(error).__name__}: {error}")
                await self._first_of(self._stopping, timeout=_RECONNECT.delay(failures, self.name))
        await self._first_of(self._stopping, timeout=None)

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[tuple[Connection, asyncio.Event]]:
        settings = self._settings
        connection = await asyncpg.connect(
            settings.url,
            password=settings.password if settings.password_file is not None else None,
            timeout=self._probe_timeout,
            # A server that falls silent under a LISTEN would be waited for as long as TCP does.
            command_timeout=self._probe_timeout,
            server_settings={"application_name": f"{settings.application_name}-hints"},
        )
        broken = asyncio.Event()
        connection.add_termination_listener(lambda _: broken.set())
        try:
            yield connection, broken
        finally:
            # No farewell: the other side may be gone, and nothing is lost.
            connection.terminate()

    async def _listen(self, connection: Connection, broken: asyncio.Event) -> None:
        await connection.add_listener(self._probe_channel, self._heard)
        listening: set[str] = set()
        self._changed.set()
        while not self._stopping.is_set():
            if self._changed.is_set():
                self._changed.clear()
                for channel in sorted(self._hints.keys() - listening):
                    await connection.add_listener(channel, self._heard)
                    listening.add(channel)
                    # What was told before we listened is only in the tables.
                    self._tell(channel)
            await self._probe(broken)
            await self._first_of(
                self._stopping, self._changed, broken, timeout=self._probe_interval
            )

    async def _probe(self, broken: asyncio.Event) -> None:
        self._probe_heard.clear()
        try:
            async with asyncio.timeout(self._probe_timeout), self._db.session() as tx:
                await tx.fetch(Q["hint_notify"], [self._probe_channel])
        except TimeoutError:
            raise HearingLost("the probe could not be sent") from None
        await self._first_of(self._probe_heard, broken, self._stopping, timeout=self._probe_timeout)
        if self._probe_heard.is_set() and not broken.is_set():
            await self._now(Hearing.HEARS, "")
        elif not self._stopping.is_set():
            raise HearingLost("the connection broke" if broken.is_set() else "no probe came back")

    def _heard(self, _connection: object, _pid: int, channel: str, _payload: object) -> None:
        if channel == self._probe_channel:
            self._probe_heard.set()
        else:
            self._tell(channel)

    def _tell(self, channel: str) -> None:
        for hint in tuple(self._hints.get(channel, ())):
            hint.set()

    async def _now(self, hearing: Hearing, why: str) -> None:
        if hearing is not self.hearing:
            if hearing is Hearing.DEAF:
                _log.warning("Hints are not heard; polling.", action="hints.deaf", cause=why)
            else:
                _log.info("Hints are heard.", action="hints.hears")
        async with self._state_changed:
            self.hearing = hearing
            self._state_changed.notify_all()

    @staticmethod
    async def _first_of(*events: asyncio.Event, timeout: float | None) -> None:
        """Wait for any of the events, at most so long."""
        with _waits(*events) as waits:
            await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)


@contextlib.contextmanager
def _waits(*events: asyncio.Event) -> Iterator[set[asyncio.Task[Any]]]:
    waits: set[asyncio.Task[Any]] = {asyncio.ensure_future(event.wait()) for event in events}
    try:
        yield waits
    finally:
        for wait in waits:
            wait.cancel()


class Notifier:
    """Sends hints, each channel at most once per `pause` seconds, outside any transaction.

    Call `notify` after the commit: a NOTIFY inside a hot transaction makes all commits of the
    server queue up.
    """

    def __init__(self, db: Database, *, enabled: bool = True, pause: float = 0.05) -> None:
        self._db = db
        self._enabled = enabled
        self._pause = pause
        self._due: set[str] = set()
        self._sending = False
        self._tasks = TaskScope("notifier")

    def notify(self, *channels: str) -> None:
        """Tell the listeners of these channels to look; returns at once and never fails."""
        if not self._enabled:
            return
        self._due.update(channels)
        if self._due and not self._sending:
            self._sending = True
            self._tasks.spawn(self._send())

    async def close(self) -> None:
        """Stop sending; what is not sent costs latency only."""
        await self._tasks.close()

    async def _send(self) -> None:
        try:
            while self._due:
                channels = sorted(self._due)
                self._due.clear()
                await self._send_once(channels)
                await asyncio.sleep(self._pause)
        finally:
            self._sending = False

    async def _send_once(self, channels: list[str]) -> None:
        try:
            async with self._db.session() as tx:
                await tx.fetch(Q["hint_notify"], channels)
        except Exception as error:
            if not is_transient(error):
                raise
            _log.debug("Hints were not sent.", action="hints.not_sent", channels=channels)
