"""Workspaces and members: this service is the authority on both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import asyncpg

from reveille.autopilot.v1 import workspace_service_pb2 as pb
from reveille_autopilot.domain.models import Member, Workspace
from reveille_autopilot.domain.permissions import Standing
from reveille_autopilot.domain.states import MemberRole, WorkspaceStatus
from reveille_autopilot.store import people, workspaces
from reveille_autopilot.usecases import messages
from reveille_autopilot.usecases.publish import require_etag, stale
from reveille_autopilot.usecases.relays import Relays
from reveille_autopilot.usecases.standing import in_workspace, not_found, too_weak
from reveille_runtime.access import Actor, CallerKind
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx, constraint_name
from reveille_runtime.errors import AlreadyExists, FailedPrecondition, InvalidArgument
from reveille_runtime.ids import new_id
from reveille_runtime.lockorder import LockOrder
from reveille_runtime.requests import once


@dataclass(frozen=True, slots=True)
class NewWorkspace:
    """A workspace to create."""

    name: str
    issue_prefix: str
    attribution_fail_closed: bool
    owner_user_id: str


@dataclass(frozen=True, slots=True)
class WorkspaceEdit:
    """The fields of a workspace that an edit names, and their new values."""

    workspace_id: UUID
    etag: str
    values: Mapping[str, Any] = field(default_factory=dict)


class Workspaces:
    """Creates and reads workspaces and their members."""

    def __init__(self, db: Database, relays: Relays) -> None:
        self._db = db
        self._relays = relays

    async def create(
        self, actor: Actor, new: NewWorkspace, request: pb.CreateWorkspaceRequest
    ) -> pb.CreateWorkspaceResponse:
        """Create a workspace with its first owner, and have heartbeat know it if it can."""

        async def make(tx: Tx) -> pb.CreateWorkspaceResponse:
            made = await workspaces.insert(
                tx,
                new_id(),
                new.name,
                new.issue_prefix,
                fail_closed=new.attribution_fail_closed,
                owner=new.owner_user_id,
            )
            await workspaces.put_member(tx, made.id, new.owner_user_id, MemberRole.OWNER)
            return pb.CreateWorkspaceResponse(workspace=messages.workspace(made))

        try:
            async with self._db.transaction() as tx:
                answer = await once(
                    tx,
                    principal=actor.principal,
                    method="CreateWorkspace",
                    request=request,
                    response=pb.CreateWorkspaceResponse,
                    make=lambda: make(tx),
                )
        except asyncpg.UniqueViolationError as error:
            if constraint_name(error) != workspaces.PREFIX_TAKEN:
                raise
            raise AlreadyExists(
                "ALREADY_EXISTS",
                f"another workspace has the issue prefix {new.issue_prefix}",
                {"field": "issue_prefix", "issue_prefix": new.issue_prefix},
            ) from error
        crash_point("autopilot.publish.after_commit")
        await self._relays.workspaces.push_now(UUID(answer.workspace.workspace_id))
        return answer

    async def get(self, actor: Actor, workspace_id: UUID) -> Workspace:
        """Read a workspace."""
        async with self._db.session() as tx:
            await in_workspace(tx, actor, workspace_id)
            found = await workspaces.get(tx, workspace_id)
        if found is None:
            raise RuntimeError("a workspace is never removed")
        return found

    async def page(self, actor: Actor, before: UUID | None, limit: int) -> Sequence[Workspace]:
        """List the caller's workspaces; services and operators see all."""
        everything = actor.kind is CallerKind.SERVICE or actor.operator
        async with self._db.session() as tx:
            return await workspaces.page(tx, None if everything else actor.subject, before, limit)

    async def update(self, actor: Actor, edit: WorkspaceEdit) -> Workspace:
        """Change what an edit names, and have heartbeat know it if it can."""
        async with self._db.transaction() as tx:
            workspace, standing = await _locked(tx, actor, edit.workspace_id)
            _require_manager(standing, concerns_owner=False)
            require_etag(edit.etag, workspace.etag, workspace_id=workspace.id)
            after = replace(workspace, **edit.values)
            if (
                workspace.status is WorkspaceStatus.ARCHIVED
                and after.status is not workspace.status
            ):
                raise FailedPrecondition(
                    "WRONG_STATE",
                    f"workspace {workspace.name} is archived",
                    {"workspace_id": str(workspace.id), "state": workspace.status.value},
                )
            responsible = after.default_responsible_user_id
            if responsible != workspace.default_responsible_user_id and (
                await workspaces.role_of(tx, workspace.id, responsible) is None
            ):
                raise InvalidArgument.of(
                    "workspace.default_responsible_user_id",
                    f"{responsible} is no member of the workspace",
                )
            if after == workspace:
                return workspace
            stored = await workspaces.update(tx, workspace, after)
            if stored is None:
                raise stale("another revision", workspace_id=workspace.id)
        crash_point("autopilot.publish.after_commit")
        await self._relays.workspaces.push_now(stored.id)
        return stored

    async def update_member(
        self, actor: Actor, workspace_id: UUID, user_id: str, role: MemberRole
    ) -> Member:
        """Change the role of a member; one owner at least stays."""
        async with self._db.transaction() as tx:
            _, standing = await _locked(tx, actor, workspace_id)
            present = await workspaces.role_of(tx, workspace_id, user_id)
            _require_manager(standing, concerns_owner=MemberRole.OWNER in {role, present})
            if present is None:
                raise not_found("member", user_id)
            if present is MemberRole.OWNER and role is not MemberRole.OWNER:
                await _require_other_owner(tx, workspace_id, user_id)
            return await workspaces.put_member(tx, workspace_id, user_id, role)

    async def remove_member(self, actor: Actor, workspace_id: UUID, user_id: str) -> None:
        """End a membership; what the member published goes on, in another's name."""
        async with self._db.transaction() as tx:
            workspace, standing = await _locked(tx, actor, workspace_id)
            present = await workspaces.role_of(tx, workspace_id, user_id)
            if standing.user_id != user_id:
                _require_manager(standing, concerns_owner=present is MemberRole.OWNER)
            if present is MemberRole.OWNER:
                await _require_other_owner(tx, workspace_id, user_id)
            await people.remove_member(tx, workspace_id, user_id)
            if workspace.default_responsible_user_id == user_id:
                # Whoever left answers for nothing any more; an owner does.
                heir = await people.other_owner(tx, workspace_id, user_id) or user_id
                after = replace(workspace, default_responsible_user_id=heir)
                await workspaces.update(tx, workspace, after)
        await self._relays.workspaces.push_now(workspace_id)

    async def add_member(
        self,
        actor: Actor,
        workspace_id: UUID,
        user_id: str,
        role: MemberRole,
        request: pb.AddMemberRequest,
    ) -> pb.AddMemberResponse:
        """Add a member, or change the role of one; ownership is the owners' to give and take."""

        async def make(tx: Tx) -> pb.AddMemberResponse:
            if present is MemberRole.OWNER and role is not MemberRole.OWNER:
                await _require_other_owner(tx, workspace_id, user_id)
            made = await workspaces.put_member(tx, workspace_id, user_id, role)
            return pb.AddMemberResponse(member=messages.member(made))

        async with self._db.transaction() as tx:
            _, standing = await _locked(tx, actor, workspace_id)
            present = await workspaces.role_of(tx, workspace_id, user_id)
            _require_manager(standing, concerns_owner=MemberRole.OWNER in {role, present})
            return await once(
                tx,
                principal=actor.principal,
                method="AddMember",
                request=request,
                response=pb.AddMemberResponse,
                make=lambda: make(tx),
            )

    async def members(
        self, actor: Actor, workspace_id: UUID, after: str | None, limit: int
    ) -> Sequence[Member]:
        """List the members of a workspace."""
        async with self._db.session() as tx:
            await in_workspace(tx, actor, workspace_id)
            return await workspaces.members(tx, workspace_id, after, limit)


async def _locked(tx: Tx, actor: Actor, workspace_id: UUID) -> tuple[Workspace, Standing]:
    """Lock a workspace, and read what the caller is in it then: it may have changed in the wait."""
    workspace = await workspaces.lock(tx, LockOrder(), workspace_id)
    if workspace is None:
        raise not_found("workspace", workspace_id)
    return workspace, await in_workspace(tx, actor, workspace_id)


async def _require_other_owner(tx: Tx, workspace_id: UUID, user_id: str) -> None:
    if await people.other_owner(tx, workspace_id, user_id) is None:
        raise FailedPrecondition(
            "WRONG_STATE",
            f"{user_id} is the workspace's last owner; name another one first",
            {"workspace_id": str(workspace_id), "user_id": user_id},
        )


def _require_manager(standing: Standing, *, concerns_owner: bool) -> None:
    if not standing.manages:
        raise too_weak("an administrator or owner of the workspace")
    if concerns_owner and not (standing.operator or standing.role is MemberRole.OWNER):
        raise too_weak("an owner of the workspace")
