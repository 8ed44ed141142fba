"""What issues may refer to: agents, projects, issues they are parts of or blocked by."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from uuid import UUID

from reveille_heartbeat.domain.invocability import may_invoke
from reveille_heartbeat.domain.issue_changes import MAX_RELATIONS
from reveille_heartbeat.domain.obstacles import MAX_DEPTH
from reveille_heartbeat.domain.states import AgentState, ProjectState
from reveille_heartbeat.domain.values import Issue
from reveille_heartbeat.store.issue_rows import to_project
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_agent, to_issue
from reveille_heartbeat.usecases.issues.authors import Author, is_below
from reveille_runtime.db import Tx
from reveille_runtime.errors import InvalidArgument, PermissionDenied
from reveille_runtime.lockorder import Level, LockOrder
from reveille_runtime.validation import Violations


async def lock_graph(tx: Tx, locks: LockOrder, workspace_id: UUID) -> None:
    """Be the only one who ties issues of a workspace to each other, until the transaction ends."""
    locks.note(Level.WORKSPACE, [workspace_id])
    await tx.fetch(Q["lock_issue_graph"], workspace_id)


async def check_agents(
    tx: Tx, author: Author, workspace_id: UUID, wanted: Mapping[str, UUID | None]
) -> None:
    """Check the agents that fields name: they are of the workspace, not archived, and may be woken.

    Raises:
        InvalidArgument: one is not there, by the name of its field.
        PermissionDenied: a person gives work to an agent that is not theirs to wake.
    """
    ids = {field: agent_id for field, agent_id in wanted.items() if agent_id is not None}
    if not ids:
        return
    rows = await tx.fetch(Q["find_agents"], sorted(set(ids.values())))
    agents = {row["agent_id"]: to_agent(row) for row in rows}
    found = Violations()
    for field, agent_id in ids.items():
        agent = agents.get(agent_id)
        if agent is None or agent.workspace_id != workspace_id:
            found.add(field, f"{agent_id} is not an agent of this workspace")
        elif agent.state is AgentState.ARCHIVED:
            found.add(field, f"agent {agent.name} is archived")
    found.check()
    for field, agent_id in ids.items():
        if author.is_person and not may_invoke(agents[agent_id], author.user_id, is_member=True):
            raise PermissionDenied(
                "CALLER_NOT_ALLOWED",
                f"you may not wake agent {agents[agent_id].name}",
                {"field": field},
            )


async def check_project(tx: Tx, workspace_id: UUID, project_id: UUID | None) -> None:
    """Check that work is done for a project. Raises InvalidArgument."""
    if project_id is None:
        return
    rows = await tx.fetch(Q["find_projects"], [project_id])
    project = to_project(rows[0]) if rows else None
    if project is None or project.workspace_id != workspace_id:
        raise InvalidArgument.of("project_id", f"{project_id} is not a project of this workspace")
    if project.state is not ProjectState.ACTIVE:
        raise InvalidArgument.of("project_id", f"project {project.name} is archived")


async def check_parent(tx: Tx, workspace_id: UUID, issue: Issue | None, parent_id: UUID) -> Issue:
    """Check what an issue shall be a part of; `issue` is None while it is made.

    The caller holds the graph's lock. Raises InvalidArgument.
    """
    parent = await _of_workspace(tx, workspace_id, parent_id, "parent_issue_id")
    if issue is not None and await is_below(tx, parent_id, issue.issue_id):
        raise InvalidArgument.of(
            "parent_issue_id", f"{parent.identifier} is a part of {issue.identifier}"
        )
    above = await tx.fetch(Q["issues_above"], parent_id, MAX_DEPTH)
    if len(above) + 1 >= MAX_DEPTH:
        raise InvalidArgument.of(
            "parent_issue_id", f"{parent.identifier} has {MAX_DEPTH} levels above it already"
        )
    return parent


async def check_blockers(
    tx: Tx, workspace_id: UUID, issue_id: UUID, blocker_ids: Collection[UUID], field: str
) -> None:
    """Check what shall block an issue. The caller holds the graph's lock.

    Raises:
        InvalidArgument: one is not there, would close a circle, or there would be too many.
    """
    if not blocker_ids:
        return
    for blocker_id in blocker_ids:
        blocker = await _of_workspace(tx, workspace_id, blocker_id, field)
        if blocker_id == issue_id:
            raise InvalidArgument.of(field, "an issue cannot block itself")
        if await tx.fetchval(Q["is_blocked_by"], blocker_id, issue_id):
            raise InvalidArgument.of(
                field, f"{blocker.identifier} waits for this issue itself: that would be a circle"
            )
        if await tx.fetchval(Q["count_dependents"], blocker_id) >= MAX_RELATIONS:
            raise InvalidArgument.of(
                field, f"{blocker.identifier} blocks {MAX_RELATIONS} issues already"
            )
    if await tx.fetchval(Q["count_blockers"], issue_id) + len(blocker_ids) > MAX_RELATIONS:
        raise InvalidArgument.of(field, f"an issue is blocked by {MAX_RELATIONS} others at most")


async def _of_workspace(tx: Tx, workspace_id: UUID, issue_id: UUID, field: str) -> Issue:
    rows = await tx.fetch(Q["find_issues"], [issue_id])
    issue = to_issue(rows[0]) if rows else None
    if issue is None or issue.workspace_id != workspace_id or issue.deleted_at is not None:
        raise InvalidArgument.of(field, f"{issue_id} is not an issue of this workspace")
    return issue
