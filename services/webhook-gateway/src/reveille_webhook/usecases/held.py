"""What the loop breaker holds: let it go, or end it. Either closes the breaker."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from reveille_runtime import logs
from reveille_runtime.access import Actor, Role
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database
from reveille_runtime.errors import NotFound
from reveille_webhook import crash_points
from reveille_webhook.store import deliveries, endpoints
from reveille_webhook.usecases.autopilot import Autopilot

_STRETCH = 1000
# As many as autopilot ends in one call.
_PURGED_TOGETHER = 200
_log = logs.get_logger(__name__)


class Held:
    """Works through a hook's held deliveries, in stretches of their own transactions."""

    def __init__(
        self, database: Database, autopilot: Autopilot, dispatch_soon: Callable[[], None]
    ) -> None:
        self._database = database
        self._autopilot = autopilot
        self._dispatch_soon = dispatch_soon

    async def release(self, actor: Actor, endpoint_id: UUID) -> int:
        """Let them go, oldest first, within the hook's rate.

        Raises:
            NotFound: there is no such hook, or it is not the caller's.
        """
        await self._close_breaker(actor, endpoint_id)
        released, some = 0, _STRETCH
        while some == _STRETCH:
            async with self._database.transaction() as tx:
                some = await deliveries.release_held(tx, endpoint_id, _STRETCH)
            crash_point(crash_points.AFTER_HELD)
            released += some
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
        """End them as ignored, and the runs that they were admitted as before that, and after.

        Raises:
            NotFound: as for `release`. Unavailable: autopilot could not be asked; what is still
                held stays so, and asking again goes on from there.
        """
        await self._close_breaker(actor, endpoint_id)
        purged, some = 0, _PURGED_TOGETHER
        while some == _PURGED_TOGETHER:
            async with self._database.session() as tx:
                held = await deliveries.held(tx, endpoint_id, _PURGED_TOGETHER)
            some = len(held)
            if held:
                # Judged or not: the judgement of one that was held meanwhile was not written.
                await self._autopilot.withdraw(held)
                crash_point(crash_points.AFTER_WITHDRAWAL)
                async with self._database.transaction() as tx:
                    purged += await deliveries.purge_held(tx, held)
                    ended = await deliveries.purged(tx, held)
                crash_point(crash_points.AFTER_HELD)
                # A request that had one judged since the first call found it held still.
                await self._autopilot.withdraw(ended)
        _log.info(
            "Held deliveries were purged.",
            action="delivery.purged",
            endpoint_id=str(endpoint_id),
            deliveries=purged,
            principal=actor.principal,
        )
        return purged

    async def _close_breaker(self, actor: Actor, endpoint_id: UUID) -> None:
        """Close it first, so that what comes in meanwhile is not held any more."""
        async with self._database.transaction() as tx:
            workspace_id = await endpoints.workspace_of(tx, endpoint_id)
            if workspace_id is None or actor.role_in(workspace_id) is None:
                raise NotFound(
                    "NOT_FOUND",
                    f"there is no endpoint {endpoint_id}, or it is not yours",
                    {"endpoint_id": str(endpoint_id)},
                )
            actor.require_member(workspace_id, Role.ADMIN)
            await endpoints.close_breaker(tx, endpoint_id)
