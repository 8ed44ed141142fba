"""The worker: claims deliveries that are due and takes them to their ends, concurrently."""

from __future__ import annotations

import asyncio

from reveille_runtime.lease import LeaseKeeper
from reveille_runtime.lifecycle import TaskScope
from reveille_webhook.usecases.claim import ClaimDeliveries
from reveille_webhook.usecases.deliver import Deliver

_BATCH = 200
# How soon to look again when there is no room for more.
_FULL = 0.05


class Dispatcher:
    """At most `capacity` deliveries at once, so that nothing is claimed in vain."""

    name = "dispatcher"

    def __init__(
        self,
        claim: ClaimDeliveries,
        deliver: Deliver,
        keeper: LeaseKeeper,
        capacity: int,
        grace: float,
    ) -> None:
        self._claim = claim
        self._deliver = deliver
        self._keeper = keeper
        self._capacity = capacity
        self._grace = grace
        self._scope = TaskScope("deliver")
        self._stopped = asyncio.Event()

    async def step(self) -> float | None:
        """Claim one batch; 0 means that there may be more right now."""
        limit = min(_BATCH, self._capacity - len(self._scope))
        if not self._capacity:
            return None
        if limit <= 0:
            return _FULL
        since = self._keeper.now()
        taken = await self._claim(limit)
        for claim in taken.claims:
            self._scope.spawn(self._deliver(claim, since), str(claim.id))
        return 0 if taken.claims or taken.deferred or taken.held else None

    async def run(self) -> None:
        """Live until stopped."""
        await self._stopped.wait()

    async def stop(self) -> None:
        """Let the deliveries end for a while, then give the others back."""
        await self._scope.close(self._grace)
        self._stopped.set()
