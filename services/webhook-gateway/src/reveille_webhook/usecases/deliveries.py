"""Read deliveries and their bodies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from uuid import UUID

from reveille_runtime.access import Actor
from reveille_runtime.db import Database
from reveille_runtime.errors import NotFound
from reveille_webhook.domain.delivery import Delivery, Search
from reveille_webhook.domain.states import DeliveryState
from reveille_webhook.store import deliveries

CHUNK = 256 * 1024


class Deliveries:
    """What came in, as far as the caller may see it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, actor: Actor, delivery_id: UUID) -> Delivery:
        """Read one.

        Raises:
            NotFound: there is none, or it is in a workspace that is not the caller's.
        """
        async with self._database.session() as tx:
            found = await deliveries.get(tx, delivery_id)
        if found is None or actor.role_in(found.workspace_id) is None:
            raise no_delivery(delivery_id)
        return found

    async def page(
        self,
        actor: Actor,
        workspace_id: UUID,
        endpoint_id: UUID | None,
        states: Sequence[DeliveryState],
        before: tuple[datetime, UUID] | None,
        limit: int,
        search: Search,
    ) -> list[Delivery]:
        """List a workspace's, newest first.

        Raises:
            NotFound: the workspace is not the caller's.
        """
        actor.require_member(workspace_id)
        async with self._database.session() as tx:
            return await deliveries.page(
                tx, workspace_id, endpoint_id, states, before, limit, search
            )

    async def body(self, actor: Actor, delivery_id: UUID) -> AsyncIterator[bytes]:
        """Give a body in pieces, none of which holds a connection for longer than it is read.

        Raises:
            NotFound: as for `get`.
        """
        delivery = await self.get(actor, delivery_id)
        for offset in range(0, delivery.body_bytes, CHUNK):
            async with self._database.session() as tx:
                chunk = await deliveries.body_chunk(tx, delivery_id, offset, CHUNK)
            yield chunk


def no_delivery(delivery_id: UUID) -> NotFound:
    """Say that a delivery is not there, or not the caller's."""
    return NotFound(
        "NOT_FOUND",
        f"delivery {delivery_id} does not exist, or is not yours",
        {"delivery_id": str(delivery_id)},
    )
