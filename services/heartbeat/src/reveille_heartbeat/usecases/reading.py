"""Reads of agents, issues, wakeups and runs, as their caller may see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar
from uuid import UUID

from reveille_heartbeat.domain.states import IssueState, RunState, WakeupState
from reveille_heartbeat.domain.values import Agent, Issue, Run, Wakeup
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_agent, to_issue, to_run, to_wakeup
from reveille_heartbeat.usecases.visible import (
    require_own_run,
    require_visible,
    unknown_workspace,
)
from reveille_runtime.access import Actor, CallerKind
from reveille_runtime.db import Database, Tx
from reveille_runtime.errors import NotFound
from reveille_runtime.paging import Page

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """A page of rows, and whether there are more."""

    rows: tuple[T, ...]
    more: bool


def to_page(rows: Sequence[T], page: Page) -> Listed[T]:
    """Cut the row that was read beyond the page."""
    return Listed(tuple(rows[: page.size]), len(rows) > page.size)


def _before(page: Page) -> UUID | None:
    return None if page.after is None else UUID(str(page.after[0]))


async def require_known(tx: Tx, workspace_id: UUID, rows: Sequence[object]) -> None:
    """Tell an empty list from a workspace that is not there, for callers who belong everywhere.

    Raises:
        NotFound: there are no rows because there is no such workspace.
    """
    if not rows and not await tx.fetch(Q["find_workspaces"], [workspace_id]):
        raise unknown_workspace(workspace_id)


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
        after = None if page.after is None else str(page.after[0])
        async with self._db.session() as tx:
            found = await tx.fetch(Q["list_agent_ids"], workspace_id, after, page.limit)
            rows = await tx.fetch(Q["show_agents"], [row["agent_id"] for row in found])
            await require_known(tx, workspace_id, rows)
        return to_page([to_agent(row) for row in rows], page)

    async def issue(self, actor: Actor, issue_id: UUID) -> Issue:
        """Read an issue; a run reads the one it works on. Raises NotFound."""
        async with self._db.session() as tx:
            rows = await tx.fetch(Q["find_issues"], [issue_id])
            issue = require_visible(actor, to_issue(rows[0]) if rows else None, "issue", issue_id)
            if actor.kind is CallerKind.RUN:
                runs = await tx.fetch(Q["find_runs"], [actor.run_id])
                if not runs or runs[0]["issue_id"] != issue_id:
                    raise NotFound("NOT_FOUND", f"issue {issue_id} does not exist, or is not yours")
        return issue

    async def issues(
        self,
        actor: Actor,
        workspace_id: UUID,
        statuses: Sequence[IssueState],
        assignee: UUID | None,
        page: Page,
    ) -> Listed[Issue]:
        """List a workspace's issues, newest first. Raises NotFound for a stranger."""
        actor.require_member(workspace_id)
        async with self._db.session() as tx:
            rows = await tx.fetch(
                Q["list_issues"],
                workspace_id,
                [each.value for each in statuses] or None,
                assignee,
                _before(page),
                page.limit,
            )
            await require_known(tx, workspace_id, rows)
        return to_page([to_issue(row) for row in rows], page)

    async def wakeup(self, actor: Actor, wakeup_id: UUID) -> Wakeup:
        """Read a wakeup. Raises NotFound."""
        async with self._db.session() as tx:
            rows = await tx.fetch(Q["find_wakeups"], [wakeup_id])
        return require_visible(actor, to_wakeup(rows[0]) if rows else None, "wakeup", wakeup_id)

    async def wakeups(
        self,
        actor: Actor,
        workspace_id: UUID,
        agent_id: UUID | None,
        states: Sequence[WakeupState],
        page: Page,
    ) -> Listed[Wakeup]:
        """List a workspace's wakeups, newest first. Raises NotFound for a stranger."""
        actor.require_member(workspace_id)
        async with self._db.session() as tx:
            rows = await tx.fetch(
                Q["list_wakeups"],
                workspace_id,
                agent_id,
                [each.value for each in states] or None,
                _before(page),
                page.limit,
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
        states: Sequence[RunState],
        page: Page,
    ) -> Listed[Run]:
        """List a workspace's runs, newest first. Raises NotFound for a stranger."""
        actor.require_member(workspace_id)
        async with self._db.session() as tx:
            rows = await tx.fetch(
                Q["list_runs"],
                workspace_id,
                agent_id,
                wakeup_id,
                [each.value for each in states] or None,
                _before(page),
                page.limit,
            )
            await require_known(tx, workspace_id, rows)
        return to_page([to_run(row) for row in rows], page)
