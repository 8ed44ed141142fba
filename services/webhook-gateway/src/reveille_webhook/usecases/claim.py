"""Take up deliveries that are due."""

from __future__ import annotations

from datetime import timedelta

from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database
from reveille_webhook import crash_points
from reveille_webhook.domain.delivery import Claim
from reveille_webhook.store import queue


class ClaimDeliveries:
    """Claims a batch under fresh leases."""

    def __init__(self, database: Database, lease: float) -> None:
        self._database = database
        self._lease = timedelta(seconds=lease)

    async def __call__(self, limit: int) -> list[Claim]:
        """Claim at most so many; a short batch does not mean that the queue is empty."""
        async with self._database.session() as tx:
            claims = await queue.claim(tx, self._lease, limit)
        if claims:
            crash_point(crash_points.AFTER_CLAIM)
        return claims
