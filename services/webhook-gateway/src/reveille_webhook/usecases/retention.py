"""Forget deliveries that ended long ago: a job that the scheduler plans, and this service executes.

What is still on its way stays, and so does every sender's id that is younger than the days kept:
those are more than any sender's retries last.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import timedelta

from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database
from reveille_runtime.requests import prune as prune_requests
from reveille_runtime.stretches import Stretches
from reveille_webhook import crash_points
from reveille_webhook.store import deliveries

JOB = "webhook_retention"
HANDLER = "webhook-gateway"
# Rows a stretch may remove.
STRETCH = 500


class Retention:
    """Removes what is old, in stretches of their own transactions."""

    def __init__(
        self,
        database: Database,
        kept_for: timedelta,
        stretch: int = STRETCH,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._kept_for = kept_for
        self._stretch = stretch
        self._monotonic = monotonic

    async def __call__(self) -> Mapping[str, object]:
        """Forget; gives what was removed, for the ledger."""
        stretches = Stretches(
            self._stretch,
            after=lambda: crash_point(crash_points.AFTER_PRUNED),
            monotonic=self._monotonic,
        )

        async def stretch() -> int:
            async with self._database.session() as tx:
                return await deliveries.prune(tx, self._kept_for, self._stretch)

        removed = await stretches.all_rows(stretch)
        requests = await prune_requests(self._database, limit=self._stretch)
        return {
            "deliveries_removed": removed,
            "requests_removed": requests,
            "finished": stretches.finished,
        }
