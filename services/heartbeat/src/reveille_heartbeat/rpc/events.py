"""EventService: heartbeat's feed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from reveille.events.v1 import event_service_pb2 as pb
from reveille.events.v1.event_service_pb2_grpc import EventServiceServicer
from reveille_runtime.db import Database
from reveille_runtime.feed import serve_watch
from reveille_runtime.hints import Hint
from reveille_runtime.server import draining_error


@dataclass(frozen=True, slots=True)
class _UntilDrain:
    """A call, and the wait between its looks, that both end when the server drains."""

    context: Any
    hint: Hint
    draining: asyncio.Event

    def done(self) -> bool:
        """Tell whether there is nobody left to stream to."""
        return self.draining.is_set() or bool(self.context.done())

    async def wait(self, timeout: float) -> bool:
        """Wait for news, or for the drain."""
        waits = [
            asyncio.ensure_future(self.hint.wait(timeout)),
            asyncio.ensure_future(self.draining.wait()),
        ]
        try:
            await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            return waits[0].done()
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)


class EventServicer(EventServiceServicer):
    """Streams events; each stream waits on a hint of its own, which the next stream may reuse."""

    def __init__(self, db: Database, new_hint: Callable[[], Hint], draining: asyncio.Event) -> None:
        self._db = db
        self._new_hint = new_hint
        self._draining = draining
        self._free: list[Hint] = []

    async def WatchEvents(
        self, request: pb.WatchEventsRequest, context: Any
    ) -> AsyncIterator[pb.WatchEventsResponse]:
        """Stream every event past the cursor."""
        hint = self._free.pop() if self._free else self._new_hint()
        watch = _UntilDrain(context, hint, self._draining)
        try:
            async for message in serve_watch(self._db, request, watch, watch):
                yield message
        finally:
            self._free.append(hint)
        if self._draining.is_set():
            raise draining_error()
