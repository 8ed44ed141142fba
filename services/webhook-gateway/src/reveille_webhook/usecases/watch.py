"""Follow deliveries as they come in, and each until it reaches its end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
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
        seen: dict[UUID, DeliveryState] = {}
        while not self._draining.is_set():
            still = [each for each, state in seen.items() if state not in DELIVERY_TERMINAL]
            async with self._database.session() as tx:
                rows = await deliveries.came_in(
                    tx, workspace_id, endpoint_id, since, still[-_MOST:], _MOST
                )
            for row in rows:
                if seen.get(row.id) is not row.state:
                    seen[row.id] = row.state
                    yield row
            if rows:
                since = max(since, rows[-1].received_at - _OVERLAP)
                # What came in before is followed to its end, and then forgotten.
                seen = {
                    row.id: seen[row.id]
                    for row in rows
                    if row.received_at >= since or row.state not in DELIVERY_TERMINAL
                }
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._draining.wait(), self._interval)
        raise draining_error()
