"""IssueService."""

from __future__ import annotations

from typing import Any

from reveille.heartbeat.v1 import issue_pb2 as pb
from reveille.heartbeat.v1.issue_pb2_grpc import IssueServiceServicer
from reveille_heartbeat.domain.values import Origin
from reveille_heartbeat.rpc import parse, show
from reveille_heartbeat.usecases.create_issue import CreateIssue, NewIssue
from reveille_heartbeat.usecases.reading import Reader
from reveille_heartbeat.usecases.update_issue import UpdateIssue
from reveille_runtime.access import Actor, CallerKind, current_actor
from reveille_runtime.carrier import inject
from reveille_runtime.ids import new_id
from reveille_runtime.paging import page_token, read_page
from reveille_runtime.validation import Violations


class IssueServicer(IssueServiceServicer):
    """Serves issues."""

    def __init__(self, create: CreateIssue, update: UpdateIssue, reader: Reader) -> None:
        self._create = create
        self._update = update
        self._reader = reader

    async def CreateIssue(
        self, request: pb.CreateIssueRequest, context: Any
    ) -> pb.CreateIssueResponse:
        """Create an issue and wake its agent."""
        actor = current_actor()
        new = _new_issue(request, actor)
        actor.require_member(new.workspace_id)
        created = await self._create(new)
        return pb.CreateIssueResponse(
            issue=None if created.issue is None else show.issue(created.issue),
            wakeup=None if created.wakeup is None else show.enqueued(created.wakeup),
        )

    async def GetIssue(self, request: pb.GetIssueRequest, context: Any) -> pb.GetIssueResponse:
        """Read an issue."""
        issue_id = parse.one_id("issue_id", request.issue_id)
        found = await self._reader.issue(current_actor(), issue_id)
        return pb.GetIssueResponse(issue=show.issue(found))

    async def ListIssues(
        self, request: pb.ListIssuesRequest, context: Any
    ) -> pb.ListIssuesResponse:
        """List a workspace's issues, newest first."""
        found = Violations()
        workspace_id = found.uuid("workspace_id", request.workspace_id)
        statuses = parse.states(found, "statuses", request.statuses, show.ISSUE_STATES)
        assignee = found.optional_uuid("assignee_agent_id", request.assignee_agent_id)
        found.check()
        query = ("ListIssues", workspace_id, *sorted(statuses), assignee)
        page = read_page(request.page_size, request.page_token, query)
        listed = await self._reader.issues(current_actor(), workspace_id, statuses, assignee, page)
        return pb.ListIssuesResponse(
            issues=[show.issue(each) for each in listed.rows],
            next_page_token=page_token([listed.rows[-1].issue_id], query) if listed.more else "",
        )

    async def UpdateIssue(
        self, request: pb.UpdateIssueRequest, context: Any
    ) -> pb.UpdateIssueResponse:
        """Move an issue."""
        found = Violations()
        issue_id = found.uuid("issue_id", request.issue_id)
        target = found.enum("status", request.status, show.ISSUE_STATES)
        etag = found.text("etag", request.etag, maximum=100)
        found.check()
        moved = await self._update(current_actor(), issue_id, target, etag)
        return pb.UpdateIssueResponse(issue=show.issue(moved))


def _new_issue(request: pb.CreateIssueRequest, actor: Actor) -> NewIssue:
    found = Violations()
    workspace_id = found.uuid("workspace_id", request.workspace_id)
    title = found.text("title", request.title, minimum=1, maximum=parse.MAX_TITLE)
    description = found.text(
        "description", request.description, maximum=parse.MAX_PROMPT, strip=False
    )
    assignee = found.optional_uuid("assignee_agent_id", request.assignee_agent_id)
    who = _origin(found, request, actor)
    what = parse.payload(found, "payload", request.payload)
    if who.occurrence_key is not None and assignee is None and not found:
        found.add("assignee_agent_id", "is required for an occurrence", "FIELD_REQUIRED")
    if request.priority not in show.PRIORITIES:
        found.add("priority", "is not a known priority", "INVALID_ENUM")
    found.check()
    wish = None
    if assignee is not None:
        wish = parse.assignment(assignee, workspace_id, title, description, actor, who, what)
    return NewIssue(
        issue_id=new_id(),
        workspace_id=workspace_id,
        title=title,
        description=description,
        priority=show.PRIORITIES[request.priority],
        assignee_agent_id=assignee,
        responsible_user_id=who.accountable_user_id,
        occurrence_key=who.occurrence_key,
        trace_carrier=who.trace_carrier,
        wish=wish,
        repeatable=parse.repeatable(actor, "CreateIssue", request, request.request_id),
    )


def _origin(found: Violations, request: pb.CreateIssueRequest, actor: Actor) -> Origin:
    """A service says for whom it asks; a person asks for themselves."""
    if actor.kind is CallerKind.SERVICE:
        return parse.origin(found, "origin", request.origin, actor)
    if request.HasField("origin"):
        found.add("origin", "only services may fill it")
    return Origin(
        originator_user_id=actor.subject,
        accountable_user_id=actor.subject,
        trace_carrier=inject(),
    )
