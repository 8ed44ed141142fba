"""Promotion: when an issue is free, the oldest wake that waited for it gets its turn."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from reveille_heartbeat.domain.queue import ready_rank
from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import ISSUE_TERMINAL, WakeupState
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_issue, to_wakeup
from reveille_heartbeat.usecases import channels
from reveille_heartbeat.usecases.deciding import Decider
from reveille_heartbeat.usecases.ending import settle_wakeup
from reveille_heartbeat.usecases.recording import NewRun, queue_runs, queued_event
from reveille_runtime import feed
from reveille_runtime.db import Database, Tx, retrying_transaction
from reveille_runtime.hints import Notifier
from reveille_runtime.lockorder import Level, LockOrder

_BATCH = 100


async def promote_deferred(
    tx: Tx, issue_id: UUID, decider: Decider, start_limit: timedelta
) -> UUID | None:
    """Queue the oldest deferred wake of an issue whose lock is held; give its run.

    On an issue that has ended nothing is left to do: its deferred wakes are skipped.
    """
    issue = to_issue((await tx.fetch(Q["find_issues"], [issue_id]))[0])
    while True:
        row = await tx.fetchrow(Q["oldest_deferred"], issue_id)
        if row is None:
            return None
        wakeup = to_wakeup(row)
        if issue.status in ISSUE_TERMINAL:
            message = f"issue {issue.identifier} is {issue.status.value}"
            await settle_wakeup(
                tx, wakeup, WakeupState.SKIPPED, Reason.ISSUE_CLOSED.value, message, None
            )
            continue
        run_carrier, agent_carrier = decider.carriers(wakeup.trace_carrier)
        run = NewRun(
            run_id=decider.new_id(),
            wakeup_id=wakeup.wakeup_id,
            workspace_id=wakeup.workspace_id,
            agent_id=wakeup.agent_id,
            issue_id=issue_id,
            ready_rank=ready_rank(issue.status),
            priority=issue.priority,
            responsible_user_id=wakeup.responsible_user_id,
            run_carrier=run_carrier,
            agent_carrier=agent_carrier,
        )
        promoted = await tx.fetchrow(
            Q["promote_deferred"], wakeup.wakeup_id, run.run_id, wakeup.responsible_user_id
        )
        if promoted is None:
            raise AssertionError("the row is locked and was deferred")
        await queue_runs(tx, [run], start_limit)
        await feed.append(tx, [queued_event(run, wakeup.occurrence_key, wakeup.trace_carrier)])
        return run.run_id


class PromoteStranded:
    """Finds deferred wakes that no ending run will promote."""

    def __init__(
        self, db: Database, notifier: Notifier, decider: Decider, start_limit: timedelta
    ) -> None:
        self._db = db
        self._notifier = notifier
        self._decider = decider
        self._start_limit = start_limit

    async def __call__(self) -> int:
        """Promote one wake per issue; give how many were."""
        async with self._db.session() as tx:
            rows = await tx.fetch(Q["stranded_issues"], _BATCH)
        promoted = 0
        for row in rows:
            issue_id: UUID = row["issue_id"]

            async def promote(tx: Tx, issue_id: UUID = issue_id) -> UUID | None:
                await LockOrder().take(tx, Level.ISSUE, Q["lock_issues"], [issue_id])
                # A run may have come since the look without the lock.
                if await tx.fetch(Q["issues_with_run"], [issue_id]):
                    return None
                return await promote_deferred(tx, issue_id, self._decider, self._start_limit)

            if await retrying_transaction(self._db, promote, repeatable=True) is not None:
                promoted += 1
        if rows:
            self._notifier.notify(channels.QUEUE, channels.FEED)
        return promoted
