"""What the holder of a run writes while it works: fenced by id and token, every one of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from reveille_heartbeat.crash_points import CHECKOUT_AFTER_COMMIT
from reveille_heartbeat.domain.checkout import READY, begins_work
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_issue
from reveille_heartbeat.usecases.issues.checking_out import check_out
from reveille_heartbeat.usecases.runs.loaded import Loaded, load
from reveille_runtime import logs
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx, retrying_transaction
from reveille_runtime.errors import Aborted, FailedPrecondition
from reveille_runtime.lease import Lease
from reveille_runtime.lockorder import Level, LockOrder

_log = logs.get_logger(__name__)


class HeldRun:
    """The writes of an attempt in progress."""

    def __init__(self, db: Database, lease_duration: timedelta) -> None:
        self._db = db
        self._lease_duration = lease_duration

    async def renew(self, leases: Sequence[Lease]) -> set[UUID]:
        """Renew leases; those missing in the answer are lost."""
        async with self._db.session() as tx:
            rows = await tx.fetch(
                Q["renew_leases"],
                [lease.id for lease in leases],
                [lease.token for lease in leases],
                self._lease_duration,
            )
        return {row["run_id"] for row in rows}

    async def load(self, run_id: UUID) -> Loaded:
        """Read everything in one snapshot."""
        async with self._db.transaction(isolation="repeatable_read", readonly=True) as tx:
            return await load(tx, run_id)

    async def check_out(self, lease: Lease, loaded: Loaded) -> bool:
        """Check out the issue of an attempt that begins; False when it is not its to work on.

        A conflict is no failure: the agent can see who has the issue, and decide by itself.
        """
        run, issue_id = loaded.run, loaded.run.issue_id
        if issue_id is None:
            return False

        async def take(tx: Tx) -> bool:
            await LockOrder().take(tx, Level.ISSUE, Q["lock_issues"], [issue_id])
            issue = to_issue((await tx.fetch(Q["find_issues"], [issue_id]))[0])
            if not begins_work(issue, run.agent_id, loaded.wakeup.wake_reason):
                return False
            if not await tx.fetchval(Q["holds_run"], lease.id, lease.token):
                return False
            try:
                await check_out(tx, issue, run, READY)
            except (Aborted, FailedPrecondition) as refusal:
                _log.info(
                    "An attempt begins without its issue.",
                    action="run.not_checked_out",
                    run_id=str(run.run_id),
                    cause=refusal.message,
                )
                return False
            return True

        taken = await retrying_transaction(self._db, take, repeatable=True)
        crash_point(CHECKOUT_AFTER_COMMIT)
        return taken
