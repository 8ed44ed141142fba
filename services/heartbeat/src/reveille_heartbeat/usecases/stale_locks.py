"""Issues that name a run which is over: their locks count for nobody, and are cleared."""

from __future__ import annotations

from uuid import UUID

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
        """Make one round; give how many locks were cleared."""
        cleared = 0
        async for page in pages(self._db, Q["stale_locks"], "issue_id"):
            seen = {row["issue_id"]: row["execution_run_id"] for row in page}
            cleared += await self._clear(seen)
        return cleared

    async def _clear(self, seen: dict[UUID, UUID]) -> int:
        async def clear(tx: Tx) -> list[UUID]:
            await LockOrder().take(tx, Level.ISSUE, Q["lock_issues"], sorted(seen))
            rows = await tx.fetch(Q["clear_stale_locks"], list(seen), list(seen.values()))
            return [row["issue_id"] for row in rows]

        cleared = await retrying_transaction(self._db, clear, repeatable=True)
        for issue_id in cleared:
            _log.warning(
                "An issue named a run that is over; its lock was cleared.",
                action="issue.lock_cleared",
                issue_id=str(issue_id),
                run_id=str(seen[issue_id]),
            )
        return len(cleared)
