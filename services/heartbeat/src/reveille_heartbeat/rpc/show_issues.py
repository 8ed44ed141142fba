"""Issues and what belongs to them as messages."""

from __future__ import annotations

from reveille.heartbeat.v1 import approval_pb2, hold_pb2, issue_pb2, project_pb2
from reveille_heartbeat.domain.discussion import Approval, Comment
from reveille_heartbeat.domain.obstacles import HoldMode
from reveille_heartbeat.domain.projects import Project
from reveille_heartbeat.domain.states import ApprovalStatus, ProjectState
from reveille_heartbeat.domain.tree import Hold
from reveille_heartbeat.rpc.show import known
from reveille_heartbeat.usecases.etags import etag_of
from reveille_heartbeat.usecases.issues.issue_views import IssueView
from reveille_runtime.validation import to_timestamp

# In rows the urgent come first and none comes last.
PRIORITIES = {
    issue_pb2.ISSUE_PRIORITY_UNSPECIFIED: 4,
    issue_pb2.ISSUE_PRIORITY_CRITICAL: 0,
    issue_pb2.ISSUE_PRIORITY_HIGH: 1,
    issue_pb2.ISSUE_PRIORITY_MEDIUM: 2,
    issue_pb2.ISSUE_PRIORITY_LOW: 3,
}
_SHOWN_PRIORITIES = {number: value for value, number in PRIORITIES.items()}
HOLD_MODES = known(HoldMode, hold_pb2.HoldMode.DESCRIPTOR, "HOLD_MODE")
APPROVAL_STATUSES = known(ApprovalStatus, approval_pb2.ApprovalStatus.DESCRIPTOR, "APPROVAL_STATUS")
PROJECT_STATES = known(ProjectState, project_pb2.ProjectState.DESCRIPTOR, "PROJECT_STATE")


def issue(view: IssueView) -> issue_pb2.Issue:
    """Show an issue."""
    each = view.issue
    return issue_pb2.Issue(
        issue_id=str(each.issue_id),
        workspace_id=str(each.workspace_id),
        identifier=each.identifier,
        title=each.title,
        description=each.description,
        status=issue_pb2.IssueStatus.Value(f"ISSUE_STATUS_{each.status.name}"),
        priority=_SHOWN_PRIORITIES[each.priority],
        assignee_agent_id=_id(each.assignee_agent_id),
        responsible_user_id=each.responsible_user_id,
        occurrence_key=each.occurrence_key or "",
        execution_run_id=_id(each.execution_run_id),
        etag=etag_of(each),
        create_time=to_timestamp(each.created_at),
        update_time=to_timestamp(each.updated_at),
        project_id=_id(each.project_id),
        parent_issue_id=_id(each.parent_issue_id),
        assignee_user_id=each.assignee_user_id,
        reviewer_agent_id=_id(each.reviewer_agent_id),
        reviewer_user_id=each.reviewer_user_id,
        checkout_run_id=_id(each.checkout_run_id),
        origin_kind=each.origin_kind,
        origin_id=each.origin_id,
        blocker_issue_ids=[str(blocker) for blocker in view.blocker_ids],
        subscriber_user_ids=view.subscribers,
        hold_id=_id(None if view.hold is None else view.hold.hold_id),
        start_time=to_timestamp(each.started_at),
        end_time=to_timestamp(each.ended_at),
    )


def comment(each: Comment) -> issue_pb2.Comment:
    """Show a comment."""
    return issue_pb2.Comment(
        comment_id=str(each.comment_id),
        issue_id=str(each.issue_id),
        author_kind=issue_pb2.CommentAuthorKind.Value(
            f"COMMENT_AUTHOR_KIND_{each.author.kind.name}"
        ),
        author_id=each.author.id,
        run_id=_id(each.run_id),
        body=each.body,
        create_time=to_timestamp(each.created_at),
    )


def hold(each: Hold) -> hold_pb2.IssueHold:
    """Show a hold with what it found."""
    return hold_pb2.IssueHold(
        hold_id=str(each.hold_id),
        root_issue_id=str(each.root_issue_id),
        mode=hold_pb2.HoldMode.Value(f"HOLD_MODE_{each.mode.name}"),
        reason=each.reason,
        active=each.active,
        members=[
            hold_pb2.IssueHoldMember(
                issue_id=str(member.issue_id),
                depth=member.depth,
                status_before=member.status_before.value,
                status_after=member.status_after.value,
                skip_reason=member.skip_reason,
            )
            for member in each.members
        ],
        created_by=each.created_by,
        released_by=each.released_by,
        create_time=to_timestamp(each.created_at),
        release_time=to_timestamp(each.released_at),
    )


def approval(each: Approval) -> approval_pb2.Approval:
    """Show an approval."""
    return approval_pb2.Approval(
        approval_id=str(each.approval_id),
        workspace_id=str(each.workspace_id),
        issue_id=_id(each.issue_id),
        title=each.title,
        description=each.description,
        status=approval_pb2.ApprovalStatus.Value(f"APPROVAL_STATUS_{each.status.name}"),
        requested_by_user_id=each.requested_by_user_id,
        requested_by_agent_id=_id(each.requested_by_agent_id),
        requested_by_run_id=_id(each.requested_by_run_id),
        decided_by=each.decided_by,
        note=each.note,
        etag=etag_of(each),
        create_time=to_timestamp(each.created_at),
        decide_time=to_timestamp(each.decided_at),
    )


def project(each: Project) -> project_pb2.Project:
    """Show a project."""
    return project_pb2.Project(
        project_id=str(each.project_id),
        workspace_id=str(each.workspace_id),
        name=each.name,
        description=each.description,
        state=project_pb2.ProjectState.Value(f"PROJECT_STATE_{each.state.name}"),
        etag=etag_of(each),
        create_time=to_timestamp(each.created_at),
        update_time=to_timestamp(each.updated_at),
    )


def _id(value: object) -> str:
    return "" if value is None else str(value)
