"""Heartbeat's job `heartbeat_retention`: forget what is old, in stretches that stand by themselves.

Each stretch is a transaction of its own, so a run of the job that is cut short has done something,
and the next one goes on. No key goes before a month has passed, and an occurrence stays as long as
autopilot keeps the run that it belongs to.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from reveille_heartbeat.crash_points import RETENTION_AFTER_STRETCH
from reveille_heartbeat.store.queries import Q
from reveille_runtime import feed, logs, requests
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database
from reveille_runtime.sqlstate import is_transient
from reveille_runtime.stretches import Stretches

_log = logs.get_logger(__name__)
# Rows a stretch removes at most.
STRETCH = 500
_FIRST = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Keep:
    """How long what is kept."""

    # Attempts with their events, and wakeups that belong to no occurrence.
    runs: timedelta
    # Their output.
    output: timedelta
    # Occurrences with their wakeups, and what attempts cost.
    occurrences: timedelta
    # The feed; a reader that comes later has to reconcile.
    feed: timedelta


class Retention:
    """Removes, step by step, what nobody asks for any more."""

    def __init__(
        self,
        db: Database,
        keep: Keep,
        stretch: int = STRETCH,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._db = db
        self._keep = keep
        self._stretch = stretch
        self._monotonic = monotonic

    async def __call__(self) -> Mapping[str, object]:
        """Forget; gives what was removed, for the scheduler's ledger."""
        stretches = Stretches(
            self._stretch,
            after=lambda: crash_point(RETENTION_AFTER_STRETCH),
            monotonic=self._monotonic,
        )
        removed: dict[str, int] = {}
        failed = False
        for name, step in self._steps():
            try:
                removed[name] = await stretches.all(step)
            except Exception as error:
                if is_transient(error):
                    raise
                failed = True
                _log.exception(
                    "A part of what is old cannot be removed; the other parts are.",
                    action="retention.part_failed",
                    part=name,
                )
        return {"removed": removed, "finished": stretches.finished and not failed}

    def _steps(self) -> Sequence[tuple[str, Callable[[], Awaitable[tuple[int, bool]]]]]:
        """Name the steps in order: what refers to something goes before it."""
        keep = self._keep
        return (
            ("output_days", self._output_days),
            ("output_chunks", self._deletes("prune_unplaced_output", keep.output)),
            ("runs", _Runs(self._db, keep.runs, self._stretch)),
            ("wakeups", self._deletes("prune_wakeups", keep.runs)),
            ("occurrences", self._deletes("prune_occurrences", keep.occurrences)),
            ("unused_keys", self._deletes("prune_unused_keys", keep.occurrences)),
            ("costs", self._deletes("prune_costs", keep.occurrences)),
            ("events_of_feed", self._feed),
            ("requests", self._requests),
        )

    def _deletes(self, query: str, keep: timedelta) -> Callable[[], Awaitable[tuple[int, bool]]]:
        async def step() -> tuple[int, bool]:
            async with self._db.session() as tx:
                count = await tx.execute(Q[query], keep, self._stretch)
            # What referred to something is gone now, so even a short stretch may have made room.
            return count, count > 0

        return step

    async def _output_days(self) -> tuple[int, bool]:
        async with self._db.transaction() as tx:
            day = await tx.fetchval(Q["drop_log_day"], self._keep.output)
        return (0, False) if day is None else (1, True)

    async def _feed(self) -> tuple[int, bool]:
        count = await feed.prune(self._db, self._keep.feed, self._stretch)
        return count, count == self._stretch

    async def _requests(self) -> tuple[int, bool]:
        count = await requests.prune(self._db, limit=self._stretch)
        return count, count == self._stretch


class _Runs:
    """The walk over old attempts, which some that are still needed may interrupt."""

    def __init__(self, db: Database, keep: timedelta, stretch: int) -> None:
        self._db = db
        self._keep = keep
        self._stretch = stretch
        self._beyond = _FIRST

    async def __call__(self) -> tuple[int, bool]:
        async with self._db.session() as tx:
            row = await tx.fetchrow(Q["prune_runs"], self._keep, self._beyond, self._stretch)
        if row is None:
            raise AssertionError("the function answers with one row")
        self._beyond = row["last_run"] or self._beyond
        return row["removed"], row["looked_at"] == self._stretch
