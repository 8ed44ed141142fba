"""Take up deliveries that are due."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from reveille_runtime import logs
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database
from reveille_webhook import crash_points
from reveille_webhook.domain.retrying import FAR_OFF
from reveille_webhook.store import queue
from reveille_webhook.store.queue import Taken
from reveille_webhook.usecases.trace import Tracing

_START = datetime(1, 1, 2, tzinfo=UTC)
_LOOK_AT_ALL = 1.0
# While its request may still be under way, a delivery that nobody judged is not the worker's.
_GRACE = timedelta(seconds=2)
_log = logs.get_logger(__name__)


class ClaimDeliveries:
    """Claims a batch under fresh leases, within the rates and budgets of the hooks.

    It reads on from where the last batch ended, past index entries of rows that are done with; once
    in a while, and whenever there was nothing more, it looks at everything again.
    """

    def __init__(
        self,
        database: Database,
        lease: float,
        rate: int,
        budget: int,
        tracing: Tracing,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._lease = timedelta(seconds=lease)
        self._rate = rate
        self._budget = budget
        self._tracing = tracing
        self._clock = clock
        self._since = _START
        self._looked_at_all = -_LOOK_AT_ALL

    async def __call__(self, limit: int) -> Taken:
        """Claim at most so many; a short batch does not mean that the queue is empty."""
        now = self._clock()
        if now - self._looked_at_all >= _LOOK_AT_ALL:
            self._since, self._looked_at_all = _START, now
        taken = await self._claim(limit)
        if taken.newest is None and self._since != _START:
            # Something older may have become due meanwhile, behind what was ahead of it.
            self._since = _START
            taken = await self._claim(limit)
        # What was not judged yet when it was passed over lies a little behind.
        self._since = _START if taken.newest is None else taken.newest - _GRACE
        if taken.claims:
            crash_point(crash_points.AFTER_CLAIM)
        for endpoint_id, number in Counter(taken.held).items():
            self._tracing.held(number)
            _log.warning(
                "A hook fired beyond its budget; its deliveries are held.",
                action="delivery.held",
                endpoint_id=str(endpoint_id),
                deliveries=number,
            )
        return taken

    async def _claim(self, limit: int) -> Taken:
        async with self._database.transaction() as tx:
            return await queue.claim(
                tx, self._lease, limit, self._since, self._rate, self._budget, _GRACE, FAR_OFF
            )
