"""Follow-up: what comes after an attempt, once its process is gone.

One transaction: the successor or the wakeup's outcome, the issue given back, a deferred wake
promoted, the slot free. It can be repeated from the rows alone.
"""

from __future__ import annotations

from typing import assert_never

from reveille_heartbeat.crash_points import FOLLOW_UP_AFTER_COMMIT, FOLLOW_UP_BEFORE_COMMIT
from reveille_heartbeat.domain.followup import Ended, Retry, Settle, next_step
from reveille_heartbeat.domain.queue import NO_PRIORITY, ready_rank
from reveille_heartbeat.domain.values import Issue, Run, Wakeup
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_issue, to_run, to_wakeup
from reveille_heartbeat.usecases import channels
from reveille_heartbeat.usecases.deciding import Decider
from reveille_heartbeat.usecases.ending import settle_wakeup
from reveille_heartbeat.usecases.promote_deferred import Promotion
from reveille_heartbeat.usecases.recording import NewRun, queue_runs, queued_event
from reveille_runtime import feed
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx, retrying_transaction
from reveille_runtime.hints import Notifier
from reveille_runtime.lease import Lease, LeaseLost
from reveille_runtime.lockorder import Level, LockOrder


class FollowUp:
    """Done by whoever holds the ended run."""

    def __init__(
        self, db: Database, notifier: Notifier, decider: Decider, promotion: Promotion
    ) -> None:
        self._db = db
        self._notifier = notifier
        self._decider = decider
        self._promotion = promotion

    async def __call__(self, lease: Lease, run: Run) -> None:
        """Do it; one that was done before is left as it is.

        Raises:
            LeaseLost: somebody else holds the run.
        """

        async def follow_up(tx: Tx) -> None:
            await self._in(tx, lease, run)
            crash_point(FOLLOW_UP_BEFORE_COMMIT)

        await retrying_transaction(self._db, follow_up, repeatable=True)
        crash_point(FOLLOW_UP_AFTER_COMMIT)
        self._notifier.notify(channels.QUEUE, channels.FEED)

    async def _in(self, tx: Tx, lease: Lease, known: Run) -> None:
        locks = LockOrder()
        issue: Issue | None = None
        if known.issue_id is not None:
            await locks.take(tx, Level.ISSUE, Q["lock_issues"], [known.issue_id])
            issue = to_issue((await tx.fetch(Q["find_issues"], [known.issue_id]))[0])
        await locks.take(tx, Level.WAKEUP, Q["lock_wakeups"], [known.wakeup_id])
        await locks.take(tx, Level.RUN, Q["lock_runs"], [known.run_id])
        run = to_run((await tx.fetch(Q["find_runs"], [known.run_id]))[0])
        if run.follow_up_done_at is not None:
            return
        if await tx.execute(Q["finish_follow_up"], lease.id, lease.token) == 0:
            raise LeaseLost(lease)
        wakeup = to_wakeup((await tx.fetch(Q["find_wakeups"], [run.wakeup_id]))[0])
        if issue is not None:
            await tx.execute(Q["clear_execution"], issue.issue_id, run.run_id)
        retried = await self._next(tx, run, wakeup, issue)
        if issue is not None and not retried:
            await self._promotion.promote(tx, {issue.issue_id: run.run_id})

    async def _next(self, tx: Tx, run: Run, wakeup: Wakeup, issue: Issue | None) -> bool:
        """Make the successor (True) or settle the wakeup."""
        step = next_step(
            Ended(run.state, run.reason, run.message, run.attempt),
            cancel_requested=wakeup.cancel_requested,
        )
        match step:
            case Settle():
                await settle_wakeup(tx, wakeup, step.state, step.reason, step.message, run)
                return False
            case Retry():
                await self._retry(tx, run, wakeup, issue, step)
                return True
            case _:
                assert_never(step)

    async def _retry(
        self, tx: Tx, run: Run, wakeup: Wakeup, issue: Issue | None, step: Retry
    ) -> None:
        run_carrier, agent_carrier = self._decider.carriers(wakeup.trace_carrier)
        successor = NewRun(
            run_id=self._decider.new_id(),
            wakeup_id=wakeup.wakeup_id,
            workspace_id=run.workspace_id,
            agent_id=run.agent_id,
            issue_id=run.issue_id,
            ready_rank=ready_rank(None if issue is None else issue.status),
            priority=NO_PRIORITY if issue is None else issue.priority,
            responsible_user_id=run.responsible_user_id,
            run_carrier=run_carrier,
            agent_carrier=agent_carrier,
            attempt=run.attempt + 1,
            retry_of_run_id=run.run_id,
            retry_reason=step.reason.value,
        )
        await queue_runs(tx, [successor])
        await tx.execute(Q["queue_next_attempt"], wakeup.wakeup_id, successor.run_id)
        await feed.append(
            tx, [queued_event(successor, wakeup.occurrence_key, wakeup.trace_carrier)]
        )
