"""Claiming: queued runs get an executor, a lease and their deadlines, a batch per transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from uuid import UUID

import asyncpg

from reveille_heartbeat.crash_points import CLAIM_AFTER_COMMIT, CLAIM_BEFORE_COMMIT
from reveille_heartbeat.domain.places import Executor
from reveille_heartbeat.domain.queue import Candidate, Slots, select
from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import IssueState, WakeupState
from reveille_heartbeat.domain.values import Run
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_run, to_wakeup
from reveille_heartbeat.usecases import channels, events, run_events
from reveille_heartbeat.usecases.ending import end_queued_run, settle_wakeup
from reveille_heartbeat.usecases.run_events import RunEvent
from reveille_runtime import feed
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx, retrying_transaction
from reveille_runtime.hints import Notifier
from reveille_runtime.lockorder import Level, LockOrder

_WORKSPACES = 1000


class ClaimRuns:
    """Claims for one executor, workspace by workspace, each time beginning with another one."""

    def __init__(
        self,
        db: Database,
        executor: Executor,
        lease: timedelta,
        notifier: Notifier,
        new_token: Callable[[], UUID],
    ) -> None:
        self._db = db
        self._executor = executor
        self._lease = lease
        self._notifier = notifier
        self._new_token = new_token
        self._last: UUID | None = None

    async def __call__(self, limit: int) -> list[Run]:
        """Claim up to `limit` runs; fewer does not mean that the queue is empty."""
        async with self._db.session() as tx:
            rows = await tx.fetch(Q["waiting_workspaces"], _WORKSPACES)
        claimed: list[Run] = []
        for workspace_id in self._in_turn([row["workspace_id"] for row in rows]):
            if len(claimed) >= limit:
                break
            claimed += await self._claim(workspace_id, limit - len(claimed))
            self._last = workspace_id
        return claimed

    def _in_turn(self, workspaces: list[UUID]) -> list[UUID]:
        """Go on after the workspace served last, so that a full queue starves nobody."""
        last = self._last
        if last is None:
            return workspaces
        later = [each for each in workspaces if each > last]
        return later + [each for each in workspaces if each <= last]

    async def _claim(self, workspace_id: UUID, limit: int) -> list[Run]:
        async def claim(tx: Tx) -> list[Run]:
            runs = await self._in(tx, workspace_id, limit)
            crash_point(CLAIM_BEFORE_COMMIT)
            return runs

        # Not repeated after an unknown COMMIT: recovery finds what it may have claimed.
        runs = await retrying_transaction(self._db, claim)
        if runs:
            crash_point(CLAIM_AFTER_COMMIT)
            self._notifier.notify(channels.FEED)
        return runs

    async def _in(self, tx: Tx, workspace_id: UUID, limit: int) -> list[Run]:
        locks = LockOrder()
        if await tx.fetchval(Q["lock_workspace_for_claim"], workspace_id) is None:
            return []
        locks.note(Level.WORKSPACE, [workspace_id])
        found = await tx.fetch(Q["claim_candidates"], workspace_id, limit)
        candidates = [_candidate(row) for row in found]
        if not candidates:
            return []
        agents = sorted({each.agent_id for each in candidates})
        issues = sorted({each.issue_id for each in candidates if each.issue_id is not None})
        caps = await locks.take(tx, Level.AGENT, Q["lock_agents"], agents)
        statuses = await locks.take(tx, Level.ISSUE, Q["lock_issues"], issues)
        wakeups = await locks.take(
            tx, Level.WAKEUP, Q["lock_wakeups"], [each.wakeup_id for each in candidates]
        )
        # All locks are held; what is counted now cannot grow before we commit.
        slots = await self._slots(tx, caps, issues, statuses)
        selection = select(candidates, slots, limit)
        for candidate in selection.closed:
            await self._skip(tx, candidate)
        return await self._take(tx, selection.claimed, wakeups)

    async def _slots(
        self,
        tx: Tx,
        caps: Sequence[asyncpg.Record],
        issues: list[UUID],
        statuses: Sequence[asyncpg.Record],
    ) -> Slots:
        rows = await tx.fetch(Q["occupied_per_agent"], [row["agent_id"] for row in caps])
        occupied = {row["agent_id"]: row["occupied"] for row in rows}
        busy = await tx.fetch(Q["occupied_issues"], issues) if issues else []
        return Slots(
            free={
                row["agent_id"]: row["max_concurrent_runs"] - occupied.get(row["agent_id"], 0)
                for row in caps
            },
            busy_issues={row["issue_id"] for row in busy},
            issue_status={row["issue_id"]: IssueState(row["status"]) for row in statuses},
        )

    async def _take(
        self, tx: Tx, candidates: Sequence[Candidate], wakeups: Sequence[asyncpg.Record]
    ) -> list[Run]:
        if not candidates:
            return []
        rows = await tx.fetch(
            Q["claim_runs"],
            [each.run_id for each in candidates],
            [self._new_token() for _ in candidates],
            self._executor.executor_id,
            str(self._executor.place),
            self._lease,
        )
        runs = [to_run(row) for row in rows]
        with_issue = [run for run in runs if run.issue_id is not None]
        if with_issue:
            await tx.execute(
                Q["stamp_execution"],
                [run.issue_id for run in with_issue],
                [run.run_id for run in with_issue],
            )
        await tx.execute(Q["claim_wakeups"], [run.wakeup_id for run in runs])
        executor = self._executor.executor_id
        await run_events.write(
            tx,
            [
                RunEvent(row["run_id"], row["event_seq"], "run.claimed", f"claimed by {executor}")
                for row in rows
            ],
        )
        of = {row["wakeup_id"]: row for row in wakeups}
        await feed.append(
            tx,
            [
                events.run_status(
                    run, of[run.wakeup_id]["occurrence_key"], of[run.wakeup_id]["trace_carrier"]
                )
                for run in runs
            ],
        )
        return runs

    async def _skip(self, tx: Tx, candidate: Candidate) -> None:
        """End a run whose issue has ended while it waited."""
        message = "its issue had ended before its turn came"
        run = await end_queued_run(tx, candidate.run_id, Reason.ISSUE_CLOSED, message)
        if run is None:
            return
        wakeup = to_wakeup((await tx.fetch(Q["find_wakeups"], [candidate.wakeup_id]))[0])
        # A repeat has begun its work before: that cannot be called skipped any more.
        state = WakeupState.SKIPPED if wakeup.state is WakeupState.QUEUED else WakeupState.CANCELLED
        await settle_wakeup(tx, wakeup, state, Reason.ISSUE_CLOSED.value, message, None)


def _candidate(row: asyncpg.Record) -> Candidate:
    return Candidate(
        run_id=row["run_id"],
        wakeup_id=row["wakeup_id"],
        agent_id=row["agent_id"],
        issue_id=row["issue_id"],
        ready_rank=row["ready_rank"],
        priority=row["priority"],
        created_at=row["created_at"],
    )
