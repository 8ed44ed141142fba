"""IssueService: issues. What is said, held, tied and gathered is served by its bases."""

from __future__ import annotations

from typing import Any

from reveille.heartbeat.v1 import issue_pb2 as pb
from reveille_heartbeat.rpc import parse, parse_issues
from reveille_heartbeat.rpc.discussions import DiscussionCalls
from reveille_heartbeat.rpc.pages import page_of
from reveille_heartbeat.rpc.projects import ProjectCalls
from reveille_heartbeat.rpc.show import ISSUE_STATES, enqueued
from reveille_heartbeat.rpc.show_issues import issue as shown
from reveille_heartbeat.rpc.trees import TreeCalls
from reveille_heartbeat.usecases.issues.add_comment import AddComment
from reveille_heartbeat.usecases.issues.approvals import Approvals
from reveille_heartbeat.usecases.issues.checkout_issue import CheckoutIssue
from reveille_heartbeat.usecases.issues.create_issue import CreateIssue
from reveille_heartbeat.usecases.issues.delete_issue import DeleteIssue
from reveille_heartbeat.usecases.issues.hold_trees import HoldTrees
from reveille_heartbeat.usecases.issues.projects import Projects
from reveille_heartbeat.usecases.issues.reading_issues import IssueFilter, IssueReader
from reveille_heartbeat.usecases.issues.relate_issues import RelateIssues
from reveille_heartbeat.usecases.issues.update_issue import UpdateIssue
from reveille_runtime.access import CallerKind, current_actor
from reveille_runtime.paging import read_page
from reveille_runtime.validation import Violations


class IssueServicer(DiscussionCalls, TreeCalls, ProjectCalls):
    """Serves issues."""

    def __init__(
        self,
        create: CreateIssue,
        update: UpdateIssue,
        delete: DeleteIssue,
        checkout: CheckoutIssue,
        add_comment: AddComment,
        approvals: Approvals,
        relate: RelateIssues,
        holds: HoldTrees,
        projects: Projects,
        reader: IssueReader,
    ) -> None:
        DiscussionCalls.__init__(self, add_comment, approvals, reader)
        TreeCalls.__init__(self, relate, holds)
        ProjectCalls.__init__(self, projects, reader)
        self._create = create
        self._update = update
        self._delete = delete
        self._checkout = checkout

    async def CreateIssue(
        self, request: pb.CreateIssueRequest, context: Any
    ) -> pb.CreateIssueResponse:
        """Create an issue and wake its agent."""
        actor = current_actor()
        new = parse_issues.new_issue(request, actor)
        actor.require_member(new.workspace_id)
        created = await self._create(new)
        return pb.CreateIssueResponse(
            issue=None if created.view is None else shown(created.view),
            wakeup=None if created.wakeup is None else enqueued(created.wakeup),
        )

    async def GetIssue(self, request: pb.GetIssueRequest, context: Any) -> pb.GetIssueResponse:
        """Read an issue."""
        found = Violations()
        ref = parse.issue_ref(found, "issue_id", request.issue_id)
        workspace_id = found.optional_uuid("workspace_id", request.workspace_id)
        found.check()
        view = await self._reader.issue(current_actor(), ref, workspace_id)
        return pb.GetIssueResponse(issue=shown(view))

    async def ListIssues(
        self, request: pb.ListIssuesRequest, context: Any
    ) -> pb.ListIssuesResponse:
        """List a workspace's issues, newest first."""
        found = Violations()
        workspace_id = found.uuid("workspace_id", request.workspace_id)
        only = IssueFilter(
            statuses=parse.states(found, "statuses", request.statuses, ISSUE_STATES),
            assignee_agent_id=found.optional_uuid("assignee_agent_id", request.assignee_agent_id),
            assignee_user_id=found.text("assignee_user_id", request.assignee_user_id, maximum=128),
            project_id=found.optional_uuid("project_id", request.project_id),
            parent=parse_issues.optional_ref(found, "parent_issue_id", request.parent_issue_id),
        )
        found.check()
        query = (
            "ListIssues",
            workspace_id,
            *sorted(only.statuses),
            only.assignee_agent_id,
            only.assignee_user_id,
            only.project_id,
            only.parent,
        )
        page = read_page(request.page_size, request.page_token, query)
        listed = await self._reader.issues(current_actor(), workspace_id, only, page)
        issues, token = page_of(listed, shown, lambda each: each.issue.issue_id, query)
        return pb.ListIssuesResponse(issues=issues, next_page_token=token)

    async def UpdateIssue(
        self, request: pb.UpdateIssueRequest, context: Any
    ) -> pb.UpdateIssueResponse:
        """Change an issue."""
        found = Violations()
        ref = parse.issue_ref(found, "issue_id", request.issue_id)
        change, parent = parse_issues.change(found, request)
        etag = found.text("etag", request.etag, maximum=100)
        found.check()
        view = await self._update(current_actor(), ref, change, parent=parent, etag=etag)
        return pb.UpdateIssueResponse(issue=shown(view))

    async def DeleteIssue(
        self, request: pb.DeleteIssueRequest, context: Any
    ) -> pb.DeleteIssueResponse:
        """Take an issue away."""
        found = Violations()
        ref = parse.issue_ref(found, "issue_id", request.issue_id)
        etag = found.text("etag", request.etag, maximum=100)
        found.check()
        await self._delete(current_actor(), ref, etag)
        return pb.DeleteIssueResponse()

    async def CheckoutIssue(
        self, request: pb.CheckoutIssueRequest, context: Any
    ) -> pb.CheckoutIssueResponse:
        """Make an attempt the owner of an issue."""
        actor = current_actor()
        found = Violations()
        ref = parse.issue_ref(found, "issue_id", request.issue_id)
        own = actor.run_id if actor.kind is CallerKind.RUN else None
        run_id = own if own and not request.run_id else found.uuid("run_id", request.run_id)
        expected = parse.states(
            found, "expected_statuses", request.expected_statuses, parse_issues.OPEN_STATES
        )
        found.check()
        view = await self._checkout.check_out(actor, ref, run_id, frozenset(expected))
        return pb.CheckoutIssueResponse(issue=shown(view))

    async def ReleaseIssue(
        self, request: pb.ReleaseIssueRequest, context: Any
    ) -> pb.ReleaseIssueResponse:
        """Give an issue back."""
        ref = parse_issues.one_ref("issue_id", request.issue_id)
        view = await self._checkout.release(current_actor(), ref, force=request.force)
        return pb.ReleaseIssueResponse(issue=shown(view))
