"""Rows that belong to issues as the domain's values: comments, approvals, projects, holds."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from reveille_heartbeat.domain.discussion import Approval, Comment
from reveille_heartbeat.domain.obstacles import HoldMode
from reveille_heartbeat.domain.projects import Project
from reveille_heartbeat.domain.states import ApprovalStatus, IssueState, ProjectState
from reveille_heartbeat.domain.tree import Hold, Member
from reveille_heartbeat.domain.values import Requester, RequesterKind

Record = asyncpg.Record


def to_comment(row: Record) -> Comment:
    """Map a row of `issue_comments`."""
    return Comment(
        comment_id=row["comment_id"],
        issue_id=row["issue_id"],
        workspace_id=row["workspace_id"],
        author=Requester(RequesterKind(row["author_kind"]), row["author_id"]),
        run_id=row["run_id"],
        body=row["body"],
        created_at=row["created_at"],
    )


def to_approval(row: Record) -> Approval:
    """Map a row of `approvals`."""
    return Approval(
        approval_id=row["approval_id"],
        workspace_id=row["workspace_id"],
        issue_id=row["issue_id"],
        title=row["title"],
        description=row["description"],
        status=ApprovalStatus(row["status"]),
        requested_by_user_id=row["requested_by_user_id"],
        requested_by_agent_id=row["requested_by_agent_id"],
        requested_by_run_id=row["requested_by_run_id"],
        decided_by=row["decided_by"],
        note=row["note"],
        revision=row["revision"],
        created_at=row["created_at"],
        decided_at=row["decided_at"],
    )


def to_project(row: Record) -> Project:
    """Map a row of `projects`."""
    return Project(
        project_id=row["project_id"],
        workspace_id=row["workspace_id"],
        name=row["name"],
        description=row["description"],
        state=ProjectState(row["state"]),
        revision=row["revision"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


def to_hold(row: Record, members: Sequence[Member]) -> Hold:
    """Map a row of `issue_tree_holds` with what it found."""
    return Hold(
        hold_id=row["hold_id"],
        root_issue_id=row["root_issue_id"],
        mode=HoldMode(row["mode"]),
        reason=row["reason"],
        active=row["status"] == "active",
        created_by=row["created_by"],
        released_by=row["released_by"],
        created_at=row["created_at"],
        released_at=row["released_at"],
        members=tuple(members),
    )


def to_member(row: Record) -> Member:
    """Map a row of `issue_tree_hold_members`."""
    return Member(
        issue_id=row["issue_id"],
        depth=row["depth"],
        status_before=IssueState(row["status_before"]),
        status_after=IssueState(row["status_after"]),
        skip_reason=row["skip_reason"],
        ended_at=row["ended_at"],
    )
