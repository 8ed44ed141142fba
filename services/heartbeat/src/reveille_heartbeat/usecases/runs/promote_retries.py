"""Repeats get their turn: when their time has come, or at once when somebody asks for it.

What has changed since the failed attempt is asked again: a repeat whose agent rests, or whose issue
has ended, went to somebody else, is held or blocked, ends with the reason and frees its issue.
"""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from reveille_heartbeat.domain.gates import refusal_of
from reveille_heartbeat.domain.queue import ready_rank
from reveille_heartbeat.domain.states import RunState
from reveille_heartbeat.domain.values import Refusal
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_agent, to_issue, to_run, to_wakeup
from reveille_heartbeat.usecases import channels, events
from reveille_heartbeat.usecases.runs import run_events
from reveille_heartbeat.usecases.runs.gating import read_waiting, refuse
from reveille_heartbeat.usecases.runs.run_events import RunEvent
from reveille_heartbeat.usecases.wakeups.promote_deferred import Promotion
from reveille_runtime import feed
from reveille_runtime.db import Database, Tx, retrying_transaction
from reveille_runtime.hints import Notifier
from reveille_runtime.isolation import isolated
from reveille_runtime.lockorder import Level, LockOrder

_BATCH = 50
_FIRST = (datetime.min.replace(tzinfo=UTC), UUID(int=0))


class RetryTurn:
    """The turn of one repeat, inside the caller's transaction; it takes its locks itself."""

    def __init__(self, promotion: Promotion) -> None:
        self._promotion = promotion

    async def take(self, tx: Tx, run_id: UUID, *, due: bool) -> Refusal | bool:
        """Queue a repeat that waits, with `due` only if its time has come.

        True: it is in the queue now. False: it does not wait, or not until now; nothing was done.
        A refusal: a gate has ended it.
        """
        known = to_run((await tx.fetch(Q["find_runs"], [run_id]))[0])
        locks = LockOrder()
        agents = await locks.take(tx, Level.AGENT, Q["claim_agents"], [known.agent_id])
        issues = (
            []
            if known.issue_id is None
            else await locks.take(tx, Level.ISSUE, Q["claim_issues"], [known.issue_id])
        )
        wakeups = await locks.take(tx, Level.WAKEUP, Q["claim_wakeups_whole"], [known.wakeup_id])
        run = to_run((await tx.fetch(Q["find_runs"], [run_id]))[0])
        if run.state is not RunState.SCHEDULED_RETRY:
            return False
        wakeup = to_wakeup(wakeups[0])
        (waiting,) = await read_waiting(
            tx,
            [run],
            {run.agent_id: to_agent(agents[0])},
            {row["issue_id"]: to_issue(row) for row in issues},
            {run.wakeup_id: wakeup},
        )
        if due and not await tx.fetchval(Q["retry_is_due"], run_id):
            return False
        refusal = refusal_of(waiting)
        if refusal is not None:
            ended = await refuse(tx, [(run, refusal)], {run.wakeup_id: wakeup}, self._promotion)
            return refusal if ended else False
        status = None if waiting.issue is None else waiting.issue.status
        rank = ready_rank(status, waits=bool(waiting.blockers))
        row = await tx.fetchrow(Q["queue_retries"], [run_id], [rank], due)
        if row is None:
            return False
        message = "its time has come" if due else "somebody asked for it now"
        await run_events.write(tx, [RunEvent(run_id, row["event_seq"], "run.queued", message)])
        queued = to_run((await tx.fetch(Q["find_runs"], [run_id]))[0])
        told = events.run_status(queued, wakeup.occurrence_key, wakeup.trace_carrier, "run.queued")
        await feed.append(tx, [told])
        return True


class PromoteRetries:
    """The sweep's part: every replica looks, and of two that find the same repeat one gets it."""

    def __init__(self, db: Database, notifier: Notifier, turn: RetryTurn) -> None:
        self._db = db
        self._notifier = notifier
        self._turn = turn
        self._after = _FIRST

    async def __call__(self) -> int:
        """Queue some of what is due; those that fail leave the others their turn.

        The next call goes on behind these, until it has been round.
        """
        async with self._db.session() as tx:
            due = await tx.fetch(Q["due_retries"], *self._after, _BATCH)
        last = due[-1] if len(due) == _BATCH else None
        self._after = _FIRST if last is None else (last["scheduled_retry_at"], last["run_id"])
        moved = 0
        for run_id in (row["run_id"] for row in due):

            async def take(tx: Tx, run_id: UUID = run_id) -> Refusal | bool:
                return await self._turn.take(tx, run_id, due=True)

            with isolated("promote_retry", run_id=str(run_id)):
                taken = await retrying_transaction(self._db, take, repeatable=True)
                moved += taken is not False
        if moved:
            self._notifier.notify(channels.QUEUE, channels.FEED)
        return moved
