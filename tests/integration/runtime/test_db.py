"""The database wrapper over a real server: values, errors, repeats, the clock, and outages."""

from __future__ import annotations

import asyncio
import logging
import socket
from datetime import timedelta

import asyncpg
import pytest
from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode, Tracer

from reveille_runtime import db_telemetry
from reveille_runtime.config import DatabaseSettings
from reveille_runtime.db import (
    Database,
    Tx,
    constraint_name,
    is_transient,
    retrying_statement,
    retrying_transaction,
)
from reveille_runtime.queries import Query
from reveille_testkit.database import TestDatabase


def query(name: str, sql: str) -> Query:
    return Query(name, sql, "For a test.")


INSERT = query("insert_item", "INSERT INTO items (id, body) VALUES ($1, $2)")
READ = query("read_item", "SELECT id, body FROM items WHERE id = $1")
COUNT = query("count_items", "SELECT count(*) FROM items")
TOUCH = query("touch_items", "UPDATE items SET touched = touched + 1 WHERE id = ANY($1::int[])")
TABLE = """
CREATE TABLE items (
    id int PRIMARY KEY CHECK (id >= 0),
    body jsonb,
    touched int NOT NULL DEFAULT 0,
    CONSTRAINT items_body_is_object CHECK (jsonb_typeof(body) = 'object')
);
"""


@pytest.fixture
async def items(scratch: TestDatabase) -> Database:
    await scratch.ddl("scratch", TABLE)
    return await scratch.open("scratch")


async def test_rows_and_json_come_and_go_as_values(items: Database) -> None:
    body = {"text": "ä \u2028", "list": [1, 2.5, None], "deep": {"yes": True}}

    async with items.transaction() as tx:
        assert await tx.execute(INSERT, 1, body) == 1
        row = await tx.fetchrow(READ, 1)
        assert row is not None
        assert row["body"] == body
        assert await tx.fetchrow(READ, 2) is None
        assert [one["id"] for one in await tx.fetch(READ, 1)] == [1]
        assert await tx.fetchval(COUNT) == 1

    async with items.session() as tx:
        assert await tx.execute(INSERT, 2, {}) == 1
        assert await tx.execute(TOUCH, [1, 2, 3]) == 2
        assert await tx.execute(query("prepare_nothing", "SET LOCAL work_mem = '4MB'")) == 0


async def test_json_batches_travel_as_arrays_of_objects_or_as_one_value(items: Database) -> None:
    unnest = query("unnest", "SELECT x FROM unnest($1::jsonb[]) x")
    recordset = query("recordset", "SELECT a FROM jsonb_to_recordset($1) AS r (a int)")
    async with items.session() as tx:
        assert [r["x"] for r in await tx.fetch(unnest, [{"a": 1}, None])] == [{"a": 1}, None]
        assert [r["a"] for r in await tx.fetch(recordset, [{"a": 1}, {"a": 2}])] == [1, 2]
        with pytest.raises(asyncpg.DataError):
            await tx.fetch(recordset, [{"a": float("nan")}])


async def test_an_error_rolls_back(items: Database) -> None:
    async with items.transaction() as tx:
        await tx.execute(INSERT, 1, {})

    async def write(*bodies: object) -> None:
        async with items.transaction() as tx:
            for number, body in enumerate(bodies, start=2):
                await tx.execute(INSERT, number, body)
            raise RuntimeError("changed my mind")

    with pytest.raises(asyncpg.CheckViolationError) as refused:
        await write({}, [])
    with pytest.raises(RuntimeError, match="changed my mind"):
        await write({})

    assert constraint_name(refused.value) == "items_body_is_object"
    async with items.session() as tx:
        assert await tx.fetchval(COUNT) == 1


async def test_a_read_only_transaction_writes_nothing(items: Database) -> None:
    with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
        async with items.transaction(readonly=True) as tx:
            await tx.execute(INSERT, 1, {})


async def test_connections_are_given_back_as_they_were(items: Database) -> None:
    """The pool resets nothing, so nothing may be left: no transaction, no setting."""
    settings = query("settings", "SELECT current_setting('search_path')")
    async with items.transaction() as tx:
        await tx.execute(query("narrow", "SET LOCAL search_path = pg_catalog"))
    async with items.session() as tx:
        assert await tx.fetchval(settings) == "scratch"
        assert not tx.raw.is_in_transaction()
        assert await tx.fetchval(query("name", "SELECT current_setting('application_name')")) == (
            "test-scratch"
        )


async def test_deadlocks_are_repeated(scratch: TestDatabase, items: Database) -> None:
    async with items.transaction() as tx:
        await tx.execute(INSERT, 1, {})
        await tx.execute(INSERT, 2, {})
    both_hold_one = asyncio.Barrier(2)
    tries: list[int] = []

    def in_order(first: int, second: int) -> asyncio.Task[None]:
        attempt = 0

        async def touch(tx: Tx) -> None:
            nonlocal attempt
            attempt += 1
            tries.append(first)
            await tx.execute(TOUCH, [first])
            if attempt == 1:
                await both_hold_one.wait()
            await tx.execute(TOUCH, [second])

        return asyncio.create_task(retrying_transaction(items, touch))

    await asyncio.gather(in_order(1, 2), in_order(2, 1))

    async with items.session() as tx:
        assert await tx.fetchval(query("sum", "SELECT sum(touched) FROM items")) == 4
    assert len(tries) == 3


async def test_serialization_failures_are_repeated(items: Database) -> None:
    async with items.transaction() as tx:
        await tx.execute(INSERT, 1, {})
    attempts = 0

    async def read_then_write(tx: Tx) -> int:
        nonlocal attempts
        attempts += 1
        await tx.fetchval(COUNT)
        if attempts == 1:
            async with items.session() as other:
                await other.execute(TOUCH, [1])
        return await tx.execute(TOUCH, [1])

    assert await retrying_transaction(items, read_then_write, isolation="repeatable_read") == 1
    assert attempts == 2


async def test_bad_data_is_not_repeated(items: Database) -> None:
    attempts = 0

    async def violate(tx: Tx) -> None:
        nonlocal attempts
        attempts += 1
        await tx.execute(INSERT, -1, {})

    with pytest.raises(asyncpg.CheckViolationError):
        await retrying_transaction(items, violate, repeatable=True)
    assert attempts == 1


@pytest.mark.parametrize("what", ["transaction", "repeatable", "statement"])
async def test_a_lost_connection_is_repeated_where_that_is_declared_safe(
    scratch: TestDatabase, items: Database, what: str
) -> None:
    admin = await scratch.admin()
    attempts = 0

    async def lose_the_first(tx: Tx) -> int:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            await admin.execute("SELECT pg_terminate_backend($1, 5000)", tx.raw.get_server_pid())
        return await tx.execute(INSERT, 1, {})

    if what == "repeatable":
        assert await retrying_transaction(items, lose_the_first, repeatable=True) == 1
        assert attempts == 2
    elif what == "statement":
        assert await retrying_statement(items, lose_the_first) == 1
        assert attempts == 2
    else:
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)) as lost:
            await retrying_transaction(items, lose_the_first)
        assert is_transient(lost.value)
        assert attempts == 1


async def test_a_full_pool_is_a_passing_trouble(scratch: TestDatabase) -> None:
    settings = scratch.settings("scratch", pool_max=1).model_copy(update={"acquire_timeout": 0.05})
    async with Database(settings) as narrow, narrow.session():
        with pytest.raises(TimeoutError) as full:
            async with narrow.session():
                pytest.fail("there was only one")

    assert is_transient(full.value)


async def test_closing_does_not_wait_for_ever(
    scratch: TestDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reveille_runtime.db._CLOSE_SECONDS", 0.05)
    database = await scratch.open("scratch")

    async def close_while_in_use() -> None:
        async with database.session() as held:
            await database.close()
            await held.fetchval(COUNT)

    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError)):
        await close_while_in_use()


async def test_the_clock_moves_on_every_connection(scratch: TestDatabase) -> None:
    database = await scratch.open("scratch")
    before = await database.now()
    async with database.session() as held:
        database.move_clock(3600)
        # The one that is in use keeps its time until it is taken the next time.
        assert await held.fetchval(query("clock", "SELECT clock()")) - before < timedelta(hours=1)
        assert await database.now() - before >= timedelta(hours=1)
    assert await database.now() - before >= timedelta(hours=1)

    scratch.move_clock(-7200)

    assert await database.now() - before < timedelta(0)
    later = await scratch.open("scratch")
    assert before - timedelta(hours=2, minutes=1) < await later.now() < before


async def test_a_clock_can_be_set_from_the_start(scratch: TestDatabase) -> None:
    plain = scratch.settings("scratch")
    async with (
        Database(plain) as here,
        Database(plain.model_copy(update={"clock_offset": 86400.0})) as ahead,
    ):
        assert await ahead.now() - await here.now() > timedelta(hours=23)


async def test_without_a_statement_cache_nothing_is_prepared(scratch: TestDatabase) -> None:
    """Behind a pooler in transaction mode the next statement may reach another server."""
    await scratch.ddl("scratch", TABLE)
    prepared = query("prepared", "SELECT count(*) FROM pg_prepared_statements WHERE name <> ''")
    database = await scratch.open("scratch", statement_cache=0)
    async with database.session() as tx:
        assert await tx.execute(INSERT, 1, {"a": 1}) == 1
        assert await tx.fetchval(prepared) == 0
        assert not tx.raw.is_in_transaction()
    async with database.transaction() as tx:
        row = await tx.fetchrow(READ, 1)
        assert row is not None
        assert row["body"] == {"a": 1}


async def test_a_database_that_is_down_is_waited_for(
    scratch: TestDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    real = scratch.settings("scratch")
    database = Database(
        real.model_copy(
            update={"url": f"postgresql://reveille_scratch_app@127.0.0.1:{port}/{scratch.name}"}
        )
    )
    said = asyncio.Event()

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if getattr(record, "action", "") == "database.waiting":
                said.set()

    listener = Listener()
    logging.getLogger("reveille_runtime.db").addHandler(listener)
    connecting = asyncio.create_task(database.connect())
    try:
        async with asyncio.timeout(10):
            await said.wait()
        assert not database.ready.is_set()
        with pytest.raises(asyncpg.InterfaceError, match="not connected"):
            await database.now()

        # The database comes up: from now on the port leads to it.
        async with forward(port, real):
            async with asyncio.timeout(20):
                await connecting
            assert database.ready.is_set()
            await database.now()
            await database.close()
            await database.close()
    finally:
        logging.getLogger("reveille_runtime.db").removeHandler(listener)
        connecting.cancel()

    assert "the database does not answer yet, waiting: ConnectionRefusedError" in caplog.text


class forward:  # noqa: N801 - reads as the verb it is
    """Let a port of ours lead to the database."""

    def __init__(self, port: int, settings: DatabaseSettings) -> None:
        self._port = port
        self._target = int(settings.url.rsplit(":", 1)[1].split("/")[0])
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await asyncio.gather(*self._tasks)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        for source, sink in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._pump(source, sink))
            self._tasks.add(task)

    @staticmethod
    async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
        sink.close()
        await sink.wait_closed()


class Recorded:
    """Telemetry that keeps what it is given."""

    enabled = True

    def __init__(self) -> None:
        self.spans = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.spans))
        self.tracer: Tracer = provider.get_tracer("test")
        self.reader = InMemoryMetricReader()
        self.meter: Meter = MeterProvider([self.reader]).get_meter("test")

    def durations(self) -> dict[str, int]:
        found: dict[str, int] = {}
        data = self.reader.get_metrics_data()
        assert data is not None
        for resource in data.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    if metric.name == "db.client.operation.duration":
                        for point in metric.data.data_points:
                            assert point.attributes is not None
                            name = str(point.attributes["db.query.summary"])
                            found[name] = found.get(name, 0) + getattr(point, "count")  # noqa: B009 - a union in the SDK
        return found


async def test_queries_are_counted_and_only_the_remarkable_ones_are_spans(
    scratch: TestDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scratch.ddl("scratch", TABLE)
    telemetry = Recorded()
    database = await scratch.open("scratch", telemetry)

    with telemetry.tracer.start_as_current_span("request"):
        async with database.session() as tx:
            monkeypatch.setattr(db_telemetry, "_SLOW_NS", 10**18)
            await tx.execute(INSERT, 1, {})
            with pytest.raises(asyncpg.UniqueViolationError):
                await tx.execute(INSERT, 1, {})
            monkeypatch.setattr(db_telemetry, "_SLOW_NS", 0)
            await tx.fetchval(COUNT)

    failed, slow, request = telemetry.spans.get_finished_spans()
    assert [failed.name, slow.name] == ["insert_item", "count_items"]
    assert failed.parent == slow.parent == request.context
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.attributes is not None
    assert failed.attributes["db.response.status_code"] == "23505"
    assert failed.attributes["db.query.text"] == INSERT.sql
    assert slow.status.status_code is StatusCode.UNSET
    assert telemetry.durations() == {"insert_item": 2, "count_items": 1}


async def test_a_query_outside_any_trace_begins_none(
    scratch: TestDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    telemetry = Recorded()
    database = await scratch.open("scratch", telemetry)
    monkeypatch.setattr(db_telemetry, "_SLOW_NS", 0)

    await database.now()

    assert telemetry.spans.get_finished_spans() == ()
    assert telemetry.durations() == {"database_now": 1}
