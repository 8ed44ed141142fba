"""Follow deliveries as they come in, and each until it reaches its end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from reveille_runtime.access import Actor
from reveille_runtime.db import Database
from reveille_runtime.server import draining_error
from reveille_webhook.domain.delivery import Delivery
from reveille_webhook.domain.states import DELIVERY_TERMINAL, DeliveryState
from reveille_webhook.store import deliveries

# A row may become visible this long after the time it says it came in.
_OVERLAP = timedelta(seconds=5)
_MOST = 500
_BEFORE_ALL = UUID(int=0)


@dataclass(frozen=True, slots=True)
class _Told:
    """What was last told of a delivery, and when that came in."""

    state: DeliveryState
    received_at: datetime


class Watch:
    """Looks again and again; a look that finds nothing new costs one index scan."""

    def __init__(self, database: Database, draining: asyncio.Event, interval: float) -> None:
        self._database = database
        self._draining = draining
        self._interval = interval

    async def begin(self, actor: Actor, workspace_id: UUID) -> datetime:
        """Say from when on deliveries are told.

        Raises:
            NotFound: the workspace is not the caller's.
        """
        actor.require_member(workspace_id)
        return await self._database.now()

    async def follow(
        self, workspace_id: UUID, endpoint_id: UUID | None, since: datetime
    ) -> AsyncIterator[Delivery]:
        """Give deliveries from then on, each when it comes in and when its state is another.

        Raises:
            Unavailable: the service is stopping.
        """
        told: dict[UUID, _Told] = {}
        while not self._draining.is_set():
            earlier = [each for each, its in told.items() if its.received_at < since][-_MOST:]
            newest, found = since, {}
            async for row in self._look(workspace_id, endpoint_id, since, earlier):
                newest = max(newest, row.received_at)
                found[row.id] = _Told(row.state, row.received_at)
                if row.id not in told or told[row.id].state is not row.state:
                    yield row
            since = max(since, newest - _OVERLAP)
            # What came in before is followed to its end, and then forgotten.
            told = {
                each: its
                for each, its in found.items()
                if its.received_at >= since or its.state not in DELIVERY_TERMINAL
            }
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._draining.wait(), self._interval)
        raise draining_error()

    async def _look(
        self,
        workspace_id: UUID,
        endpoint_id: UUID | None,
        since: datetime,
        earlier: Sequence[UUID],
    ) -> AsyncIterator[Delivery]:
        """Give what came in before as it now stands, then page by page what came in since."""
        if earlier:
            async with self._database.session() as tx:
                rows = await deliveries.as_they_stand(tx, earlier)
            for row in rows:
                yield row
        position = since, _BEFORE_ALL
        while not self._draining.is_set():
            async with self._database.session() as tx:
                page = await deliveries.came_in(tx, workspace_id, endpoint_id, *position, _MOST)
            for row in page:
                yield row
            if len(page) < _MOST:
                return
            position = page[-1].received_at, page[-1].id
