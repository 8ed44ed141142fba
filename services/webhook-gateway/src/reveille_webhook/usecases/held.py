"""What the loop breaker holds: let it go, or end it. Either closes the breaker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from uuid import UUID

from reveille_runtime import logs
from reveille_runtime.access import Actor, Role
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx
from reveille_runtime.errors import NotFound
from reveille_webhook import crash_points
from reveille_webhook.store import deliveries, endpoints

_STRETCH = 1000
_log = logs.get_logger(__name__)


class Held:
    """Works through a hook's held deliveries, in stretches of their own transactions."""

    def __init__(self, database: Database, dispatch_soon: Callable[[], None]) -> None:
        self._database = database
        self._dispatch_soon = dispatch_soon

    async def release(self, actor: Actor, endpoint_id: UUID) -> int:
        """Let them go, oldest first, within the hook's rate.

        Raises:
            NotFound: there is no such hook, or it is not the caller's.
        """
        released = await self._all(actor, endpoint_id, deliveries.release_held)
        _log.info(
            "Held deliveries were released.",
            action="delivery.released",
            endpoint_id=str(endpoint_id),
            deliveries=released,
            principal=actor.principal,
        )
        self._dispatch_soon()
        return released

    async def purge(self, actor: Actor, endpoint_id: UUID) -> int:
        """End them as ignored.

        Raises:
            NotFound: as for `release`.
        """
        purged = await self._all(actor, endpoint_id, deliveries.purge_held)
        _log.info(
            "Held deliveries were purged.",
            action="delivery.purged",
            endpoint_id=str(endpoint_id),
            deliveries=purged,
            principal=actor.principal,
        )
        return purged

    async def _all(
        self,
        actor: Actor,
        endpoint_id: UUID,
        stretch: Callable[[Tx, UUID, int], Awaitable[int]],
    ) -> int:
        async with self._database.transaction() as tx:
            workspace_id = await endpoints.workspace_of(tx, endpoint_id)
            if workspace_id is None or actor.role_in(workspace_id) is None:
                raise NotFound(
                    "NOT_FOUND",
                    f"there is no endpoint {endpoint_id}, or it is not yours",
                    {"endpoint_id": str(endpoint_id)},
                )
            actor.require_member(workspace_id, Role.ADMIN)
            # First, so that what comes in meanwhile is not held any more.
            await endpoints.close_breaker(tx, endpoint_id)
        done = 0
        while True:
            async with self._database.transaction() as tx:
                some = await stretch(tx, endpoint_id, _STRETCH)
            crash_point(crash_points.AFTER_HELD)
            done += some
            if some < _STRETCH:
                return done
