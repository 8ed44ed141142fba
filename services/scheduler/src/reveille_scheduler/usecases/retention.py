"""The scheduler's own job: forget what is old. It is planned and handed over like any other.

Registered and executed by the scheduler itself, so that its own path is used by itself first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database
from reveille_runtime.requests import prune as prune_requests
from reveille_runtime.stretches import Stretches
from reveille_runtime.validation import NIL
from reveille_scheduler import crash_points
from reveille_scheduler.domain.job import Job
from reveille_scheduler.domain.rule import Cadence
from reveille_scheduler.domain.scope import ScopeWish
from reveille_scheduler.store import ledger, scopes

HANDLER = "scheduler"
JOB = Job(
    name="scheduler_retention",
    handler=HANDLER,
    catch_up_window=timedelta(days=2),
    max_lateness=None,
    run_timeout=timedelta(minutes=10),
    stale_timeout=timedelta(minutes=15),
    heartbeat_interval=timedelta(minutes=1),
    max_attempts=3,
    retry_backoff=(timedelta(minutes=1), timedelta(minutes=10)),
    retry_deadline=timedelta(hours=1),
    jitter=timedelta(minutes=10),
)
SCOPE = ScopeWish(
    job_name=JOB.name,
    kind="global",
    id="global",
    rule=Cadence(timedelta(hours=1)),
    enabled=True,
    revision=1,
    effective_from=None,
)
# Rows a stretch may remove.
STRETCH = 1000
_START = (datetime(1, 1, 2, tzinfo=UTC), NIL)


class Retention:
    """Removes old occurrences, tombstones and request ids, in stretches of their own transactions.

    A live scope's newest occurrence stays, and every key younger than its job's catch-up window.
    """

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
        beyond = _START

        async def stretch() -> tuple[int, bool]:
            nonlocal beyond
            async with self._database.session() as tx:
                pruned = await ledger.prune(tx, self._kept_for, beyond, self._stretch)
            if pruned.finished_at is not None and pruned.id is not None:
                beyond = (pruned.finished_at, pruned.id)
            return pruned.removed, pruned.looked_at >= self._stretch

        removed = await stretches.all(stretch)
        async with self._database.session() as tx:
            tombstones = await scopes.prune(tx, self._kept_for, self._stretch)
        requests = await prune_requests(self._database, limit=self._stretch)
        return {
            "executions_removed": removed,
            "scopes_removed": tombstones,
            "requests_removed": requests,
            "finished": stretches.finished,
        }
