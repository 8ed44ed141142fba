"""WorkspaceService: messages in, messages out."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from reveille.autopilot.v1 import workspace_service_pb2 as pb
from reveille.autopilot.v1.workspace_service_pb2_grpc import WorkspaceServiceServicer
from reveille_autopilot.rpc import edits, parse
from reveille_autopilot.usecases import messages
from reveille_autopilot.usecases.workspaces import Workspaces
from reveille_runtime.access import current_actor
from reveille_runtime.paging import page_token, read_page


class WorkspaceServicer(WorkspaceServiceServicer):
    """Serves workspaces and members."""

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces

    async def CreateWorkspace(
        self, request: pb.CreateWorkspaceRequest, context: Any
    ) -> pb.CreateWorkspaceResponse:
        """Create a workspace."""
        actor = current_actor()
        new = parse.new_workspace(request, actor.subject)
        return await self._workspaces.create(actor, new, request)

    async def GetWorkspace(
        self, request: pb.GetWorkspaceRequest, context: Any
    ) -> pb.GetWorkspaceResponse:
        """Read a workspace."""
        workspace_id = parse.one_id("workspace_id", request.workspace_id)
        found = await self._workspaces.get(current_actor(), workspace_id)
        return pb.GetWorkspaceResponse(workspace=messages.workspace(found))

    async def ListWorkspaces(
        self, request: pb.ListWorkspacesRequest, context: Any
    ) -> pb.ListWorkspacesResponse:
        """List workspaces."""
        query = ("ListWorkspaces",)
        page = read_page(request.page_size, request.page_token, query)
        before = None if page.after is None else UUID(str(page.after[0]))
        found = await self._workspaces.page(current_actor(), before, page.limit)
        shown = found[: page.size]
        more = page_token([shown[-1].id], query) if len(found) > page.size else ""
        return pb.ListWorkspacesResponse(
            workspaces=[messages.workspace(each) for each in shown], next_page_token=more
        )

    async def UpdateWorkspace(
        self, request: pb.UpdateWorkspaceRequest, context: Any
    ) -> pb.UpdateWorkspaceResponse:
        """Change a workspace."""
        after = await self._workspaces.update(current_actor(), edits.workspace_edit(request))
        return pb.UpdateWorkspaceResponse(workspace=messages.workspace(after))

    async def UpdateMember(
        self, request: pb.UpdateMemberRequest, context: Any
    ) -> pb.UpdateMemberResponse:
        """Change the role of a member."""
        workspace_id, user_id, role = parse.changed_member(request)
        made = await self._workspaces.update_member(current_actor(), workspace_id, user_id, role)
        return pb.UpdateMemberResponse(member=messages.member(made))

    async def RemoveMember(
        self, request: pb.RemoveMemberRequest, context: Any
    ) -> pb.RemoveMemberResponse:
        """End a membership."""
        workspace_id, user_id = parse.one_member(request)
        await self._workspaces.remove_member(current_actor(), workspace_id, user_id)
        return pb.RemoveMemberResponse()

    async def AddMember(self, request: pb.AddMemberRequest, context: Any) -> pb.AddMemberResponse:
        """Add a member."""
        workspace_id, user_id, role = parse.new_member(request)
        return await self._workspaces.add_member(
            current_actor(), workspace_id, user_id, role, request
        )

    async def ListMembers(
        self, request: pb.ListMembersRequest, context: Any
    ) -> pb.ListMembersResponse:
        """List members."""
        workspace_id = parse.one_id("workspace_id", request.workspace_id)
        query = ("ListMembers", workspace_id)
        page = read_page(request.page_size, request.page_token, query)
        after = None if page.after is None else str(page.after[0])
        found = await self._workspaces.members(current_actor(), workspace_id, after, page.limit)
        shown = found[: page.size]
        more = page_token([shown[-1].user_id], query) if len(found) > page.size else ""
        return pb.ListMembersResponse(
            members=[messages.member(each) for each in shown], next_page_token=more
        )
