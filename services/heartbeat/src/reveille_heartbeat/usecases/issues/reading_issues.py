"""Reads of issues, comments, approvals and projects, as their caller may see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from reveille_heartbeat.domain.discussion import Approval, Comment
from reveille_heartbeat.domain.projects import Project
from reveille_heartbeat.domain.states import ApprovalStatus, IssueState
from reveille_heartbeat.domain.values import Issue
from reveille_heartbeat.store.issue_rows import to_approval, to_comment, to_project
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_issue
from reveille_heartbeat.usecases.issues.authors import is_below, require_issue
from reveille_heartbeat.usecases.issues.issue_names import IssueRef, id_of
from reveille_heartbeat.usecases.issues.issue_views import IssueView, view_of, views_of
from reveille_heartbeat.usecases.listing import (
    Listed,
    id_after,
    require_known,
    text_after,
    to_page,
)
from reveille_heartbeat.usecases.visible import require_visible
from reveille_runtime.access import Actor, CallerKind
from reveille_runtime.db import Database, Tx
from reveille_runtime.errors import NotFound
from reveille_runtime.paging import Page


@dataclass(frozen=True, slots=True)
class IssueFilter:
    """Which issues of a workspace to list; what is empty leaves all."""

    statuses: Sequence[IssueState] = ()
    assignee_agent_id: UUID | None = None
    assignee_user_id: str = ""
    project_id: UUID | None = None
    parent: IssueRef | None = None


class IssueReader:
    """One read transaction per question."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def issue(
        self, actor: Actor, ref: IssueRef, workspace_id: UUID | None = None
    ) -> IssueView:
        """Read an issue. Raises NotFound."""
        async with self._db.session() as tx:
            issue_id = await id_of(tx, actor, ref, workspace_id)
            return await view_of(tx, await readable(tx, actor, issue_id))

    async def issues(
        self, actor: Actor, workspace_id: UUID, only: IssueFilter, page: Page
    ) -> Listed[IssueView]:
        """List a workspace's issues, newest first. Raises NotFound for a stranger."""
        actor.require_member(workspace_id)
        async with self._db.session() as tx:
            parent = None
            if only.parent is not None:
                parent = await id_of(tx, actor, only.parent, workspace_id, "parent_issue_id")
            rows = await tx.fetch(
                Q["list_issues"],
                workspace_id,
                [each.value for each in only.statuses] or None,
                only.assignee_agent_id,
                only.assignee_user_id or None,
                only.project_id,
                parent,
                id_after(page),
                page.limit,
            )
            await require_known(tx, workspace_id, rows)
            views = await views_of(tx, [to_issue(row) for row in rows])
        return to_page(views, page)

    async def comments(self, actor: Actor, ref: IssueRef, page: Page) -> Listed[Comment]:
        """List an issue's comments, oldest first. Raises NotFound."""
        async with self._db.session() as tx:
            issue = await readable(tx, actor, await id_of(tx, actor, ref))
            rows = await tx.fetch(Q["list_comments"], issue.issue_id, id_after(page), page.limit)
        return to_page([to_comment(row) for row in rows], page)

    async def approvals(
        self,
        actor: Actor,
        workspace_id: UUID,
        statuses: Sequence[ApprovalStatus],
        about: IssueRef | None,
        page: Page,
    ) -> Listed[Approval]:
        """List approvals, newest first; a run those that it may read the issue of, or asked for.

        Raises NotFound for a stranger.
        """
        actor.require_member(workspace_id)
        async with self._db.session() as tx:
            issue_id = None
            if about is not None:
                issue_id = (
                    await readable(tx, actor, await id_of(tx, actor, about, workspace_id))
                ).issue_id
            rows = await tx.fetch(
                Q["list_approvals"],
                workspace_id,
                [each.value for each in statuses] or None,
                issue_id,
                actor.run_id if actor.kind is CallerKind.RUN and issue_id is None else None,
                id_after(page),
                page.limit,
            )
            await require_known(tx, workspace_id, rows)
        return to_page([to_approval(row) for row in rows], page)

    async def project(self, actor: Actor, project_id: UUID) -> Project:
        """Read a project. Raises NotFound."""
        async with self._db.session() as tx:
            rows = await tx.fetch(Q["find_projects"], [project_id])
        found = to_project(rows[0]) if rows else None
        return require_visible(actor, found, "project", project_id)

    async def projects(self, actor: Actor, workspace_id: UUID, page: Page) -> Listed[Project]:
        """List a workspace's projects by name. Raises NotFound for a stranger."""
        actor.require_member(workspace_id)
        async with self._db.session() as tx:
            rows = await tx.fetch(Q["list_projects"], workspace_id, text_after(page), page.limit)
            await require_known(tx, workspace_id, rows)
        return to_page([to_project(row) for row in rows], page)


async def readable(tx: Tx, actor: Actor, issue_id: UUID) -> Issue:
    """Give an issue that a caller may read.

    A run reads what it works on, what that is a part of, and what is below that.

    Raises:
        NotFound: there is none.
    """
    rows = await tx.fetch(Q["find_issues"], [issue_id])
    issue = require_issue(actor, to_issue(rows[0]) if rows else None, issue_id)
    if actor.kind is CallerKind.RUN:
        runs = await tx.fetch(Q["find_runs"], [actor.run_id])
        own = runs[0]["issue_id"] if runs else None
        if own is None or not (
            await is_below(tx, issue_id, own) or await is_below(tx, own, issue_id)
        ):
            raise NotFound("NOT_FOUND", f"issue {issue_id} does not exist, or is not yours")
    return issue
