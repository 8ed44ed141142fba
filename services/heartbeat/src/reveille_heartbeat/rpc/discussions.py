"""IssueService: comments and approvals."""

from __future__ import annotations

from typing import Any

from reveille.heartbeat.v1 import approval_pb2, issue_pb2
from reveille.heartbeat.v1.issue_pb2_grpc import IssueServiceServicer
from reveille_heartbeat.domain.states import ApprovalStatus
from reveille_heartbeat.rpc import parse, parse_issues
from reveille_heartbeat.rpc.pages import page_of
from reveille_heartbeat.rpc.show import enqueued
from reveille_heartbeat.rpc.show_issues import APPROVAL_STATUSES, approval, comment
from reveille_heartbeat.usecases.issues.add_comment import AddComment, NewComment
from reveille_heartbeat.usecases.issues.approvals import Approvals, Decision, NewApproval
from reveille_heartbeat.usecases.issues.reading_issues import IssueReader
from reveille_runtime.access import Actor, CallerKind, current_actor
from reveille_runtime.ids import new_id
from reveille_runtime.paging import read_page
from reveille_runtime.validation import Violations

_MAX_MENTIONS = 20
_MAX_NOTE = 10_000


class DiscussionCalls(IssueServiceServicer):
    """Serves what is said about issues, and asked of people."""

    def __init__(self, add: AddComment, approvals: Approvals, reader: IssueReader) -> None:
        self._add_comment = add
        self._approvals = approvals
        self._reader = reader

    async def AddComment(
        self, request: issue_pb2.AddCommentRequest, context: Any
    ) -> issue_pb2.AddCommentResponse:
        """Say something about an issue."""
        actor = current_actor()
        found = Violations()
        if len(request.mentioned_agent_ids) > _MAX_MENTIONS:
            found.add("mentioned_agent_ids", f"has more than {_MAX_MENTIONS} entries")
        mentioned = [
            found.uuid(f"mentioned_agent_ids[{at}]", text)
            for at, text in enumerate(request.mentioned_agent_ids[:_MAX_MENTIONS])
        ]
        new = NewComment(
            comment_id=new_id(),
            ref=parse.issue_ref(found, "issue_id", request.issue_id),
            body=found.text("body", request.body, minimum=1, maximum=parse.MAX_PROMPT, strip=False),
            mentioned_agent_ids=tuple(dict.fromkeys(mentioned)),
            repeatable=parse.repeatable(actor, "AddComment", request, request.request_id),
        )
        if not request.body.strip() and not found:
            found.add("body", "is required", "FIELD_REQUIRED")
        found.check()
        added = await self._add_comment(actor, new)
        return issue_pb2.AddCommentResponse(
            comment=comment(added.comment), wakeups=[enqueued(each) for each in added.wakeups]
        )

    async def ListComments(
        self, request: issue_pb2.ListCommentsRequest, context: Any
    ) -> issue_pb2.ListCommentsResponse:
        """List the comments of an issue, oldest first."""
        ref = parse_issues.one_ref("issue_id", request.issue_id)
        query = ("ListComments", ref)
        page = read_page(request.page_size, request.page_token, query)
        listed = await self._reader.comments(current_actor(), ref, page)
        comments, token = page_of(listed, comment, lambda each: each.comment_id, query)
        return issue_pb2.ListCommentsResponse(comments=comments, next_page_token=token)

    async def RequestApproval(
        self, request: approval_pb2.RequestApprovalRequest, context: Any
    ) -> approval_pb2.RequestApprovalResponse:
        """Ask people for a decision."""
        actor = current_actor()
        found = Violations()
        new = NewApproval(
            approval_id=new_id(),
            workspace_id=found.uuid("workspace_id", _workspace(request, actor)),
            ref=parse_issues.optional_ref(found, "issue_id", request.issue_id),
            title=found.text("title", request.title, minimum=1, maximum=parse.MAX_TITLE),
            description=found.text(
                "description", request.description, maximum=parse.MAX_PROMPT, strip=False
            ),
            repeatable=parse.repeatable(actor, "RequestApproval", request, request.request_id),
        )
        found.check()
        actor.require_member(new.workspace_id)
        asked = await self._approvals.request(actor, new)
        return approval_pb2.RequestApprovalResponse(approval=approval(asked))

    async def ResolveApproval(
        self, request: approval_pb2.ResolveApprovalRequest, context: Any
    ) -> approval_pb2.ResolveApprovalResponse:
        """Decide."""
        found = Violations()
        decision = Decision(
            approval_id=found.uuid("approval_id", request.approval_id),
            status=found.enum(
                "status",
                request.status,
                {
                    number: status
                    for number, status in APPROVAL_STATUSES.items()
                    if status is not ApprovalStatus.PENDING
                },
            ),
            note=found.text("note", request.note, maximum=_MAX_NOTE, strip=False),
            etag=found.text("etag", request.etag, maximum=100),
        )
        found.check()
        decided = await self._approvals.resolve(current_actor(), decision)
        wakeup = decided.wakeup
        return approval_pb2.ResolveApprovalResponse(
            approval=approval(decided.approval),
            wakeup_id="" if wakeup is None else str(wakeup.wakeup_id),
        )

    async def ListApprovals(
        self, request: approval_pb2.ListApprovalsRequest, context: Any
    ) -> approval_pb2.ListApprovalsResponse:
        """List approvals, newest first."""
        actor = current_actor()
        found = Violations()
        workspace_id = found.uuid("workspace_id", _workspace(request, actor))
        statuses = parse.states(found, "statuses", request.statuses, APPROVAL_STATUSES)
        ref = parse_issues.optional_ref(found, "issue_id", request.issue_id)
        found.check()
        query = ("ListApprovals", workspace_id, *sorted(statuses), ref)
        page = read_page(request.page_size, request.page_token, query)
        listed = await self._reader.approvals(actor, workspace_id, statuses, ref, page)
        approvals, token = page_of(listed, approval, lambda each: each.approval_id, query)
        return approval_pb2.ListApprovalsResponse(approvals=approvals, next_page_token=token)


def _workspace(request: Any, actor: Actor) -> str:
    """A run need not name its workspace."""
    own = actor.workspace_id if actor.kind is CallerKind.RUN else None
    return request.workspace_id or ("" if own is None else str(own))
