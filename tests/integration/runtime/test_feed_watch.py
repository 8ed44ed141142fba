"""WatchEvents end to end: a producer's stream, and a consumer that survives gaps and restarts."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta
from importlib import resources
from typing import Any

import grpc
import pytest

from reveille.events.v1 import event_service_pb2 as pb
from reveille.events.v1 import event_service_pb2_grpc as pb_grpc
from reveille_runtime.backoff import Backoff
from reveille_runtime.db import Database
from reveille_runtime.errors import InvalidArgument, ResourceExhausted, Unavailable
from reveille_runtime.feed import (
    Cursor,
    CursorExpired,
    CursorStore,
    FeedConsumer,
    FeedEvent,
    FeedReader,
    append,
    begin_epoch,
    prune,
    serve_watch,
)
from reveille_runtime.feed import consumer as feed_consumer
from reveille_runtime.hints import Hint
from reveille_runtime.ids import new_id
from reveille_runtime.server import draining_error
from reveille_testkit.database import TestDatabase

Settled = Callable[..., Awaitable[None]]
DDL = "".join(
    resources.files("reveille_runtime.feed").joinpath(name).read_text()
    for name in ("feed_ddl.sql", "cursors_ddl.sql")
)


class Call:
    """A call's context, as far as streams look at it."""

    def __init__(self) -> None:
        self.ended = False

    def done(self) -> bool:
        return self.ended


@pytest.fixture
async def db(scratch: TestDatabase) -> Database:
    await scratch.ddl("scratch", DDL)
    opened = await scratch.open("scratch")
    await begin_epoch(opened)
    return opened


class Producer:
    """A feed, its hint, and streams from it."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.hints: list[Hint] = []
        self.streams = 0
        self.draining = asyncio.Event()

    async def write(self, *subjects: str, type_: str = "thing.done") -> None:
        async with self.db.transaction() as tx:
            await append(tx, [FeedEvent(type_, subject) for subject in subjects])
        self.hint()

    def hint(self) -> None:
        for hint in self.hints:
            hint.set()

    def watch(self, request: pb.WatchEventsRequest) -> AsyncIterator[pb.WatchEventsResponse]:
        self.streams += 1
        hint = Hint()
        self.hints.append(hint)
        return serve_watch(
            self.db,
            request,
            Call(),
            hint,
            draining=self.draining,
            poll_interval=50,
            bookmark_interval=0,
            page_size=3,
        )


@pytest.fixture
def producer(db: Database) -> Producer:
    return Producer(db)


class Consumer:
    """A consuming service: what it handled, how often it reconciled."""

    def __init__(self, producer: Producer, types: Sequence[str] = ()) -> None:
        self.handled: list[str] = []
        self.batches: list[int] = []
        self.reconciled = 0
        self.fail: Callable[[str], Exception | None] = lambda _: None
        self.in_reconcile: Callable[[], object] | None = None
        self._progress = asyncio.Condition()
        self.cursors = CursorStore(producer.db, "scratch")
        self.feed = FeedConsumer(
            "scratch",
            watch=producer.watch,
            cursors=self.cursors,
            handle=self.handle,
            reconcile=self.reconcile,
            types=types,
        )

    async def handle(self, events: Sequence[pb.Event]) -> None:
        for event in events:
            if (error := self.fail(event.subject_id)) is not None:
                raise error
        self.batches.append(len(events))
        async with self._progress:
            self.handled += [event.subject_id for event in events]
            self._progress.notify_all()

    async def reconcile(self) -> None:
        if self.in_reconcile is not None:
            result = self.in_reconcile()
            if asyncio.iscoroutine(result):
                await result
        async with self._progress:
            self.reconciled += 1
            self._progress.notify_all()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(50), self._progress:
            await self._progress.wait_for(condition)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.feed.run())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


@pytest.fixture
def consumer(producer: Producer) -> Consumer:
    return Consumer(producer)


async def take(stream: AsyncIterator[pb.WatchEventsResponse], count: int) -> list[str]:
    """The next messages, events by subject and bookmarks as '*'."""
    found: list[str] = []
    async with asyncio.timeout(50):
        while len(found) < count:
            message = await anext(stream)
            found.append(message.event.subject_id if message.HasField("event") else "*")
    return found


async def test_a_stream_without_cursor_begins_with_the_head(producer: Producer) -> None:
    await producer.write("before")
    stream = producer.watch(pb.WatchEventsRequest())
    first = await anext(stream)
    assert first.HasField("bookmark")
    assert Cursor.decode(first.bookmark.cursor).epoch > 0
    await producer.write("a", "b")
    assert await take(stream, 2) == ["a", "b"]


async def test_an_event_travels_whole(producer: Producer) -> None:
    workspace = new_id()
    event = FeedEvent(
        "wakeup.settled",
        "s1",
        workspace_id=workspace,
        occurrence_key="webhook:1",
        payload={"outcome": "done", "text": "ü"},
        trace_carrier={"traceparent": "00-1"},
    )
    async with producer.db.transaction() as tx:
        await append(tx, [event])
    stream = producer.watch(pb.WatchEventsRequest(cursor=Cursor.beginning().encode()))
    got = (await anext(stream)).event
    assert got.type == "wakeup.settled"
    assert (got.workspace_id, got.subject_id) == (str(workspace), "s1")
    assert got.occurrence_key == "webhook:1"
    assert json.loads(got.payload) == event.payload
    assert dict(got.trace_carrier) == event.trace_carrier
    assert got.create_time.seconds > 0
    assert Cursor.decode(got.cursor).xid > 0


async def test_a_filtered_stream_sends_bookmarks_for_what_it_leaves_out(
    producer: Producer,
    settled: Settled,
) -> None:
    stream = producer.watch(pb.WatchEventsRequest(types=["wanted.thing"]))
    assert await take(stream, 1) == ["*"]
    await producer.write("x", type_="other.thing")
    await settled(producer.db)
    head = await FeedReader(producer.db).head()
    producer.hint()
    message = await anext(stream)
    while Cursor.decode(message.bookmark.cursor) < head:
        message = await anext(stream)
    assert not message.HasField("event")


async def test_a_late_row_reaches_a_stream_that_has_gone_past_it(producer: Producer) -> None:
    stream = producer.watch(pb.WatchEventsRequest(cursor=Cursor.beginning().encode()))
    async with producer.db.transaction() as tx:
        await append(tx, [FeedEvent("thing.done", "old")])
        await producer.write("new")
        assert await take(stream, 1) == ["new"]
    producer.hint()
    got = await take(stream, 1)
    while got[-1] == "*":
        got += await take(stream, 1)
    assert got[-1] == "old"


async def test_a_bad_cursor_is_refused(producer: Producer) -> None:
    with pytest.raises(InvalidArgument):
        await anext(producer.watch(pb.WatchEventsRequest(cursor="nonsense")))


async def test_a_stream_whose_cursor_is_past_retention_expires(
    producer: Producer, settled: Settled
) -> None:
    await producer.write("a")
    page = await FeedReader(producer.db).read(Cursor.beginning())
    await producer.write("b", "c")
    await settled(producer.db)
    producer.db.move_clock(7200)
    await prune(producer.db, timedelta(hours=1))
    with pytest.raises(CursorExpired):
        await anext(producer.watch(pb.WatchEventsRequest(cursor=page.events[0].cursor.encode())))


async def test_a_draining_server_ends_its_streams(producer: Producer) -> None:
    stream = producer.watch(pb.WatchEventsRequest())
    await anext(stream)
    pending = asyncio.ensure_future(take(stream, 1000))
    producer.draining.set()
    with pytest.raises(Unavailable) as ended:
        await pending
    assert ended.value.reason == draining_error().reason


async def test_a_stream_whose_database_went_away_ends_as_unavailable(
    producer: Producer,
) -> None:
    stream = producer.watch(pb.WatchEventsRequest())
    await anext(stream)
    await producer.db.close()
    producer.hint()
    with pytest.raises(Unavailable):
        await anext(stream)


async def test_the_first_start_reconciles_and_follows_from_before_it(
    producer: Producer, consumer: Consumer
) -> None:
    await producer.write("ancient")
    consumer.in_reconcile = lambda: producer.write("during")
    async with consumer.running():
        await consumer.until(lambda: consumer.handled == ["during"])
        await producer.write("after")
        await consumer.until(lambda: consumer.handled == ["during", "after"])
    assert consumer.reconciled == 1
    assert await consumer.cursors.load() != ""


async def test_a_restart_resumes_where_it_was_without_reconciling(
    producer: Producer, consumer: Consumer
) -> None:
    async with consumer.running():
        await consumer.until(lambda: consumer.reconciled == 1)
        await producer.write("a")
        await consumer.until(lambda: "a" in consumer.handled)
    await producer.write("b")
    again = Consumer(producer)
    async with again.running():
        await again.until(lambda: "b" in again.handled)
    assert again.reconciled == 0
    # It may have stopped before it saved "a"; it never misses "b".
    assert again.handled in (["b"], ["a", "b"])


async def test_an_expired_cursor_reconciles_and_resumes_at_the_head(
    producer: Producer, settled: Settled, consumer: Consumer
) -> None:
    await producer.write("a")
    page = await FeedReader(producer.db).read(Cursor.beginning())
    expired = page.events[0].cursor.encode()
    assert await consumer.cursors.save("", expired)
    await producer.write("missed", "missed too")
    await settled(producer.db)
    producer.db.move_clock(7200)
    assert await prune(producer.db, timedelta(hours=1)) == 3

    async with consumer.running():
        await consumer.until(lambda: consumer.reconciled == 1)
        await producer.write("new")
        await consumer.until(lambda: consumer.handled == ["new"])
    assert await consumer.cursors.load() != expired


async def test_a_restored_producer_makes_its_consumers_reconcile_in_the_middle(
    producer: Producer, consumer: Consumer, scratch: TestDatabase
) -> None:
    async with consumer.running():
        await consumer.until(lambda: consumer.reconciled == 1)
        await producer.write("a")
        await consumer.until(lambda: "a" in consumer.handled)
        admin = await scratch.admin()
        await admin.execute("UPDATE scratch.feed_epoch SET identity = 'elsewhere'")
        producer.hint()
        await consumer.until(lambda: consumer.reconciled == 2)
        await producer.write("b")
        await consumer.until(lambda: "b" in consumer.handled)


async def test_a_lost_stream_is_opened_again_from_the_saved_cursor(
    producer: Producer, consumer: Consumer
) -> None:
    async with consumer.running():
        await consumer.until(lambda: consumer.reconciled == 1)
        await producer.write("a")
        await consumer.until(lambda: "a" in consumer.handled)
        producer.draining.set()
        await producer.write("b")
        producer.draining.clear()
        await consumer.until(lambda: "b" in consumer.handled)
    assert consumer.reconciled == 1


async def test_one_event_that_cannot_be_handled_does_not_stop_the_others(
    producer: Producer, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_consumer, "_RECONNECT", Backoff(0.0001, 0.0001))
    attempts: list[str] = []

    def fail(subject: str) -> Exception | None:
        attempts.append(subject)
        return LookupError(subject) if subject == "bad" else None

    consumer.fail = fail
    async with consumer.running():
        await consumer.until(lambda: consumer.reconciled == 1)
        await producer.write("a", "bad", "c")
        await consumer.until(lambda: consumer.handled == ["a", "c"])
    assert attempts.count("bad") >= 5


async def test_an_outage_of_the_consumer_is_waited_out_however_long(
    producer: Producer, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_consumer, "_RECONNECT", Backoff(0.0001, 0.0001))
    failures = iter([Unavailable("DOWN"), ResourceExhausted("OVERLOADED")] * 10)
    consumer.fail = lambda _: next(failures, None)
    async with consumer.running():
        await consumer.until(lambda: consumer.reconciled == 1)
        await producer.write("a")
        await consumer.until(lambda: consumer.handled == ["a"])
    assert next(failures, None) is None


async def test_the_cursor_moves_by_compare_and_set(db: Database) -> None:
    store = CursorStore(db, "scratch")
    assert await store.load() == ""
    assert await store.save("", "one")
    assert not await store.save("", "two")
    assert await store.save("one", "two")
    assert await store.load() == "two"
    assert await CursorStore(db, "other").load() == ""


async def test_two_replicas_of_a_consumer_never_move_the_cursor_back(
    producer: Producer, consumer: Consumer
) -> None:
    other = Consumer(producer)
    async with consumer.running(), other.running():
        await consumer.until(lambda: consumer.reconciled == 1)
        await other.until(lambda: other.reconciled >= 0)
        seen: list[Cursor] = []
        for number in range(10):
            await producer.write(f"e{number}")
            await consumer.until(lambda: f"e{number}" in consumer.handled)  # noqa: B023
            if text := await consumer.cursors.load():
                seen.append(Cursor.decode(text))
        await other.until(lambda: "e9" in other.handled)
    assert seen == sorted(seen)


class Servicer(pb_grpc.EventServiceServicer):
    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.cancelled = asyncio.Event()
        self.sent = 0
        self.progress = asyncio.Condition()

    async def WatchEvents(
        self, request: pb.WatchEventsRequest, context: Any
    ) -> AsyncIterator[pb.WatchEventsResponse]:
        try:
            async for message in self.producer.watch(request):
                yield message
                async with self.progress:
                    self.sent += 1
                    self.progress.notify_all()
        except CursorExpired as error:
            await context.abort(grpc.StatusCode.OUT_OF_RANGE, str(error))
        finally:
            self.cancelled.set()


async def test_a_replica_that_lost_the_race_keeps_the_newer_cursor_of_the_two(
    producer: Producer, consumer: Consumer
) -> None:
    old, mine, newer = (Cursor(1, xid, 0).encode() for xid in (10, 20, 30))
    # Somebody else moved it since we read it, but not as far as we came.
    assert await consumer.cursors.save("", old)
    await consumer.feed._save(mine)
    assert await consumer.cursors.load() == mine
    # And now further than we came.
    assert await consumer.cursors.save(mine, newer)
    await consumer.feed._save(Cursor(1, 25, 0).encode())
    assert await consumer.cursors.load() == newer


@contextlib.asynccontextmanager
async def over_a_channel(producer: Producer, consumer: Consumer) -> AsyncIterator[Servicer]:
    """Serve the producer's feed over a real channel to the consumer."""
    server = grpc.aio.server()
    servicer = Servicer(producer)
    pb_grpc.add_EventServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            consumer.feed._watch = pb_grpc.EventServiceStub(channel).WatchEvents
            yield servicer
    finally:
        await server.stop(None)


async def test_over_a_real_channel_an_expired_cursor_reconciles(
    producer: Producer, settled: Settled, consumer: Consumer
) -> None:
    await producer.write("old")
    page = await FeedReader(producer.db).read(Cursor.beginning())
    await producer.write("gone")
    await settled(producer.db)
    producer.db.move_clock(7200)
    await prune(producer.db, timedelta(hours=1))
    assert await consumer.cursors.save("", page.events[0].cursor.encode())
    async with over_a_channel(producer, consumer), consumer.running():
        await consumer.until(lambda: consumer.reconciled == 1)
        await producer.write("a", "b")
        await consumer.until(lambda: consumer.handled == ["a", "b"])


async def test_the_stream_ends_with_its_consumer(producer: Producer, consumer: Consumer) -> None:
    async with over_a_channel(producer, consumer) as servicer:
        async with consumer.running():
            await consumer.until(lambda: consumer.reconciled == 1)
            assert not servicer.cancelled.is_set()
        async with asyncio.timeout(50):
            await servicer.cancelled.wait()


async def test_the_stream_ends_with_a_consumer_that_was_not_reading(
    producer: Producer, consumer: Consumer
) -> None:
    stuck = asyncio.Event()

    async def never(events: Sequence[pb.Event]) -> None:
        stuck.set()
        await asyncio.Event().wait()

    consumer.feed._handle = never
    async with over_a_channel(producer, consumer) as servicer:
        async with consumer.running():
            await consumer.until(lambda: consumer.reconciled == 1)
            # More than it buffers: its receiver comes to wait for room, and not for the call.
            await producer.write(*(f"e{number}" for number in range(1000)))
            await stuck.wait()
            async with servicer.progress:
                await servicer.progress.wait_for(lambda: servicer.sent >= 1000)
        async with asyncio.timeout(50):
            await servicer.cancelled.wait()
