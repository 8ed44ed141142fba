"""The consumer's side of WatchEvents: follow another service's feed, and catch up after a gap.

Events may come more than once, so handling is idempotent. The cursor is saved after the events are
handled, by compare-and-set: replicas that follow the same source at once only repeat work.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import grpc

from reveille.events.v1 import event_service_pb2 as pb
from reveille_runtime import logs
from reveille_runtime.backoff import Backoff
from reveille_runtime.errors import OutOfRange
from reveille_runtime.feed.cursor import Cursor
from reveille_runtime.queries import load_queries
from reveille_runtime.rpc_errors import is_passing

if TYPE_CHECKING:
    from reveille_runtime.db import Database

Q = load_queries("reveille_runtime.feed", "feed.sql")
_log = logs.get_logger(__name__)
_RECONNECT = Backoff(first=0.1, longest=5.0)
_ATTEMPTS = 5

Watch = Callable[[pb.WatchEventsRequest], AsyncIterable[pb.WatchEventsResponse]]


class CursorStore:
    """The row of the consumer's `cursors` table for one source."""

    def __init__(self, db: Database, source: str) -> None:
        self._db = db
        self._source = source

    async def load(self) -> str:
        """Give the stored cursor, '' when there is none."""
        async with self._db.session() as tx:
            return await tx.fetchval(Q["cursor_load"], self._source) or ""

    async def save(self, expected: str, cursor: str) -> bool:
        """Store the cursor if the row still says `expected`; False when somebody moved it."""
        async with self._db.session() as tx:
            return await tx.execute(Q["cursor_save"], self._source, expected, cursor) == 1


class FeedConsumer:
    """Follows one source for ever (`run`), handing events over in batches.

    `watch` is the stub's WatchEvents. `handle` gets events in order, some perhaps again; when it
    fails for reasons that pass, the batch is repeated; otherwise its events are tried one by one,
    and one that keeps failing is logged and left to the service's sweep. `reconcile` compares all
    that is open with the source; it runs at the first start and whenever the source cannot tell
    what was missed, and the head was taken before it.
    """

    def __init__(
        self,
        source: str,
        *,
        watch: Watch,
        cursors: CursorStore,
        handle: Callable[[Sequence[pb.Event]], Awaitable[None]],
        reconcile: Callable[[], Awaitable[None]],
        types: Sequence[str] = (),
        max_batch: int = 200,
    ) -> None:
        self.source = source
        self._watch = watch
        self._cursors = cursors
        self._handle = handle
        self._reconcile = reconcile
        self._types = tuple(types)
        self._max_batch = max_batch
        self._stored = ""
        self._refused: str | None = None

    async def run(self) -> None:
        """Follow, reconnecting with backoff, until cancelled."""
        failures = 0
        while True:
            handled = self._stored
            try:
                await self._follow()
            except Exception as error:  # noqa: BLE001 - the loop outlives whatever ends a stream
                if _is_expired(error) and self._refused != self._stored:
                    self._refused = self._stored
                    _log.warning(
                        "The source cannot tell what was missed; reconciling.",
                        action="feed.cursor_expired",
                        source=self.source,
                        cause=str(error),
                    )
                    continue
                _log.warning(
                    "The stream of events is lost; it will be opened again.",
                    action="feed.stream_lost",
                    source=self.source,
                    cause=f"{type(error).__name__}: {error}",
                )
            failures = 1 if self._stored != handled else failures + 1
            await asyncio.sleep(_RECONNECT.delay(failures, self.source))

    async def _follow(self) -> None:
        """Read one stream to its end."""
        self._stored = await self._cursors.load()
        anew = self._stored in ("", self._refused)
        request = pb.WatchEventsRequest(cursor="" if anew else self._stored, types=self._types)
        async with contextlib.aclosing(self._batches(self._watch(request))) as batches:
            async for batch in batches:
                if anew:
                    # The first message of such a stream is the head.
                    await self._reconcile()
                    _log.info("Reconciled.", action="feed.reconciled", source=self.source)
                    anew = False
                events = [message.event for message in batch if message.HasField("event")]
                if events:
                    await self._deliver(events)
                await self._save(_cursor_of(batch[-1]))

    async def _batches(
        self, stream: AsyncIterable[pb.WatchEventsResponse]
    ) -> AsyncGenerator[list[pb.WatchEventsResponse], None]:
        """Group what has arrived while the batch before was handled."""
        arrived: asyncio.Queue[pb.WatchEventsResponse | Exception | None]
        arrived = asyncio.Queue(maxsize=2 * self._max_batch)

        async def receive() -> None:
            end: Exception | None = None
            try:
                async for message in stream:
                    await arrived.put(message)
            except Exception as error:  # noqa: BLE001 - raised again where batches are read
                end = error
            await arrived.put(end)

        receiver = asyncio.create_task(receive(), name=f"feed {self.source}")
        try:
            ended = False
            while not ended:
                batch: list[pb.WatchEventsResponse] = []
                message = await arrived.get()
                while isinstance(message, pb.WatchEventsResponse):
                    batch.append(message)
                    if arrived.empty() or len(batch) == self._max_batch:
                        break
                    message = arrived.get_nowait()
                if batch:
                    yield batch
                if isinstance(message, Exception):
                    raise message
                ended = message is None
        finally:
            receiver.cancel()
            await asyncio.gather(receiver, return_exceptions=True)
            if isinstance(stream, grpc.aio.Call):
                # A receiver that was not reading at that moment has left the call open.
                stream.cancel()

    async def _deliver(self, events: Sequence[pb.Event]) -> None:
        attempt = 0
        while True:
            attempt += 1
            try:
                await self._handle(events)
            except Exception as error:  # noqa: BLE001 - one event must not stop the others
                passing = is_passing(error)
                if not passing and len(events) > 1:
                    for event in events:
                        await self._deliver((event,))
                    return
                about = {"source": self.source, "subject_id": events[0].subject_id}
                if not passing and attempt >= _ATTEMPTS:
                    _log.exception(
                        "An event cannot be handled and is left to the sweep.",
                        action="feed.event_refused",
                        event_type=events[0].type,
                        **about,
                    )
                    return
                _log.warning(
                    "Events are handled again.",
                    action="feed.repeat",
                    events=len(events),
                    cause=f"{type(error).__name__}: {error}",
                    **about,
                )
                await asyncio.sleep(_RECONNECT.delay(attempt, self.source))
            else:
                return

    async def _save(self, cursor: str) -> None:
        while self._stored != cursor and not await self._cursors.save(self._stored, cursor):
            self._stored = await self._cursors.load()
            if self._stored and Cursor.decode(self._stored) >= Cursor.decode(cursor):
                # Another replica is ahead of us; it handled what lies between.
                return
        self._stored = cursor


def _cursor_of(message: pb.WatchEventsResponse) -> str:
    return message.event.cursor if message.HasField("event") else message.bookmark.cursor


def _is_expired(error: Exception) -> bool:
    if isinstance(error, grpc.aio.AioRpcError):
        return bool(error.code() is grpc.StatusCode.OUT_OF_RANGE)
    return isinstance(error, OutOfRange)
