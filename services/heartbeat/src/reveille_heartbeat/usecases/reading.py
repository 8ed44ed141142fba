"""Reads of agents, wakeups and runs, as their caller may see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from reveille_heartbeat.domain.states import RunState, WakeupState
from reveille_heartbeat.domain.values import Agent, Run, Wakeup
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_agent, to_run, to_wakeup
from reveille_heartbeat.usecases.issues.issue_names import IssueRef, id_of
from reveille_heartbeat.usecases.listing import (
    Listed,
    id_after,
    require_known,
    text_after,
    to_page,
)
from reveille_heartbeat.usecases.visible import require_own_run, require_visible
from reveille_runtime.access import Actor
from reveille_runtime.db import Database
from reveille_runtime.paging import Page


@dataclass(frozen=True, slots=True)
class OnlyWakeups:
    """Which of a workspace's wakeups are listed; what is left out does not matter."""

    agent_id: UUID | None = None
    issue: IssueRef | None = None
    states: Sequence[WakeupState] = ()
    reasons: Sequence[str] = ()


class Reader:
    """One statement per question."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def agent(self, actor: Actor, agent_id: UUID) -> Agent:
        """Read an agent. Raises NotFound."""
        async with self._db.session() as tx:
            rows = await tx.fetch(Q["show_agents"], [agent_id])
        return require_visible(actor, to_agent(rows[0]) if rows else None, "agent", agent_id)

    async def agents(self, actor: Actor, workspace_id: UUID, page: Page) -> Listed[Agent]:
        """List a workspace's agents by name. Raises NotFound for a stranger."""
        actor.require_member(workspace_id)
        async with self._db.session() as tx:
            found = await tx.fetch(Q["list_agent_ids"], workspace_id, text_after(page), page.limit)
            rows = await tx.fetch(Q["show_agents"], [row["agent_id"] for row in found])
            await require_known(tx, workspace_id, rows)
        return to_page([to_agent(row) for row in rows], page)

    async def wakeup(self, actor: Actor, wakeup_id: UUID) -> Wakeup:
        """Read a wakeup. Raises NotFound."""
        async with self._db.session() as tx:
            rows = await tx.fetch(Q["find_wakeups"], [wakeup_id])
        return require_visible(actor, to_wakeup(rows[0]) if rows else None, "wakeup", wakeup_id)

    async def wakeups(
        self,
        actor: Actor,
        workspace_id: UUID,
        only: OnlyWakeups,
        page: Page,
    ) -> Listed[Wakeup]:
        """List a workspace's wakeups, newest first. Raises NotFound for a stranger."""
        actor.require_member(workspace_id)
        async with self._db.session() as tx:
            issue_id = None
            if only.issue is not None:
                issue_id = await id_of(tx, actor, only.issue, workspace_id)
            rows = await tx.fetch(
                Q["list_wakeups"],
                workspace_id,
                only.agent_id,
                [each.value for each in only.states] or None,
                id_after(page),
                page.limit,
                issue_id,
                list(only.reasons) or None,
            )
            await require_known(tx, workspace_id, rows)
        return to_page([to_wakeup(row) for row in rows], page)

    async def run(self, actor: Actor, run_id: UUID) -> Run:
        """Read a run. Raises NotFound."""
        require_own_run(actor, run_id)
        async with self._db.session() as tx:
            rows = await tx.fetch(Q["find_runs"], [run_id])
        return require_visible(actor, to_run(rows[0]) if rows else None, "run", run_id)

    async def runs(
        self,
        actor: Actor,
        workspace_id: UUID,
        agent_id: UUID | None,
        wakeup_id: UUID | None,
        issue: IssueRef | None,
        states: Sequence[RunState],
        page: Page,
    ) -> Listed[Run]:
        """List a workspace's runs, newest first. Raises NotFound for a stranger."""
        actor.require_member(workspace_id)
        async with self._db.session() as tx:
            issue_id = None if issue is None else await id_of(tx, actor, issue, workspace_id)
            rows = await tx.fetch(
                Q["list_runs"],
                workspace_id,
                agent_id,
                wakeup_id,
                issue_id,
                [each.value for each in states] or None,
                id_after(page),
                page.limit,
            )
            await require_known(tx, workspace_id, rows)
        return to_page([to_run(row) for row in rows], page)

    async def costs(self, run_ids: Sequence[UUID]) -> dict[UUID, float]:
        """Give what runs cost so far, in cents; those that nobody priced are missing."""
        async with self._db.session() as tx:
            rows = await tx.fetch(Q["run_costs"], run_ids)
        return {row["run_id"]: float(row["cost_cents"]) for row in rows}
