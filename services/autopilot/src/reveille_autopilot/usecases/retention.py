"""Forgetting what is old: runs with their keys, versions that nothing refers to, events.

A job of this service, executed by the scheduler. A run is kept from its end on, a version as long
as a run that it was in force for, so that a kept run can always tell what its rule said.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from reveille_autopilot.store import upkeep
from reveille_runtime import feed
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx
from reveille_runtime.stretches import Stretches

# Rows a stretch may remove.
STRETCH = 1000


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

    async def __call__(self) -> Mapping[str, object]:
        """Forget; gives what was removed, for the ledger."""
        keep = self._keeping
        stretches = Stretches(
            self._stretch,
            after=lambda: crash_point("autopilot.retention.after_stretch"),
            monotonic=self._monotonic,
        )
        removed = {
            "runs_removed": await stretches.all_rows(
                self._in_session(upkeep.prune_runs, keep.runs)
            ),
            # After the runs: they are what holds a version.
            "rule_versions_removed": await stretches.all_rows(
                self._in_session(upkeep.prune_versions, keep.runs)
            ),
            "events_removed": await stretches.all_rows(
                lambda: feed.prune(self._db, keep.feed, self._stretch)
            ),
        }
        async with self._db.session() as tx:
            removed["quota_periods_removed"] = await upkeep.prune_periods(tx, keep.runs)
            removed["secret_edits_removed"] = await upkeep.prune_secret_edits(tx, keep.runs)
        return {**removed, "finished": stretches.finished}

    def _in_session(
        self, prune: Callable[[Tx, timedelta, int], Awaitable[int]], keep: timedelta
    ) -> Callable[[], Awaitable[int]]:
        async def stretch() -> int:
            async with self._db.session() as tx:
                return await prune(tx, keep, self._stretch)

        return stretch
