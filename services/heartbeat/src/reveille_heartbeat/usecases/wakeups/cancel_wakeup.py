"""CancelWakeup: nothing more comes of one wakeup; first the record, then the agent."""

from __future__ import annotations

from uuid import UUID

from reveille_heartbeat.crash_points import CANCEL_AFTER_COMMIT
from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import WakeupState
from reveille_heartbeat.domain.values import Wakeup
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_wakeup
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


class CancelWakeup:
    """For people, who name a wakeup; occurrences are cancelled by their keys."""

    def __init__(
        self, db: Database, notifier: Notifier, spans: RunSpans, promotion: Promotion
    ) -> None:
        self._db = db
        self._notifier = notifier
        self._spans = spans
        self._promotion = promotion

    async def __call__(self, actor: Actor, wakeup_id: UUID) -> Wakeup:
        """Give it as it stands then; one that has ended stays as it is.

        Raises:
            NotFound: there is no such wakeup, or none that the caller may know of.
        """
        ended = Ended()

        async def cancel(tx: Tx) -> Wakeup:
            ended.clear()
            rows = await tx.fetch(Q["find_wakeups"], [wakeup_id])
            wakeup = to_wakeup(rows[0]) if rows else None
            known = require_visible(actor, wakeup, "wakeup", wakeup_id)
            return await self._in(tx, known, f"cancelled by {actor.subject}", ended)

        wakeup = await retrying_transaction(self._db, cancel, repeatable=True)
        crash_point(CANCEL_AFTER_COMMIT)
        await tell_of_ends(self._db, self._notifier, self._spans, ended)
        self._notifier.notify(channels.QUEUE)
        return wakeup

    async def _in(self, tx: Tx, known: Wakeup, message: str, ended: Ended) -> Wakeup:
        # The row that a wake locks which wants to join this one.
        locks = LockOrder()
        if known.issue_id is None:
            await locks.take(tx, Level.AGENT, Q["lock_agents"], [known.agent_id])
        else:
            await locks.take(tx, Level.ISSUE, Q["lock_issues"], [known.issue_id])
        joined = known.joined_wakeup_id
        wakeups = [known.wakeup_id] if joined is None else [joined, known.wakeup_id]
        await locks.take(tx, Level.WAKEUP, Q["lock_wakeups"], wakeups)
        before = to_wakeup((await tx.fetch(Q["find_wakeups"], [known.wakeup_id]))[0])
        await cancel_wakeup(tx, known.wakeup_id, Reason.CANCELLED, message, ended)
        if before.state is WakeupState.COALESCED:
            # The one it had joined has room for another.
            await tx.execute(Q["leave_wake"], joined, known.wakeup_id)
        if known.issue_id is not None:
            await self._promotion.promote(tx, {known.issue_id: None})
        return to_wakeup((await tx.fetch(Q["find_wakeups"], [known.wakeup_id]))[0])
