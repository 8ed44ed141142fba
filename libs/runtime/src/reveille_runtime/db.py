"""The database as a service sees it: a pool, transactions, named queries, the database's clock.

Nothing here leaves state in a session, so the pool needs no reset between uses and works behind a
pooler in transaction mode (with a statement cache of 0).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from typing import Any, Literal, TypeVar

import asyncpg

from reveille_runtime.config import DatabaseSettings
from reveille_runtime.db_telemetry import DbTelemetry, QueryObserver
from reveille_runtime.queries import Query, load_queries
from reveille_runtime.sqlstate import (
    constraint_name,
    is_bad_data,
    is_conflict,
    is_transient,
    sqlstate,
)

__all__ = [
    "Database",
    "Tx",
    "constraint_name",
    "is_bad_data",
    "is_conflict",
    "is_transient",
    "retrying_statement",
    "retrying_transaction",
    "sqlstate",
]

T = TypeVar("T")
Isolation = Literal["read_committed", "repeatable_read", "serializable"]
_log = logging.getLogger(__name__)
_Q = load_queries("reveille_runtime", "db.sql")
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
_ATTEMPTS = 6
# Whoever still holds a connection by then was asked to end, and cancelled, before.
_CLOSE_SECONDS = 2.0


class Tx:
    """A connection held for one unit of work; takes named queries only."""

    __slots__ = ("_observer", "_wrap", "raw")

    def __init__(
        self,
        raw: asyncpg.pool.PoolConnectionProxy[asyncpg.Record],
        observer: QueryObserver | None,
        *,
        wrap: bool = False,
    ) -> None:
        self.raw = raw
        self._observer = observer
        # Without a statement cache a pooler may move us to another server between parse and
        # execute, so an autocommit statement then gets a transaction of its own.
        self._wrap = wrap

    async def fetch(self, query: Query, *args: object) -> list[asyncpg.Record]:
        """Run a query and give all its rows."""
        return await self._run(query, self.raw.fetch, args)

    async def fetchrow(self, query: Query, *args: object) -> asyncpg.Record | None:
        """Run a query and give its first row, if it has one."""
        return await self._run(query, self.raw.fetchrow, args)

    async def fetchval(self, query: Query, *args: object) -> Any:
        """Run a query and give the first column of its first row."""
        return await self._run(query, self.raw.fetchval, args)

    async def execute(self, query: Query, *args: object) -> int:
        """Run a statement and give the number of rows it touched."""
        status = await self._run(query, self.raw.execute, args)
        count = status.rpartition(" ")[2]
        return int(count) if count.isdigit() else 0

    async def _run(
        self, query: Query, call: Callable[..., Awaitable[T]], args: tuple[object, ...]
    ) -> T:
        if self._wrap:
            async with self.raw.transaction():
                return await self._observed(query, call, args)
        return await self._observed(query, call, args)

    async def _observed(
        self, query: Query, call: Callable[..., Awaitable[T]], args: tuple[object, ...]
    ) -> T:
        if self._observer is None:
            return await call(query.sql, *args)
        started = time.time_ns()
        try:
            result = await call(query.sql, *args)
        except Exception as error:
            self._observer.failed(query, started, error)
            raise
        self._observer.succeeded(query, started)
        return result


class Database:
    """One role's pool on one database. `open` waits until it answers; `ready` says that it did."""

    def __init__(self, settings: DatabaseSettings, telemetry: DbTelemetry | None = None) -> None:
        self.settings = settings
        self.ready = asyncio.Event()
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._observer = QueryObserver.create(settings, telemetry)
        self._clock_offset = settings.clock_offset
        # Which offset a physical connection has; empty unless a test moves the clock.
        self._offsets: dict[int, float] = {}

    @classmethod
    async def open(
        cls, settings: DatabaseSettings, telemetry: DbTelemetry | None = None
    ) -> Database:
        """Connect, however long it takes."""
        database = cls(settings, telemetry)
        await database.connect()
        return database

    async def connect(self) -> None:
        """Wait for the database, saying so; every start of a service goes through here."""
        pause = _FIRST_PAUSE
        while self._pool is None:
            try:
                self._pool = await self._create_pool()
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                _log.warning(
                    "the database does not answer yet, waiting: %s",
                    describe(error),
                    extra={"action": "database.waiting", "database": self.settings.url},
                )
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
        self.ready.set()

    async def close(self) -> None:
        """Give all connections back; safe to call twice, or before `connect`."""
        pool, self._pool = self._pool, None
        self.ready.clear()
        if pool is not None:
            try:
                await asyncio.wait_for(pool.close(), _CLOSE_SECONDS)
            except TimeoutError:
                # Somebody still holds a connection; a stop must end all the same.
                _log.warning("closing connections in use", extra={"action": "database.terminated"})
                pool.terminate()

    async def __aenter__(self) -> Database:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @contextlib.asynccontextmanager
    async def transaction(
        self, *, isolation: Isolation = "read_committed", readonly: bool = False
    ) -> AsyncIterator[Tx]:
        """Hold a connection for one transaction: committed at the end, rolled back by an error."""
        async with (
            self._acquire() as connection,
            connection.transaction(isolation=isolation, readonly=readonly),
        ):
            yield Tx(connection, self._observer)

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncIterator[Tx]:
        """Hold a connection on which each statement commits by itself."""
        async with self._acquire() as connection:
            yield Tx(connection, self._observer, wrap=self.settings.statement_cache == 0)

    async def now(self) -> datetime:
        """Read the clock that predicates use."""
        async with self.session() as tx:
            moment: datetime = await tx.fetchval(_Q["database_now"])
            return moment

    def move_clock(self, seconds: float) -> None:
        """Shift our view of the database clock; each connection follows at its next use."""
        self._clock_offset += seconds

    @contextlib.asynccontextmanager
    async def _acquire(self) -> AsyncIterator[asyncpg.pool.PoolConnectionProxy[asyncpg.Record]]:
        pool = self._pool
        if pool is None:
            raise asyncpg.InterfaceError("the database is not connected")
        asked = time.time_ns()
        # What is there at once needs no timer.
        timeout = None if pool.get_idle_size() else self.settings.acquire_timeout
        async with pool.acquire(timeout=timeout) as connection:
            if self._observer is not None:
                self._observer.waited(asked)
            if self._clock_offset or self._offsets:
                await self._apply_clock(connection)
            try:
                yield connection
            except asyncpg.ReadOnlySQLTransactionError:
                # A failover that broke no connection: only new ones find the server that writes.
                await pool.expire_connections()
                raise

    async def _apply_clock(
        self, connection: asyncpg.pool.PoolConnectionProxy[asyncpg.Record]
    ) -> None:
        server_process = connection.get_server_pid()
        if self._offsets.get(server_process, 0.0) != self._clock_offset:
            await connection.execute(
                "SELECT set_config('reveille.clock_offset', $1, false)",
                f"{self._clock_offset} seconds",
            )
            self._offsets[server_process] = self._clock_offset

    async def _prepare(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        self._offsets.pop(connection.get_server_pid(), None)
        await use_json(connection)
        # What arrays are made of is asked for once; left alone, each statement that is the first
        # with another kind of array would ask.
        query = _Q["array_types"].sql
        await connection.fetchrow(query, *[None] * query.count("$"))

    async def _create_pool(self) -> asyncpg.Pool[asyncpg.Record]:
        settings = self.settings
        return await asyncpg.create_pool(
            settings.url,
            password=settings.password,
            min_size=1,
            max_size=settings.pool_max,
            statement_cache_size=settings.statement_cache,
            # Nobody else ends the wait for a host that vanished: its own limits went with it.
            command_timeout=settings.command_timeout,
            server_settings={"application_name": settings.application_name},
            init=self._prepare,
            reset=_leave_as_is,
        )


async def use_json(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """Make jsonb come and go as Python values, on a connection of any pool."""
    # One transaction: the type lookup must not be split over two servers by a pooler.
    async with connection.transaction():
        await connection.set_type_codec(
            "jsonb", schema="pg_catalog", encoder=_to_json, decoder=_from_json
        )


# Made once: `json.dumps` with settings of its own makes an encoder for every value.
_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
_decode = json.JSONDecoder().decode


def _from_json(text: str) -> Any:
    # Most of what hot paths read is empty.
    return {} if text == "{}" else _decode(text)


async def _leave_as_is(_: asyncpg.Connection[asyncpg.Record]) -> None:
    """Our transactions end themselves and set nothing in the session: there is nothing to reset."""


def describe(error: BaseException) -> str:
    """Say what went wrong on the way to the database, on one line."""
    text = " ".join(str(error).split()) or "no answer in time"
    return f"{type(error).__name__}: {text}"


async def retrying_transaction(
    database: Database,
    fn: Callable[[Tx], Awaitable[T]],
    *,
    repeatable: bool = False,
    isolation: Isolation = "read_committed",
) -> T:
    """Run `fn` in a transaction, again after a deadlock or a serialization failure.

    Declare `repeatable` when running `fn` after a COMMIT of unknown outcome is harmless (ids come
    from the caller, writes are compare-and-set): then a lost connection is repeated too.
    """
    return await _retrying(
        lambda: database.transaction(isolation=isolation), fn, repeatable=repeatable
    )


async def retrying_statement(database: Database, fn: Callable[[Tx], Awaitable[T]]) -> T:
    """Run `fn`, whose one statement commits by itself, again as a repeatable transaction is."""
    return await _retrying(database.session, fn, repeatable=True)


async def _retrying(
    unit: Callable[[], contextlib.AbstractAsyncContextManager[Tx]],
    fn: Callable[[Tx], Awaitable[T]],
    *,
    repeatable: bool,
) -> T:
    pause = 0.01
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            async with unit() as tx:
                return await fn(tx)
        except Exception as error:
            again = is_conflict(error) or (repeatable and is_transient(error))
            if not again or attempt == _ATTEMPTS:
                raise
            _log.info(
                "repeating a transaction: %s",
                describe(error),
                extra={"action": "database.repeat", "attempt": attempt},
            )
        # Jitter keeps two transactions that met once from meeting again in the same order.
        await asyncio.sleep(pause * (0.5 + random.random()))  # noqa: S311 - not a secret
        pause = min(pause * 2, 1.0)
    raise AssertionError("unreachable: the last attempt returns or raises")
