"""IssueService: projects."""

from __future__ import annotations

from typing import Any

from reveille.heartbeat.v1 import project_pb2 as pb
from reveille.heartbeat.v1.issue_pb2_grpc import IssueServiceServicer
from reveille_heartbeat.rpc import parse
from reveille_heartbeat.rpc.pages import page_of
from reveille_heartbeat.rpc.show_issues import PROJECT_STATES, project
from reveille_heartbeat.usecases.issues.projects import NewProject, Projects
from reveille_heartbeat.usecases.issues.reading_issues import IssueReader
from reveille_runtime.access import current_actor
from reveille_runtime.ids import new_id
from reveille_runtime.masks import read_mask
from reveille_runtime.paging import read_page
from reveille_runtime.validation import Violations

_FIELDS = frozenset({"name", "description", "state"})


class ProjectCalls(IssueServiceServicer):
    """Serves projects."""

    def __init__(self, projects: Projects, reader: IssueReader) -> None:
        self._projects = projects
        self._reader = reader

    async def CreateProject(
        self, request: pb.CreateProjectRequest, context: Any
    ) -> pb.CreateProjectResponse:
        """Create a project."""
        actor = current_actor()
        found = Violations()
        new = NewProject(
            project_id=new_id(),
            workspace_id=found.uuid("workspace_id", request.workspace_id),
            name=_name(found, request.name),
            description=_description(found, request.description),
            repeatable=parse.repeatable(actor, "CreateProject", request, request.request_id),
        )
        found.check()
        actor.require_member(new.workspace_id)
        return pb.CreateProjectResponse(project=project(await self._projects.create(new)))

    async def GetProject(
        self, request: pb.GetProjectRequest, context: Any
    ) -> pb.GetProjectResponse:
        """Read a project."""
        project_id = parse.one_id("project_id", request.project_id)
        found = await self._reader.project(current_actor(), project_id)
        return pb.GetProjectResponse(project=project(found))

    async def ListProjects(
        self, request: pb.ListProjectsRequest, context: Any
    ) -> pb.ListProjectsResponse:
        """List a workspace's projects by name."""
        workspace_id = parse.one_id("workspace_id", request.workspace_id)
        query = ("ListProjects", workspace_id)
        page = read_page(request.page_size, request.page_token, query)
        listed = await self._reader.projects(current_actor(), workspace_id, page)
        projects, token = page_of(listed, project, lambda each: each.name, query)
        return pb.ListProjectsResponse(projects=projects, next_page_token=token)

    async def UpdateProject(
        self, request: pb.UpdateProjectRequest, context: Any
    ) -> pb.UpdateProjectResponse:
        """Change a project."""
        found = Violations()
        wanted = request.project
        project_id = found.uuid("project.project_id", wanted.project_id)
        etag = found.text("project.etag", wanted.etag, maximum=100)
        named = read_mask(found, request.update_mask, _FIELDS)
        values: dict[str, Any] = {}
        if "name" in named:
            values["name"] = _name(found, wanted.name, "project.name")
        if "description" in named:
            values["description"] = _description(found, wanted.description, "project.description")
        if "state" in named:
            values["state"] = found.enum("project.state", wanted.state, PROJECT_STATES)
        found.check()
        changed = await self._projects.update(current_actor(), project_id, values, etag)
        return pb.UpdateProjectResponse(project=project(changed))


def _name(found: Violations, text: str, field: str = "name") -> str:
    return found.text(field, text, minimum=1, maximum=100)


def _description(found: Violations, text: str, field: str = "description") -> str:
    return found.text(field, text, maximum=10_000, strip=False)
