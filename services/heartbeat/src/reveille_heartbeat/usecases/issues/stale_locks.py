"""Issues that name runs which are over: their locks count for nobody, and are cleared."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import asyncpg

from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.usecases.pages import pages
from reveille_runtime import logs
from reveille_runtime.db import Database, Tx, retrying_transaction
from reveille_runtime.lockorder import Level, LockOrder

_log = logs.get_logger(__name__)


class ClearStaleLocks:
    """Follow-up gives an issue back with its run; this is for what a restored backup brings."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def __call__(self) -> int:
        """Make one round; give how many issues were freed."""
        freed = 0
        async for page in pages(self._db, Q["stale_locks"], "issue_id"):
            freed += await self._clear(page)
        return freed

    async def _clear(self, seen: Sequence[asyncpg.Record]) -> int:
        issues = [row["issue_id"] for row in seen]

        async def clear(tx: Tx) -> list[UUID]:
            await LockOrder().take(tx, Level.ISSUE, Q["lock_issues"], issues)
            rows = await tx.fetch(
                Q["clear_stale_locks"],
                issues,
                [row["execution_run_id"] for row in seen],
                [row["checkout_run_id"] for row in seen],
            )
            return [row["issue_id"] for row in rows]

        freed = await retrying_transaction(self._db, clear, repeatable=True)
        for issue_id in freed:
            _log.warning(
                "An issue named a run that is over; its lock was cleared.",
                action="issue.lock_cleared",
                issue_id=str(issue_id),
            )
        return len(freed)
