"""CancelWakeups: end what occurrence keys have made, and use up keys that have made nothing yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from reveille_heartbeat.crash_points import CANCEL_AFTER_COMMIT
from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import IssueState, WakeupState
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_agent, to_issue
from reveille_heartbeat.usecases import channels
from reveille_heartbeat.usecases.issues.authors import HEARTBEAT
from reveille_heartbeat.usecases.issues.consequences import Consequences
from reveille_heartbeat.usecases.issues.moving import lock_related, move_issue
from reveille_heartbeat.usecases.runs.run_spans import RunSpans
from reveille_heartbeat.usecases.wakeups.ending import Ended, cancel_issue_wakeups, cancel_wakeup
from reveille_heartbeat.usecases.wakeups.promote_deferred import Promotion
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx, retrying_transaction
from reveille_runtime.hints import Notifier
from reveille_runtime.lockorder import Level, LockOrder


@dataclass(frozen=True, slots=True)
class Cancellation:
    """A key to cancel, and who asks."""

    workspace_id: UUID
    occurrence_key: str
    user_id: str


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What became of it."""

    occurrence_key: str
    state: WakeupState
    wakeup_id: UUID | None = None
    issue_id: UUID | None = None
    recorded: bool = False


class CancelWakeups:
    """Each key in a transaction of its own: a cancelled row is worth having by itself."""

    def __init__(
        self,
        db: Database,
        notifier: Notifier,
        spans: RunSpans,
        promotion: Promotion,
        consequences: Consequences,
    ) -> None:
        self._db = db
        self._notifier = notifier
        self._spans = spans
        self._promotion = promotion
        self._consequences = consequences

    async def __call__(self, cancellations: Sequence[Cancellation]) -> list[Cancelled]:
        """Give one answer per key, in order; repeating is harmless."""
        return [await self._cancel(each) for each in cancellations]

    async def _cancel(self, wanted: Cancellation) -> Cancelled:
        ended = Ended()

        async def cancel(tx: Tx) -> Cancelled:
            ended.clear()
            return await self._in(tx, wanted, ended)

        answer = await retrying_transaction(self._db, cancel, repeatable=True)
        crash_point(CANCEL_AFTER_COMMIT)
        await tell_of_ends(self._db, self._notifier, self._spans, ended)
        return answer

    async def _in(self, tx: Tx, wanted: Cancellation, ended: Ended) -> Cancelled:
        key = (wanted.workspace_id, wanted.occurrence_key)
        if await tx.fetchval(Q["record_cancelled_occurrence"], *key) is not None:
            return Cancelled(wanted.occurrence_key, WakeupState.CANCELLED, recorded=True)
        made = await tx.fetchrow(Q["lock_occurrence"], *key)
        if made is None or made["wakeup_id"] is None:
            return Cancelled(wanted.occurrence_key, WakeupState.CANCELLED, recorded=True)
        await tx.execute(Q["cancel_occurrence"], *key)
        message = f"cancelled by {wanted.user_id or 'its rule'}"
        if made["issue_id"] is not None:
            await self._cancel_issue(tx, made["issue_id"], message, ended)
        state = await self._cancel_wakeup(tx, made["wakeup_id"], message, ended)
        return Cancelled(wanted.occurrence_key, state, made["wakeup_id"], made["issue_id"])

    async def _cancel_wakeup(
        self, tx: Tx, wakeup_id: UUID, message: str, ended: Ended
    ) -> WakeupState:
        issue_id = (await tx.fetch(Q["find_wakeups"], [wakeup_id]))[0]["issue_id"]
        if issue_id is not None:
            await LockOrder().take(tx, Level.ISSUE, Q["lock_issues"], [issue_id])
        state = await cancel_wakeup(tx, wakeup_id, Reason.CANCELLED, message, ended)
        if issue_id is not None:
            # What waited behind it need not wait for the sweep.
            await self._promotion.promote(tx, {issue_id: None})
        return state

    async def _cancel_issue(self, tx: Tx, issue_id: UUID, message: str, ended: Ended) -> None:
        """Cancel the issue, and with it everything that was wanted of it."""
        await lock_related(tx, LockOrder(), [issue_id])
        issue = to_issue((await tx.fetch(Q["find_issues"], [issue_id]))[0])
        moved = await move_issue(tx, issue, IssueState.CANCELLED)
        await cancel_issue_wakeups(tx, issue_id, Reason.CANCELLED, message, ended)
        if moved is not None:
            await self._consequences.follow(tx, [(issue, moved)], HEARTBEAT, ended)


async def tell_of_ends(db: Database, notifier: Notifier, spans: RunSpans, ended: Ended) -> None:
    """After the commit: wake who must act on it, and emit the spans of the runs that ended."""
    notifier.notify(channels.FEED, *([channels.STOPS] if ended.stops else []))
    if not ended.runs:
        return
    async with db.session() as tx:
        rows = await tx.fetch(Q["find_agents"], sorted({run.agent_id for run in ended.runs}))
    agents = {row["agent_id"]: to_agent(row) for row in rows}
    for run in ended.runs:
        spans.ended(run, agents.get(run.agent_id))
