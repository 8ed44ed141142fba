"""CancelRun: end an attempt, and the wakeup it is made for; first the record, then the agent."""

from __future__ import annotations

from uuid import UUID

from reveille_heartbeat.crash_points import CANCEL_AFTER_COMMIT
from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import RUN_TERMINAL
from reveille_heartbeat.domain.values import Run
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_run
from reveille_heartbeat.usecases import channels
from reveille_heartbeat.usecases.runs.run_spans import RunSpans
from reveille_heartbeat.usecases.visible import require_visible
from reveille_heartbeat.usecases.wakeups.cancel_wakeups import tell_of_ends
from reveille_heartbeat.usecases.wakeups.ending import Ended, cancel_wakeup
from reveille_heartbeat.usecases.wakeups.promote_deferred import Promotion
from reveille_runtime.access import Actor
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx, retrying_transaction
from reveille_runtime.hints import Notifier
from reveille_runtime.lockorder import Level, LockOrder


class CancelRun:
    """From any replica: whoever executes the run hears of it, and ends its processes."""

    def __init__(
        self, db: Database, notifier: Notifier, spans: RunSpans, promotion: Promotion
    ) -> None:
        self._db = db
        self._notifier = notifier
        self._spans = spans
        self._promotion = promotion

    async def __call__(self, actor: Actor, run_id: UUID) -> Run:
        """Give the attempt as it stands then; one that has ended stays as it is.

        Raises:
            NotFound: there is no such attempt, or none that the caller may know of.
        """
        ended = Ended()
        message = f"cancelled by {actor.subject}"

        async def cancel(tx: Tx) -> Run:
            ended.runs.clear()
            rows = await tx.fetch(Q["find_runs"], [run_id])
            run = require_visible(actor, to_run(rows[0]) if rows else None, "run", run_id)
            if run.state in RUN_TERMINAL:
                return run
            return await self._in(tx, run, message, ended)

        run = await retrying_transaction(self._db, cancel, repeatable=True)
        crash_point(CANCEL_AFTER_COMMIT)
        await tell_of_ends(self._db, self._notifier, self._spans, ended)
        self._notifier.notify(channels.QUEUE)
        return run

    async def _in(self, tx: Tx, known: Run, message: str, ended: Ended) -> Run:
        # The row that a wake locks which wants to join this one.
        locks = LockOrder()
        if known.issue_id is None:
            await locks.take(tx, Level.AGENT, Q["lock_agents"], [known.agent_id])
        else:
            await locks.take(tx, Level.ISSUE, Q["lock_issues"], [known.issue_id])
        await locks.take(tx, Level.WAKEUP, Q["lock_wakeups"], [known.wakeup_id])
        run = to_run((await tx.fetch(Q["find_runs"], [known.run_id]))[0])
        # Its end may have come first, and with it a successor that nobody has asked to cancel.
        if run.state not in RUN_TERMINAL:
            await cancel_wakeup(tx, run.wakeup_id, Reason.CANCELLED, message, ended)
            if run.issue_id is not None:
                await self._promotion.promote(tx, {run.issue_id: run.run_id})
            run = to_run((await tx.fetch(Q["find_runs"], [known.run_id]))[0])
        return run
