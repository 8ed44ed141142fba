"""Explain: what heartbeat knows about an id or an occurrence key."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import asyncpg

from reveille_heartbeat.domain.bounds import bounded_text
from reveille_heartbeat.domain.values import Agent
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_issue, to_run, to_wakeup
from reveille_heartbeat.usecases.agents.targets import Targets, read_targets
from reveille_heartbeat.usecases.visible import is_visible
from reveille_heartbeat.usecases.wakeups.wish_facts import read_today
from reveille_heartbeat.usecases.why import findings
from reveille_heartbeat.usecases.why.agent_findings import Standing, about_agent, about_squad
from reveille_heartbeat.usecases.why.explaining import Scene, Setting, read_scene
from reveille_runtime.access import Actor, current_actor
from reveille_runtime.db import Database, Tx
from reveille_runtime.explain import Finding, uuid_or_none

_NEWEST = 20
# An adapter may tell as much as it likes; whoever wants all of it watches the attempt.
_EVENTS = 100
_EVENT_TEXT = 500


class Explain:
    """Looks an id up in every table, and tells what stands there and around it."""

    def __init__(self, db: Database, setting: Setting) -> None:
        self._db = db
        self._setting = setting

    async def __call__(self, text: str) -> list[Finding]:
        """Give the findings that the caller may see; none for an id that is not ours."""
        actor = current_actor()
        async with self._db.session() as tx:
            row_id = uuid_or_none(text)
            if row_id is None:
                return await self._occurrence(tx, actor, text)
            for look in (self._wakeup, self._run, self._issue, self._agent, self._squad):
                found = await look(tx, actor, row_id)
                if found:
                    return found
        return []

    async def _occurrence(self, tx: Tx, actor: Actor, key: str) -> list[Finding]:
        found: list[Finding] = []
        for row in await tx.fetch(Q["explain_occurrence"], key):
            if actor.role_in(row["workspace_id"]) is None:
                continue
            if row["wakeup_id"] is None:
                found.append(findings.about_cancelled_occurrence(key, row["cancelled_at"]))
                continue
            if row["issue_id"] is not None:
                found += await self._issue(tx, actor, row["issue_id"])
            else:
                found += await self._wakeup(tx, actor, row["wakeup_id"])
        return found

    async def _wakeup(self, tx: Tx, actor: Actor, wakeup_id: UUID) -> list[Finding]:
        rows = await tx.fetch(Q["find_wakeups"], [wakeup_id])
        if not rows or not is_visible(actor, to_wakeup(rows[0])):
            return []
        runs = await tx.fetch(Q["runs_of_wakeup"], wakeup_id)
        joined = await tx.fetch(Q["find_joined"], wakeup_id, _NEWEST)
        return (await self._told(tx, [*rows, *joined], runs))[0]

    async def _run(self, tx: Tx, actor: Actor, run_id: UUID) -> list[Finding]:
        rows = await tx.fetch(Q["find_runs"], [run_id])
        if not rows or not is_visible(actor, to_run(rows[0])):
            return []
        found = await self._wakeup(tx, actor, rows[0]["wakeup_id"])
        events = await tx.fetch(Q["run_events"], run_id, _EVENTS)
        return found + [
            Finding(
                time=row["created_at"],
                subject="agent_run",
                subject_id=str(run_id),
                state=row["type"],
                text=bounded_text(row["message"], _EVENT_TEXT) or row["type"],
                rows=(("heartbeat.run_events", f"{run_id}/{row['seq']}"),),
            )
            for row in events
        ]

    async def _issue(self, tx: Tx, actor: Actor, issue_id: UUID) -> list[Finding]:
        rows = await tx.fetch(Q["find_issues"], [issue_id])
        if not rows or not is_visible(actor, to_issue(rows[0])):
            return []
        wakeups = await tx.fetch(Q["wakeups_of_issue"], issue_id, _NEWEST)
        runs = await tx.fetch(Q["runs_of_issue"], issue_id, _NEWEST)
        told, scene = await self._told(tx, wakeups, runs, [issue_id])
        open_wakes = await tx.fetch(Q["unsettled_wakeups_of_issue"], issue_id)
        about = findings.about_issue(
            to_issue(rows[0]), list(map(to_wakeup, wakeups)), scene, under_way=bool(open_wakes)
        )
        return [about, *told]

    async def _agent(self, tx: Tx, actor: Actor, agent_id: UUID) -> list[Finding]:
        targets = await read_targets(tx, [agent_id])
        agent = targets.agents.get(agent_id)
        if agent is None or not is_visible(actor, agent):
            return []
        wakeups = await tx.fetch(Q["wakeups_of_agent"], agent_id, _NEWEST)
        runs = await tx.fetch(Q["runs_of_agent"], agent_id, _NEWEST)
        told, scene = await self._told(tx, wakeups, runs)
        return [await _standing(tx, agent, targets, scene.now), *told]

    async def _squad(self, tx: Tx, actor: Actor, squad_id: UUID) -> list[Finding]:
        targets = await read_targets(tx, [], [squad_id])
        squad = targets.squads.get(squad_id)
        if squad is None or not is_visible(actor, squad):
            return []
        now: datetime = await tx.fetchval(Q["read_clock"])
        leader = targets.agents[squad.leader_agent_id]
        return [about_squad(squad, now), await _standing(tx, leader, targets, now)]

    async def _told(
        self,
        tx: Tx,
        wakeup_rows: Sequence[asyncpg.Record],
        run_rows: Sequence[asyncpg.Record],
        issue_ids: Sequence[UUID] = (),
    ) -> tuple[list[Finding], Scene]:
        wakeups = [to_wakeup(row) for row in wakeup_rows]
        runs = [to_run(row) for row in run_rows]
        scene = await read_scene(tx, self._setting, wakeups, runs, issue_ids)
        complained = await tx.fetch(Q["runs_with_stderr"], [run.run_id for run in runs])
        loud = {row["run_id"] for row in complained}
        told = [findings.about_wakeup(each, scene) for each in wakeups]
        told += [findings.about_run(run, scene, complained=run.run_id in loud) for run in runs]
        return told, scene


async def _standing(tx: Tx, agent: Agent, targets: Targets, now: datetime) -> Finding:
    load = await tx.fetchrow(Q["agent_load"], agent.agent_id)
    occupied, queued = (0, 0) if load is None else (load["occupied"], load["queued"])
    today = (await read_today(tx, [agent.agent_id]))[agent.agent_id]
    target = targets.of(agent.workspace_id, agent.agent_id, None)
    return about_agent(Standing(agent, target, occupied, queued, today), now)
