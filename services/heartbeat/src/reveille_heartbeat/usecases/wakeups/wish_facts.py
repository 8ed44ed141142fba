"""Reading what the decisions about a batch of wishes may look at, in a few statements for all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias
from uuid import UUID

import asyncpg

from reveille_heartbeat.domain.enqueue import Comment, Facts, is_generic_timer
from reveille_heartbeat.domain.limits import (
    BRINGS_NOTHING_NEW,
    NOTHING_TODAY,
    SAMPLE,
    PastRun,
    Today,
    has_daily_cap,
)
from reveille_heartbeat.domain.obstacles import Blocker, HoldOver
from reveille_heartbeat.domain.placing import OpenWake, Stage
from reveille_heartbeat.domain.states import RunState, WakeupState
from reveille_heartbeat.domain.targets import Target
from reveille_heartbeat.domain.values import (
    Issue,
    Requester,
    RequesterKind,
    Wish,
    Workspace,
)
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_issue, to_workspace
from reveille_heartbeat.usecases.agents.targets import Targets, read_targets
from reveille_heartbeat.usecases.issues.obstacles import open_blockers, pausing_holds
from reveille_runtime.db import Tx

# Wakes that may join each other: of one agent, on one issue or, without one, on one task.
Scope: TypeAlias = tuple[UUID, UUID | None, str]
_Pair: TypeAlias = tuple[UUID, UUID | None]


def scope_of(wish: Wish) -> Scope:
    """Say which wakes this one may join."""
    return (wish.agent_id, wish.issue_id, "" if wish.issue_id is not None else wish.task_key)


@dataclass(slots=True)
class Found:
    """What was read for a batch, by id."""

    now: datetime
    suppressed: bool
    workspaces: dict[UUID, Workspace] = field(default_factory=dict)
    targets: Targets = field(default_factory=lambda: Targets({}, {}, {}))
    issues: dict[UUID, Issue] = field(default_factory=dict)
    parents: dict[UUID, str] = field(default_factory=dict)
    holds: dict[UUID, HoldOver] = field(default_factory=dict)
    blockers: dict[UUID, tuple[Blocker, ...]] = field(default_factory=dict)
    comments: dict[UUID, tuple[UUID, Comment]] = field(default_factory=dict)
    # Agents that were looked at and have nothing to do.
    workless: set[UUID] = field(default_factory=set)
    past: dict[_Pair, tuple[PastRun, ...]] = field(default_factory=dict)
    today: dict[UUID, Today] = field(default_factory=dict)

    def facts(self, wish: Wish) -> Facts:
        """Give what is known about one wish."""
        issue_id = wish.issue_id
        squad = None if wish.squad_id is None else self.targets.squads.get(wish.squad_id)
        target = Target(self.targets.agents.get(wish.agent_id), squad, self.targets.managers)
        today = self.today.get(wish.agent_id, NOTHING_TODAY)
        if issue_id is None:
            return Facts(
                now=self.now,
                suppressed=self.suppressed,
                workspace=self.workspaces.get(wish.workspace_id),
                target=target,
                has_work=wish.agent_id not in self.workless,
                past_runs=self.past.get((wish.agent_id, None), ()),
                today=today,
            )
        return Facts(
            now=self.now,
            suppressed=self.suppressed,
            workspace=self.workspaces.get(wish.workspace_id),
            target=target,
            issue=self.issues.get(issue_id),
            parent_responsible_user_id=self.parents.get(issue_id, ""),
            hold=self.holds.get(issue_id),
            blockers=self.blockers.get(issue_id, ()),
            comments=tuple(
                self.comments[each][1]
                for each in wish.comment_ids
                if each in self.comments and self.comments[each][0] == issue_id
            ),
            past_runs=self.past.get((wish.agent_id, issue_id), ()),
            today=today,
        )


async def read_facts(tx: Tx, wishes: Sequence[Wish], *, suppressed: bool) -> Found:
    """Read everything for wishes that are normalised, and whose locks are held."""
    found = Found(await tx.fetchval(Q["read_clock"]), suppressed)
    if suppressed or not wishes:
        return found
    spaces = await tx.fetch(Q["find_workspaces"], sorted({each.workspace_id for each in wishes}))
    found.workspaces = {row["workspace_id"]: to_workspace(row) for row in spaces}
    found.targets = await read_targets(
        tx,
        {each.agent_id for each in wishes},
        {each.squad_id for each in wishes if each.squad_id is not None},
    )
    issues = {each.issue_id for each in wishes if each.issue_id is not None}
    if issues:
        await _about_issues(tx, found, issues)
    await _about_comments(tx, found, {each for wish in wishes for each in wish.comment_ids})
    await _about_limits(tx, found, wishes)
    return found


async def _about_issues(tx: Tx, found: Found, issues: Collection[UUID]) -> None:
    wanted = sorted(issues)
    for row in await tx.fetch(Q["issue_facts"], wanted):
        found.issues[row["issue_id"]] = to_issue(row)
        found.parents[row["issue_id"]] = row["parent_responsible_user_id"]
    found.holds = await pausing_holds(tx, wanted)
    found.blockers = await open_blockers(tx, wanted)


async def _about_comments(tx: Tx, found: Found, comments: Collection[UUID]) -> None:
    if not comments:
        return
    for row in await tx.fetch(Q["comments_by_id"], sorted(comments)):
        author = Requester(RequesterKind(row["author_kind"]), row["author_id"])
        comment = Comment(row["comment_id"], author, row["run_id"], row["size"])
        found.comments[row["comment_id"]] = (row["issue_id"], comment)


async def _about_limits(tx: Tx, found: Found, wishes: Sequence[Wish]) -> None:
    """Look only where an agent's settings, or the kind of the wish, make it matter."""
    looks: set[UUID] = set()
    pairs: set[tuple[UUID, UUID]] = set()
    free: set[UUID] = set()
    for wish in wishes:
        agent = found.targets.agents.get(wish.agent_id)
        if agent is None:
            continue
        if agent.heartbeat.skip_timer_without_work and is_generic_timer(wish):
            looks.add(wish.agent_id)
        if wish.issue_id is not None:
            if agent.heartbeat.cooldown or wish.wake_reason in BRINGS_NOTHING_NEW:
                pairs.add((wish.agent_id, wish.issue_id))
        elif agent.heartbeat.cooldown:
            free.add(wish.agent_id)
    capped = [
        agent_id
        for agent_id, agent in found.targets.agents.items()
        if has_daily_cap(agent.heartbeat)
    ]
    if looks:
        rows = await tx.fetch(Q["agents_with_work"], sorted(looks))
        found.workless = looks - {row["agent_id"] for row in rows}
    if pairs:
        rows = await tx.fetch(
            Q["past_runs_of_issues"], [agent for agent, _ in pairs], [i for _, i in pairs], SAMPLE
        )
        past: dict[_Pair, list[PastRun]] = defaultdict(list)
        for row in rows:
            past[row["agent_id"], row["issue_id"]].append(_past_run(row))
        found.past.update({pair: tuple(runs) for pair, runs in past.items()})
    if free:
        for row in await tx.fetch(Q["last_free_runs"], sorted(free)):
            found.past[row["agent_id"], None] = (_past_run(row),)
    found.today = await read_today(tx, capped)


async def read_today(tx: Tx, agents: Collection[UUID]) -> dict[UUID, Today]:
    """Read what agents have had on this UTC day; the claim asks the same."""
    if not agents:
        return {}
    rows = await tx.fetch(Q["use_of_today"], sorted(agents))
    return {row["agent_id"]: Today(row["runs"], row["cost_cents"]) for row in rows}


def _past_run(row: asyncpg.Record) -> PastRun:
    return PastRun(
        row["finished_at"], row["state"] == RunState.SUCCEEDED.value, row["left_progress"]
    )


async def read_open_wakes(tx: Tx, wishes: Sequence[Wish]) -> dict[Scope, list[OpenWake]]:
    """Read which wakes the wishes may join; those with a key of their own join none."""
    scopes = {scope_of(each) for each in wishes if each.origin.occurrence_key is None}
    on_issues = [(agent, issue) for agent, issue, _ in scopes if issue is not None]
    on_tasks = [(agent, task) for agent, issue, task in scopes if issue is None]
    rows = []
    if on_issues:
        rows += await tx.fetch(
            Q["open_wakes_on_issues"],
            [agent for agent, _ in on_issues],
            [i for _, i in on_issues],
        )
    if on_tasks:
        rows += await tx.fetch(
            Q["open_wakes_on_tasks"],
            [agent for agent, _ in on_tasks],
            [t for _, t in on_tasks],
        )
    found: dict[Scope, list[OpenWake]] = defaultdict(list)
    for row in rows:
        wake = _open_wake(row)
        if wake is not None:
            task = "" if row["issue_id"] is not None else row["task_key"]
            found[row["agent_id"], row["issue_id"], task].append(wake)
    return found


async def read_busy_issues(tx: Tx, wishes: Sequence[Wish]) -> set[UUID]:
    """Read which issues have a run that waits or holds them."""
    issues = {each.issue_id for each in wishes if each.issue_id is not None}
    rows = await tx.fetch(Q["issues_with_run"], sorted(issues)) if issues else []
    return {row["issue_id"] for row in rows}


def _open_wake(row: asyncpg.Record) -> OpenWake | None:
    stage = _stage(WakeupState(row["state"]), row["run_state"])
    if stage is None:
        return None
    return OpenWake(
        wakeup_id=row["wakeup_id"],
        stage=stage,
        comment_ids=tuple(row["comment_ids"]),
        fresh_session=row["fresh_session"],
        context=row["context"],
        run_id=row["run_id"],
        joined=row["coalesced_count"],
        told_bytes=row["told_bytes"],
    )


def _stage(state: WakeupState, run_state: str | None) -> Stage | None:
    """Tell how far a wake is; None for one whose agent is at work, or has just ended."""
    if state is WakeupState.DEFERRED:
        return Stage.DEFERRED
    match run_state:
        case RunState.QUEUED.value:
            return Stage.QUEUED
        case RunState.SCHEDULED_RETRY.value:
            return Stage.RETRY
        case _:
            return None
