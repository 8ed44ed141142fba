"""Workspaces and memberships at rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from reveille_autopilot.domain.models import Member, Workspace
from reveille_autopilot.domain.states import MemberRole, WorkspaceStatus
from reveille_autopilot.store import rows
from reveille_runtime.db import Tx
from reveille_runtime.lockorder import Level, LockOrder
from reveille_runtime.queries import load_queries

Q = load_queries("reveille_autopilot.store", "workspaces.sql")
PREFIX_TAKEN = "workspaces_issue_prefix_key"


@dataclass(frozen=True, slots=True)
class WorkspaceState:
    """A workspace as heartbeat shall have it."""

    id: UUID
    revision: int
    issue_prefix: str
    default_responsible_user_id: str
    status: WorkspaceStatus


async def insert(
    tx: Tx, workspace_id: UUID, name: str, prefix: str, *, fail_closed: bool, owner: str
) -> Workspace:
    """Store a new workspace; its first owner answers where nobody else can be named."""
    row = await tx.fetchrow(Q["insert_workspace"], workspace_id, name, prefix, fail_closed, owner)
    if row is None:
        raise RuntimeError("an INSERT returned no row")
    return rows.workspace(row)


async def get(tx: Tx, workspace_id: UUID) -> Workspace | None:
    """Read a workspace."""
    row = await tx.fetchrow(Q["get_workspace"], workspace_id)
    return None if row is None else rows.workspace(row)


async def lock(tx: Tx, locks: LockOrder, workspace_id: UUID) -> Workspace | None:
    """Read a workspace and keep others from editing it, or who owns it."""
    found = await locks.take(tx, Level.WORKSPACE, Q["lock_workspaces"], [workspace_id])
    return rows.workspace(found[0]) if found else None


async def update(tx: Tx, before: Workspace, after: Workspace) -> Workspace | None:
    """Store an edit; None when the workspace is not the one that was read."""
    row = await tx.fetchrow(
        Q["update_workspace"],
        before.id,
        before.revision,
        after.name,
        after.attribution_fail_closed,
        after.default_responsible_user_id,
        after.quota.action.value,
        after.quota.limit,
        after.quota.period.value,
        after.status.value,
    )
    return None if row is None else rows.workspace(row)


async def page(tx: Tx, user_id: str | None, before: UUID | None, limit: int) -> list[Workspace]:
    """List workspaces, those of one user or all."""
    found = await tx.fetch(Q["list_workspaces"], user_id, before, limit)
    return [rows.workspace(row) for row in found]


async def put_member(tx: Tx, workspace_id: UUID, user_id: str, role: MemberRole) -> Member:
    """Add a member or change the role of one."""
    row = await tx.fetchrow(Q["put_member"], workspace_id, user_id, role.value)
    if row is None:
        raise RuntimeError("an upsert returned no row")
    return rows.member(row)


async def role_of(tx: Tx, workspace_id: UUID, user_id: str) -> MemberRole | None:
    """Read a user's role."""
    role = await tx.fetchval(Q["get_role"], workspace_id, user_id)
    return None if role is None else MemberRole(role)


async def members(tx: Tx, workspace_id: UUID, after: str | None, limit: int) -> list[Member]:
    """List members."""
    found = await tx.fetch(Q["list_members"], workspace_id, after, limit)
    return [rows.member(row) for row in found]


async def unsynced(tx: Tx, after: UUID, limit: int) -> list[WorkspaceState]:
    """Read what heartbeat has to be sent."""
    return [_state(row) for row in await tx.fetch(Q["unsynced_workspaces"], after, limit)]


async def unsynced_of(tx: Tx, ids: Sequence[UUID]) -> list[WorkspaceState]:
    """Read the same for some workspaces."""
    return [_state(row) for row in await tx.fetch(Q["unsynced_workspaces_of"], ids)]


async def mark_synced(tx: Tx, ids: Sequence[UUID], revisions: Sequence[int]) -> None:
    """Note what heartbeat has confirmed; a row that changed meanwhile stays unsynced."""
    await tx.execute(Q["mark_workspaces_synced"], ids, revisions)


async def note_refused(
    tx: Tx, ids: Sequence[UUID], revisions: Sequence[int], causes: Sequence[str]
) -> None:
    """Note what heartbeat has refused, and why; a row that changed meanwhile is left alone."""
    await tx.execute(Q["note_workspaces_refused"], ids, revisions, causes)


async def sync_state(tx: Tx, workspace_id: UUID) -> tuple[bool, str]:
    """Tell whether heartbeat has the present form, and its words if it refused it."""
    row = await tx.fetchrow(Q["workspace_sync_state"], workspace_id)
    return (True, "") if row is None else (row["synced"], row["sync_error"])


def _state(row: rows.Row) -> WorkspaceState:
    return WorkspaceState(
        rows.uuid(row["id"]),
        row["revision"],
        row["issue_prefix"],
        row["default_responsible_user_id"],
        WorkspaceStatus(row["status"]),
    )
