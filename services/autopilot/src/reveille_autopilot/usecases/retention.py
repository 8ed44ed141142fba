"""Forgetting what is old: runs with their keys, versions that nothing refers to, events.

A job of this service, executed by the scheduler. A run is kept from its end on, a version as long
as a run that it was in force for, so that a kept run can always tell what its rule said.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

from reveille_autopilot.store import upkeep
from reveille_runtime import feed
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx

# Rows a stretch may remove, and how much of the run's time is used before the next run goes on.
STRETCH = 1000
PATIENCE_SECONDS = 480.0


@dataclass(frozen=True, slots=True)
class Keeping:
    """How long things are kept."""

    runs: timedelta = timedelta(days=400)
    feed: timedelta = timedelta(days=7)


class Retention:
    """Removes in stretches, each in a transaction of its own."""

    def __init__(
        self,
        db: Database,
        keeping: Keeping,
        stretch: int = STRETCH,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._db = db
        self._keeping = keeping
        self._stretch = stretch
        self._monotonic = monotonic

    async def __call__(self) -> bytes:
        """Forget; gives what was removed, as JSON for the ledger."""
        keep = self._keeping
        until = self._monotonic() + PATIENCE_SECONDS
        removed = {
            "runs_removed": await self._all(until, self._in_session(upkeep.prune_runs, keep.runs)),
            # After the runs: they are what holds a version.
            "rule_versions_removed": await self._all(
                until, self._in_session(upkeep.prune_versions, keep.runs)
            ),
            "events_removed": await self._all(
                until, lambda: feed.prune(self._db, keep.feed, self._stretch)
            ),
        }
        async with self._db.session() as tx:
            removed["quota_periods_removed"] = await upkeep.prune_periods(tx, keep.runs)
        return json.dumps(removed | {"finished": self._monotonic() < until}).encode()

    async def _all(self, until: float, prune: Callable[[], Awaitable[int]]) -> int:
        removed = 0
        while self._monotonic() < until:
            stretch = await prune()
            crash_point("autopilot.retention.after_stretch")
            removed += stretch
            if stretch < self._stretch:
                break
        return removed

    def _in_session(
        self, prune: Callable[[Tx, timedelta, int], Awaitable[int]], keep: timedelta
    ) -> Callable[[], Awaitable[int]]:
        async def stretch() -> int:
            async with self._db.session() as tx:
                return await prune(tx, keep, self._stretch)

        return stretch
