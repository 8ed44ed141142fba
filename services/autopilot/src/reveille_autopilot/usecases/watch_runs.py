"""Watching the runs of a workspace: those that are open, then each as it changes.

The feed orders the changes; a change shows the run as it stands when it is read, so a slow watcher
sees the newest state more than once rather than an old one late.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from reveille.autopilot.v1 import autopilot_service_pb2 as pb
from reveille.events.v1 import event_service_pb2 as event_pb
from reveille_autopilot.domain.models import Run
from reveille_autopilot.store import runs
from reveille_autopilot.usecases import messages
from reveille_autopilot.usecases.standing import in_workspace
from reveille_autopilot.usecases.telling import RUN_TYPES
from reveille_runtime.access import Actor
from reveille_runtime.db import Database
from reveille_runtime.feed import serve_watch
from reveille_runtime.hints import Hint
from reveille_runtime.validation import NIL

_PAGE = 200


@dataclass(frozen=True, slots=True)
class RunWatch:
    """Which runs to watch, and where to go on."""

    workspace_id: UUID
    autopilot_id: UUID | None
    trigger_id: UUID | None
    cursor: str = ""

    def wants(self, event: event_pb.Event) -> bool:
        """Tell whether an event may be about one of them."""
        if event.workspace_id != str(self.workspace_id):
            return False
        facts = json.loads(event.payload)
        return self.autopilot_id is None or facts["autopilot_id"] == str(self.autopilot_id)


class RunWatcher:
    """Streams runs."""

    def __init__(self, db: Database, new_hint: Callable[[], Hint], draining: asyncio.Event) -> None:
        self._db = db
        self._new_hint = new_hint
        self._draining = draining

    async def watch(
        self, actor: Actor, watch: RunWatch, context: Any
    ) -> AsyncIterator[pb.WatchRunsResponse]:
        """Stream a snapshot unless there is a cursor, then changes and bookmarks, for ever."""
        async with self._db.session() as tx:
            await in_workspace(tx, actor, watch.workspace_id)
        request = event_pb.WatchEventsRequest(cursor=watch.cursor, types=RUN_TYPES)
        whole = not watch.cursor
        events = serve_watch(self._db, request, context, self._new_hint(), draining=self._draining)
        async for message in events:
            if message.HasField("bookmark"):
                # The first one is the head, taken before the snapshot: nothing falls between.
                async for run in self._open(watch, whole=whole):
                    yield pb.WatchRunsResponse(run=messages.run(run))
                whole = False
                yield pb.WatchRunsResponse(cursor=message.bookmark.cursor)
            elif watch.wants(message.event):
                changed = await self._read(watch, message.event)
                if changed is not None:
                    shown = messages.run(changed)
                    yield pb.WatchRunsResponse(run=shown, cursor=message.event.cursor)

    async def _open(self, watch: RunWatch, *, whole: bool) -> AsyncIterator[Run]:
        after, more = NIL, whole
        while more:
            async with self._db.session() as tx:
                found = await runs.open_page(
                    tx, watch.workspace_id, watch.autopilot_id, watch.trigger_id, after, _PAGE
                )
            for run in found:
                yield run
                after = run.id
            more = len(found) == _PAGE

    async def _read(self, watch: RunWatch, event: event_pb.Event) -> Run | None:
        run_id = UUID(event.subject_id)
        async with self._db.session() as tx:
            run = (await runs.brief(tx, [run_id])).get(run_id)
        if run is None or watch.trigger_id not in {None, run.trigger_id}:
            return None
        return run
