"""Reading what runs that wait, and wakes that were refused, depend on: for whoever asks why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from reveille_heartbeat.domain.limits import RunLimits, has_daily_cap
from reveille_heartbeat.domain.obstacles import Blocker, HoldOver
from reveille_heartbeat.domain.states import RunState
from reveille_heartbeat.domain.values import Agent, Issue, Run, Wakeup, Workspace
from reveille_heartbeat.domain.waiting import Around
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_agent, to_issue, to_wakeup, to_workspace
from reveille_heartbeat.usecases.issues.obstacles import open_blockers, pausing_holds
from reveille_heartbeat.usecases.runs.gating import read_waiting
from reveille_heartbeat.usecases.wakeups.wish_facts import read_today
from reveille_runtime.db import Tx

_WAITS = frozenset({RunState.QUEUED, RunState.SCHEDULED_RETRY})


@dataclass(frozen=True, slots=True)
class Setting:
    """What the operator has set for all: nothing runs, or only so many at once."""

    suppressed: bool = False
    limits: RunLimits = field(default_factory=RunLimits)


@dataclass(slots=True)
class Scene:
    """Everything around some rows, read once."""

    now: datetime
    agents: dict[UUID, Agent] = field(default_factory=dict)
    issues: dict[UUID, Issue] = field(default_factory=dict)
    holds: dict[UUID, HoldOver] = field(default_factory=dict)
    blockers: dict[UUID, tuple[Blocker, ...]] = field(default_factory=dict)
    holders: dict[UUID, UUID] = field(default_factory=dict)
    waits: dict[UUID, Around] = field(default_factory=dict)


async def read_scene(
    tx: Tx,
    setting: Setting,
    wakeups: Sequence[Wakeup],
    runs: Sequence[Run],
    issue_ids: Sequence[UUID] = (),
) -> Scene:
    """Look at what wakeups and runs are about, and at what keeps those runs that wait."""
    scene = Scene(await tx.fetchval(Q["read_clock"]))
    agents = {each.agent_id for each in wakeups} | {each.agent_id for each in runs}
    named = [*issue_ids, *(each.issue_id for each in wakeups), *(each.issue_id for each in runs)]
    issues = {each for each in named if each is not None}
    if issues:
        wanted = sorted(issues)
        found = await tx.fetch(Q["find_issues"], wanted)
        scene.issues = {row["issue_id"]: to_issue(row) for row in found}
        scene.holds = await pausing_holds(tx, wanted)
        scene.blockers = await open_blockers(tx, wanted)
        held = await tx.fetch(Q["holders_of_issues"], wanted)
        scene.holders = {row["issue_id"]: row["run_id"] for row in held}
        agents |= {
            each.reviewer_agent_id for each in scene.issues.values() if each.reviewer_agent_id
        }
    if agents:
        rows = await tx.fetch(Q["find_agents"], sorted(agents))
        scene.agents = {row["agent_id"]: to_agent(row) for row in rows}
    for run in runs:
        if run.state in _WAITS:
            scene.waits[run.run_id] = await _around(tx, setting, scene, run)
    return scene


async def _around(tx: Tx, setting: Setting, scene: Scene, run: Run) -> Around:
    agent = scene.agents[run.agent_id]
    wakeup = to_wakeup((await tx.fetch(Q["find_wakeups"], [run.wakeup_id]))[0])
    spaces = await tx.fetch(Q["find_workspaces"], [run.workspace_id])
    workspace: Workspace | None = to_workspace(spaces[0]) if spaces else None
    busy = await tx.fetch(Q["occupied_per_agent"], [run.agent_id])
    busy_in = (await tx.fetch(Q["occupied_in"], run.workspace_id))[0]
    today = None
    if has_daily_cap(agent.heartbeat):
        today = (await read_today(tx, [agent.agent_id]))[agent.agent_id]
    (waiting,) = await read_waiting(
        tx, [run], scene.agents, scene.issues, {wakeup.wakeup_id: wakeup}
    )
    return Around(
        now=scene.now,
        run=run,
        waiting=waiting,
        agent=agent,
        workspace=workspace,
        suppressed=setting.suppressed,
        limits=setting.limits,
        busy=busy[0]["occupied"] if busy else 0,
        busy_here=busy_in["here"],
        busy_everywhere=busy_in["everywhere"],
        holder=None if run.issue_id is None else scene.holders.get(run.issue_id),
        before=await tx.fetchval(Q["runs_before"], run.run_id),
        today=today,
    )
