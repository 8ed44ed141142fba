"""What is said about issues, and the decisions that are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from reveille_heartbeat.domain.states import ApprovalStatus
from reveille_heartbeat.domain.values import Requester
from reveille_heartbeat.domain.wakes import WakeReason


@dataclass(frozen=True, slots=True)
class Comment:
    """Something said about an issue."""

    comment_id: UUID
    issue_id: UUID
    workspace_id: UUID
    author: Requester
    # The attempt in which an agent wrote it.
    run_id: UUID | None
    body: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Approval:
    """A decision that is asked for."""

    approval_id: UUID
    workspace_id: UUID
    issue_id: UUID | None
    title: str
    description: str
    status: ApprovalStatus
    requested_by_user_id: str
    requested_by_agent_id: UUID | None
    requested_by_run_id: UUID | None
    decided_by: str
    note: str
    revision: int
    created_at: datetime
    decided_at: datetime | None


# What its asker is woken with; nobody is told of what nobody needs any more.
DECISION_WAKES = {
    ApprovalStatus.APPROVED: WakeReason.APPROVAL_APPROVED,
    ApprovalStatus.REJECTED: WakeReason.APPROVAL_REJECTED,
    ApprovalStatus.REVISION_REQUESTED: WakeReason.APPROVAL_REVISION_REQUESTED,
}
