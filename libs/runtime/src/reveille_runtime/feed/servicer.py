"""EventService: the feed of a service, served to others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from reveille.events.v1 import event_service_pb2 as pb
from reveille.events.v1.event_service_pb2_grpc import EventServiceServicer
from reveille_runtime.db import Database
from reveille_runtime.feed.serve import serve_watch
from reveille_runtime.hints import Hint


class EventServicer(EventServiceServicer):
    """Streams events; each stream waits on a hint of its own."""

    def __init__(self, db: Database, new_hint: Callable[[], Hint], draining: asyncio.Event) -> None:
        self._db = db
        self._new_hint = new_hint
        self._draining = draining

    async def WatchEvents(
        self, request: pb.WatchEventsRequest, context: Any
    ) -> AsyncIterator[pb.WatchEventsResponse]:
        """Stream every event past the cursor."""
        hint = self._new_hint()
        async for message in serve_watch(self._db, request, context, hint, draining=self._draining):
            yield message
