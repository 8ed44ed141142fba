"""A database server that goes away without a word: it falls silent, or becomes a standby."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from reveille_runtime.config import DatabaseSettings
from reveille_runtime.db import Database, Tx, retrying_statement
from reveille_runtime.hints import Hearing, HintBus
from reveille_runtime.queries import Query
from reveille_testkit.database import TestDatabase

INSERT = Query("insert_item", "INSERT INTO items (id) VALUES ($1)", "For a test.")
TABLE = "CREATE TABLE items (id int PRIMARY KEY);"
LIMIT = 10.0


class Way:
    """A port that leads to the database, until whoever came through it hears no more."""

    def __init__(self, settings: DatabaseSettings) -> None:
        self._parts = urlsplit(settings.url)
        self._tasks: set[asyncio.Task[None]] = set()
        self._cut: set[asyncio.Task[None]] = set()
        self.url = ""
        self.lost = asyncio.Event()

    def cut(self) -> None:
        """Let no byte through any more, and close nothing; who comes next is let through."""
        self._cut |= self._tasks

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        netloc = f"{self._parts.username}@127.0.0.1:{port}"
        self.url = self._parts._replace(netloc=netloc).geturl()
        try:
            yield
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._parts.port)
        for source, sink in ((reader, back), (there, writer)):
            self._tasks.add(asyncio.create_task(self._pump(source, sink)))

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                if asyncio.current_task() in self._cut:
                    self.lost.set()
                else:
                    sink.write(data)
        finally:
            sink.close()


@asynccontextmanager
async def about_to_fall_silent(scratch: TestDatabase) -> AsyncIterator[tuple[Way, Database]]:
    """Have the only connection of a pool lead through a way that can be cut."""
    settings = scratch.settings("scratch", pool_max=1)
    way = Way(settings)
    async with way.open():
        changes = {"url": way.url, "command_timeout": 0.2}
        async with Database(settings.model_copy(update=changes)) as database:
            await database.now()
            yield way, database


async def test_a_server_that_falls_silent_is_given_up(scratch: TestDatabase) -> None:
    async with about_to_fall_silent(scratch) as (way, database):
        way.cut()
        asked = asyncio.create_task(database.now())
        await asyncio.wait({asked}, timeout=LIMIT)

        assert asked.done()
        assert isinstance(asked.exception(), TimeoutError)
        async with asyncio.timeout(LIMIT):
            await database.now()


async def test_a_statement_that_is_given_up_costs_no_connection(scratch: TestDatabase) -> None:
    """Its caller's time was over: the pool must not wait for the silent server in its place."""
    async with about_to_fall_silent(scratch) as (way, database):
        way.cut()
        asked = asyncio.create_task(database.now())
        await way.lost.wait()
        asked.cancel()
        await asyncio.wait({asked}, timeout=LIMIT)

        assert asked.done()
        async with asyncio.timeout(LIMIT):
            await database.now()


async def test_a_listener_leaves_a_server_that_falls_silent_while_it_is_asked_to_listen(
    scratch: TestDatabase,
) -> None:
    database = await scratch.open("scratch")
    settings = scratch.settings("scratch")
    way = Way(settings)
    async with way.open(), asyncio.timeout(LIMIT):
        listening = settings.model_copy(update={"url": way.url})
        bus = HintBus(listening, database, probe_interval=LIMIT, probe_timeout=0.5)
        running = asyncio.create_task(bus.run())
        await bus.until(Hearing.HEARS)
        way.cut()

        bus.event("scratch.news")

        await bus.until(Hearing.DEAF)
        await bus.until(Hearing.HEARS)
        await bus.stop()
        await running


async def test_a_server_that_became_a_standby_is_left(scratch: TestDatabase) -> None:
    """A failover may break no connection; then only new ones lead to the server that writes."""
    await scratch.ddl("scratch", TABLE)
    admin = await scratch.admin()
    await admin.execute(f"ALTER DATABASE {scratch.name} SET default_transaction_read_only = on")
    database = await scratch.open("scratch", pool_max=1)
    await admin.execute(f"ALTER DATABASE {scratch.name} RESET default_transaction_read_only")
    tries = 0

    async def insert(tx: Tx) -> int:
        nonlocal tries
        tries += 1
        return await tx.execute(INSERT, 1)

    assert await retrying_statement(database, insert) == 1
    assert tries == 2
