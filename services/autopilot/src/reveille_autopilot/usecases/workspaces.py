"""Workspaces and members: this service is the authority on both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import asyncpg

from reveille.autopilot.v1 import workspace_service_pb2 as pb
from reveille_autopilot.domain.models import Member, Workspace
from reveille_autopilot.domain.permissions import Standing
from reveille_autopilot.domain.states import MemberRole
from reveille_autopilot.store import workspaces
from reveille_autopilot.usecases import messages
from reveille_autopilot.usecases.relays import Relays
from reveille_autopilot.usecases.standing import in_workspace, too_weak
from reveille_runtime.access import Actor, CallerKind
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx, constraint_name
from reveille_runtime.errors import AlreadyExists
from reveille_runtime.ids import new_id
from reveille_runtime.requests import once


@dataclass(frozen=True, slots=True)
class NewWorkspace:
    """A workspace to create."""

    name: str
    issue_prefix: str
    attribution_fail_closed: bool
    owner_user_id: str


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
            made = await workspaces.put_member(tx, workspace_id, user_id, role)
            return pb.AddMemberResponse(member=messages.member(made))

        async with self._db.transaction() as tx:
            standing = await in_workspace(tx, actor, workspace_id)
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


def _require_manager(standing: Standing, *, concerns_owner: bool) -> None:
    if not standing.manages:
        raise too_weak("an administrator or owner of the workspace")
    if concerns_owner and not (standing.operator or standing.role is MemberRole.OWNER):
        raise too_weak("an owner of the workspace")
