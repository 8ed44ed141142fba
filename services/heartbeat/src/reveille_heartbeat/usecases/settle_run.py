"""Settling: the one terminal write of an attempt, with everything its result changes."""

from __future__ import annotations

from dataclasses import dataclass

from reveille_heartbeat.crash_points import SETTLE_AFTER_COMMIT, SETTLE_BEFORE_COMMIT
from reveille_heartbeat.domain.outcome import Outcome
from reveille_heartbeat.domain.values import Agent, Issue, Run, Wakeup
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_issue, to_run
from reveille_heartbeat.usecases import channels, events, run_events
from reveille_heartbeat.usecases.moving import move_issue
from reveille_heartbeat.usecases.run_events import RunEvent
from reveille_heartbeat.usecases.run_spans import RunSpans
from reveille_runtime import feed
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx, retrying_transaction
from reveille_runtime.hints import Notifier
from reveille_runtime.lease import Lease, LeaseLost
from reveille_runtime.lockorder import Level, LockOrder

# What is noted of an agent whose run was ended from outside, by whether it had something to say.
_LATE = ("run.late_result", "a result came after the run had ended, and changed nothing")
_STOPPED = ("run.stopped", "its agent does not run any more")


@dataclass(frozen=True, slots=True)
class Settled:
    """The run as it ended, and whether this outcome is the one that counts."""

    run: Run
    won: bool


class SettleRun:
    """Compare-and-set by the lease; a result that comes too late loses and is noted."""

    def __init__(self, db: Database, notifier: Notifier, spans: RunSpans) -> None:
        self._db = db
        self._notifier = notifier
        self._spans = spans

    async def __call__(
        self, lease: Lease, run: Run, agent: Agent, wakeup: Wakeup, outcome: Outcome
    ) -> Settled:
        """Write the outcome; repeating it after an unknown COMMIT finds the run settled.

        Raises:
            LeaseLost: the run is somebody else's.
        """

        async def settle(tx: Tx) -> Settled:
            settled = await self._in(tx, lease, run, wakeup, outcome)
            crash_point(SETTLE_BEFORE_COMMIT)
            return settled

        settled = await retrying_transaction(self._db, settle, repeatable=True)
        crash_point(SETTLE_AFTER_COMMIT)
        self._notifier.notify(channels.FEED)
        if settled.won:
            self._spans.ended(settled.run, agent)
        return settled

    async def _in(
        self, tx: Tx, lease: Lease, run: Run, wakeup: Wakeup, outcome: Outcome
    ) -> Settled:
        locks = LockOrder()
        issue: Issue | None = None
        if run.issue_id is not None:
            await locks.take(tx, Level.ISSUE, Q["lock_issues"], [run.issue_id])
            issue = to_issue((await tx.fetch(Q["find_issues"], [run.issue_id]))[0])
        locks.note(Level.RUN, [run.run_id])
        row = await tx.fetchrow(
            Q["settle_run"],
            lease.id,
            lease.token,
            outcome.state.value,
            outcome.reason.value if outcome.reason is not None else "",
            outcome.message,
            outcome.exit_code,
            outcome.summary,
            outcome.document,
        )
        if row is None:
            return await self._late(tx, lease, outcome)
        ended = to_run(row)
        facts = {"reason": ended.reason, "exit_code": ended.exit_code}
        if issue is not None and outcome.issue_status is not None:
            moved = await move_issue(tx, issue, outcome.issue_status)
            facts["issue_status"] = (moved or issue).status.value
        message = ended.message or ended.summary or "the agent ended well, and left no summary"
        await run_events.write(
            tx,
            [RunEvent(lease.id, row["event_seq"], f"run.{ended.state.value}", message, facts)],
        )
        await feed.append(
            tx, [events.run_status(ended, wakeup.occurrence_key, wakeup.trace_carrier)]
        )
        return Settled(ended, won=True)

    async def _late(self, tx: Tx, lease: Lease, outcome: Outcome) -> Settled:
        """Somebody else ended the run first, or holds it now."""
        seq = await tx.fetchval(Q["note_event"], lease.id, lease.token)
        if seq is None:
            raise LeaseLost(lease)
        kind, message = _LATE if outcome.brings_result else _STOPPED
        facts = {"state": outcome.state.value, "exit_code": outcome.exit_code}
        await run_events.write(tx, [RunEvent(lease.id, seq, kind, message, facts)])
        return Settled(to_run((await tx.fetch(Q["find_runs"], [lease.id]))[0]), won=False)
