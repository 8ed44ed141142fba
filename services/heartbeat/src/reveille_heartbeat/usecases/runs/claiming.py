"""One batch of claims in one transaction: locks, counts, gates, and the claim itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from uuid import UUID

import asyncpg

from reveille_heartbeat.domain.gates import refusal_of
from reveille_heartbeat.domain.limits import RunLimits, has_daily_cap, over_daily_cap
from reveille_heartbeat.domain.places import Executor
from reveille_heartbeat.domain.queue import Candidate, Slots, select
from reveille_heartbeat.domain.values import Agent, Issue, Refusal, Run, Wakeup
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_agent, to_issue, to_run, to_wakeup
from reveille_heartbeat.usecases import events
from reveille_heartbeat.usecases.agents.agent_statuses import begun
from reveille_heartbeat.usecases.runs import run_events
from reveille_heartbeat.usecases.runs.gating import read_waiting, refuse
from reveille_heartbeat.usecases.runs.loaded import Loaded, Words, read_words
from reveille_heartbeat.usecases.runs.run_events import RunEvent
from reveille_heartbeat.usecases.wakeups.promote_deferred import Promotion
from reveille_heartbeat.usecases.wakeups.wish_facts import read_today
from reveille_runtime import feed
from reveille_runtime.db import Tx
from reveille_runtime.lockorder import Level, LockOrder

# More than any batch takes.
_ANY = 1_000_000


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a batch did: runs to begin, whole, and how many it ended instead."""

    runs: list[Loaded]
    refused: int = 0
    # How much these runs are told.
    told_bytes: int = 0


class ClaimBatch:
    """The work of one transaction. The workspace's lock covers its and its agents' slots."""

    def __init__(
        self,
        tx: Tx,
        executor: Executor,
        lease: timedelta,
        promotion: Promotion,
        new_token: Callable[[], UUID],
        limits: RunLimits,
    ) -> None:
        self._tx = tx
        self._executor = executor
        self._lease = lease
        self._promotion = promotion
        self._new_token = new_token
        self._limits = limits
        self._agents: dict[UUID, Agent] = {}
        self._issues: dict[UUID, Issue] = {}
        self._wakeups: dict[UUID, Wakeup] = {}
        self._told_bytes: dict[UUID, int] = {}
        # Agents that have a run at work already.
        self._at_work: set[UUID] = set()

    async def run(self, workspace_id: UUID, limit: int, bytes_room: int) -> Claimed:
        """Claim up to `limit` runs of a workspace, until they are told `bytes_room` bytes."""
        tx = self._tx
        if self._limits.everywhere is not None:
            await tx.fetch(Q["lock_claim_gate"])
        if await tx.fetchval(Q["lock_workspace_for_claim"], workspace_id) is None:
            return Claimed([])
        found = await tx.fetch(Q["claim_candidates"], workspace_id, limit)
        candidates = [_candidate(row) for row in found]
        if not candidates:
            return Claimed([])
        await tx.execute(Q["limit_claim_waits"])
        await self._lock(workspace_id, candidates)
        # All locks are held; what is counted now cannot grow before we commit.
        today, over = await self._day()
        slots = await self._slots(workspace_id, limit, bytes_room, today)
        selection = select(candidates, slots, await self._refusals(candidates, over))
        refused = await refuse(tx, selection.refused, self._wakeups, self._promotion)
        snapshot: str = found[0]["snapshot"]
        runs = await self._take(selection.claimed, snapshot) if selection.claimed else []
        told = sum(self._told_bytes[each.wakeup.wakeup_id] for each in runs)
        return Claimed(runs, refused, told)

    async def _lock(self, workspace_id: UUID, candidates: Sequence[Candidate]) -> None:
        tx, locks = self._tx, LockOrder()
        locks.note(Level.WORKSPACE, [workspace_id])
        agents = await locks.take(
            tx, Level.AGENT, Q["claim_agents"], [each.agent_id for each in candidates]
        )
        issues = await locks.take(
            tx,
            Level.ISSUE,
            Q["claim_issues"],
            [each.issue_id for each in candidates if each.issue_id is not None],
        )
        wakeups = await locks.take(
            tx,
            Level.WAKEUP,
            Q["claim_wakeups_whole"],
            [each.wakeup_id for each in candidates],
        )
        self._agents = {row["agent_id"]: to_agent(row) for row in agents}
        self._issues = {row["issue_id"]: to_issue(row) for row in issues}
        self._wakeups = {row["wakeup_id"]: to_wakeup(row) for row in wakeups}
        self._told_bytes = {row["wakeup_id"]: row["told_bytes"] for row in wakeups}

    async def _slots(
        self, workspace_id: UUID, limit: int, bytes_room: int, today: dict[UUID, int]
    ) -> Slots:
        tx, agents = self._tx, self._agents
        rows = await tx.fetch(Q["occupied_per_agent"], list(agents))
        occupied = {row["agent_id"]: row["occupied"] for row in rows}
        self._at_work = set(occupied)
        issues = list(self._issues)
        busy = await tx.fetch(Q["occupied_issues"], issues) if issues else []
        return Slots(
            room=min(limit, await self._room(workspace_id)),
            free={
                agent_id: agent.max_concurrent_runs - occupied.get(agent_id, 0)
                for agent_id, agent in agents.items()
            },
            today=today,
            busy_issues={row["issue_id"] for row in busy},
            told_bytes=self._told_bytes,
            bytes_room=bytes_room,
        )

    async def _room(self, workspace_id: UUID) -> int:
        """Say how many runs the limits of the workspace and of all workspaces leave."""
        limits = self._limits
        if limits.workspace is None and limits.everywhere is None:
            return _ANY
        row = (await self._tx.fetch(Q["occupied_in"], workspace_id))[0]
        here = _ANY if limits.workspace is None else limits.workspace - row["here"]
        everywhere = _ANY if limits.everywhere is None else limits.everywhere - row["everywhere"]
        return max(0, min(here, everywhere))

    async def _refusals(
        self, candidates: Sequence[Candidate], over: Mapping[UUID, Refusal]
    ) -> dict[UUID, Refusal]:
        """Ask the gates of each candidate; `over` are agents whose day is over."""
        waiting = await read_waiting(
            self._tx, candidates, self._agents, self._issues, self._wakeups
        )
        refusals = ((run, refusal_of(run) or over.get(run.agent_id)) for run in waiting)
        return {run.run_id: refusal for run, refusal in refusals if refusal is not None}

    async def _day(self) -> tuple[dict[UUID, int], dict[UUID, Refusal]]:
        """Say how many runs agents may begin today, and whose day has cost enough already."""
        capped = {
            agent_id: agent.heartbeat
            for agent_id, agent in self._agents.items()
            if has_daily_cap(agent.heartbeat)
        }
        today = await read_today(self._tx, capped.keys())
        left: dict[UUID, int] = {}
        refusals: dict[UUID, Refusal] = {}
        for agent_id, policy in capped.items():
            refusal = over_daily_cap(policy, today[agent_id])
            if refusal is not None:
                refusals[agent_id] = refusal
            elif policy.max_daily_runs is not None:
                left[agent_id] = policy.max_daily_runs - today[agent_id].runs
        return left, refusals

    async def _take(self, candidates: Sequence[Candidate], snapshot: str) -> list[Loaded]:
        tx, executor = self._tx, self._executor
        rows = await tx.fetch(
            Q["claim_runs"],
            [each.run_id for each in candidates],
            [self._new_token() for _ in candidates],
            executor.executor_id,
            str(executor.place),
            self._lease,
        )
        runs = [to_run(row) for row in rows]
        with_issue = [run for run in runs if run.issue_id is not None]
        if with_issue:
            await tx.execute(
                Q["stamp_execution"],
                [run.issue_id for run in with_issue],
                [run.run_id for run in with_issue],
                [run.agent_id for run in with_issue],
            )
        wakeups = [self._wakeups[run.wakeup_id] for run in runs]
        await tx.execute(Q["claim_wakeups"], [each.wakeup_id for each in wakeups])
        words = await read_words(tx, wakeups)
        message, facts = f"claimed by {executor.executor_id}", {"snapshot": snapshot}
        await run_events.write(
            tx,
            [
                RunEvent(row["run_id"], row["event_seq"], "run.claimed", message, facts)
                for row in rows
            ],
        )
        loaded = [self._loaded(run, words[run.wakeup_id]) for run in runs]
        told = await begun(tx, {run.agent_id for run in runs} - self._at_work)
        told += [
            events.run_status(each.run, each.wakeup.occurrence_key, each.wakeup.trace_carrier)
            for each in loaded
        ]
        await feed.append(tx, told)
        return loaded

    def _loaded(self, run: Run, words: Words) -> Loaded:
        """Everything that the attempt needs, as it stands under the locks."""
        issue = None if run.issue_id is None else self._issues[run.issue_id]
        if issue is not None and issue.assignee_agent_id == run.agent_id:
            issue = replace(issue, execution_run_id=run.run_id)
        return Loaded(run, self._agents[run.agent_id], self._wakeups[run.wakeup_id], issue, words)


def _candidate(row: asyncpg.Record) -> Candidate:
    return Candidate(
        run_id=row["run_id"],
        wakeup_id=row["wakeup_id"],
        agent_id=row["agent_id"],
        issue_id=row["issue_id"],
        ready_rank=row["ready_rank"],
        priority=row["priority"],
        created_at=row["created_at"],
        retry_of_run_id=row["retry_of_run_id"],
        retry_reason=row["retry_reason"],
    )
