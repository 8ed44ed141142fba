"""The producer's side of WatchEvents: one tail per stream, woken by a hint, polling anyway."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Protocol

from google.protobuf.timestamp_pb2 import Timestamp

from reveille.events.v1 import event_service_pb2 as pb
from reveille_runtime.errors import Unavailable
from reveille_runtime.feed.cursor import Cursor
from reveille_runtime.feed.reader import FeedPage, FeedReader, FeedTail, StoredEvent
from reveille_runtime.server import draining_error
from reveille_runtime.sqlstate import is_transient

if TYPE_CHECKING:
    from reveille_runtime.db import Database


class Wakeable(Protocol):
    """Something to wait on that may be told of news early; a `Hint`."""

    async def wait(self, timeout: float) -> bool:
        """Wait for news, at most so many seconds; tell whether there was any."""
        ...


class Streaming(Protocol):
    """What is needed of a call's context."""

    def done(self) -> bool:
        """Tell whether the call has ended."""
        ...


async def serve_watch(
    db: Database,
    request: pb.WatchEventsRequest,
    context: Streaming,
    hint: Wakeable | None = None,
    *,
    draining: asyncio.Event | None = None,
    poll_interval: float = 1.0,
    bookmark_interval: float = 10.0,
    page_size: int = 500,
) -> AsyncIterator[pb.WatchEventsResponse]:
    """Stream the events after the request's cursor, for ever.

    The first message is a bookmark when the request has no cursor: the head, which the consumer
    needs before it reconciles. Later bookmarks come at most every `bookmark_interval` seconds, when
    the durable cursor moved without an event. No connection is held between polls.

    Raises:
        CursorExpired: see FeedTail.poll; also in the middle of a stream.
        InvalidArgument: the cursor is not one of ours.
        Unavailable: the database does not answer, or `draining` (the server's) is set.
    """
    cursor = Cursor.decode(request.cursor) if request.cursor else None
    tail = FeedReader(db).tail(cursor, request.types)
    sent = cursor
    bookmark_due = time.monotonic() if cursor is None else time.monotonic() + bookmark_interval
    while not context.done():
        page = await _poll(tail, page_size)
        for event in page.events:
            yield pb.WatchEventsResponse(event=_message(event))
            sent = event.cursor
        if page.more:
            continue
        now = time.monotonic()
        if page.cursor != sent and now >= bookmark_due:
            yield pb.WatchEventsResponse(bookmark=pb.Bookmark(cursor=page.cursor.encode()))
            sent, bookmark_due = page.cursor, now + bookmark_interval
        if await _wait(hint, poll_interval, draining):
            raise draining_error()


async def _poll(tail: FeedTail, page_size: int) -> FeedPage:
    try:
        return await tail.poll(page_size)
    except Exception as error:
        if is_transient(error):
            raise Unavailable("DATABASE_UNAVAILABLE", "the feed cannot be read") from error
        raise


async def _wait(hint: Wakeable | None, timeout: float, draining: asyncio.Event | None) -> bool:
    """Wait for news or the next poll; tell whether the server is about to stop."""
    stop = asyncio.Event() if draining is None else draining
    waits: set[asyncio.Task[object]] = {asyncio.ensure_future(stop.wait())}
    if hint is not None:
        waits.add(asyncio.ensure_future(hint.wait(timeout)))
    try:
        await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    return stop.is_set()


def _message(event: StoredEvent) -> pb.Event:
    written = Timestamp()
    written.FromDatetime(event.created_at)
    return pb.Event(
        cursor=event.cursor.encode(),
        type=event.type,
        workspace_id="" if event.workspace_id is None else str(event.workspace_id),
        occurrence_key=event.occurrence_key,
        subject_id=event.subject_id,
        create_time=written,
        payload=json.dumps(event.payload, ensure_ascii=False, separators=(",", ":")).encode(),
        trace_carrier=event.trace_carrier,
    )
