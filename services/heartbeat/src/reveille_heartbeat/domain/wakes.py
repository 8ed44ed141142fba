"""The reasons of wakes that rules know of; callers may give others."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class WakeReason(StrEnum):
    """Why somebody wanted an agent awake, where that decides something."""

    ISSUE_ASSIGNED = "issue_assigned"
    ISSUE_STATUS_CHANGED = "issue_status_changed"
    ISSUE_COMMENTED = "issue_commented"
    ISSUE_COMMENT_MENTIONED = "issue_comment_mentioned"
    ISSUE_REOPENED_VIA_COMMENT = "issue_reopened_via_comment"
    ISSUE_BLOCKERS_RESOLVED = "issue_blockers_resolved"
    ISSUE_CHILDREN_COMPLETED = "issue_children_completed"
    ISSUE_TREE_RESTORED = "issue_tree_restored"
    EXECUTION_REVIEW_REQUESTED = "execution_review_requested"
    EXECUTION_CHANGES_REQUESTED = "execution_changes_requested"
    APPROVAL_APPROVED = "approval_approved"
    APPROVAL_REJECTED = "approval_rejected"
    APPROVAL_REVISION_REQUESTED = "approval_revision_requested"


_W = WakeReason
# Somebody said something and waits for an answer.
COMMENTED = frozenset(
    {_W.ISSUE_COMMENTED, _W.ISSUE_COMMENT_MENTIONED, _W.ISSUE_REOPENED_VIA_COMMENT}
)
# Meant for whoever the issue belongs to, and for nobody else.
FOR_THE_ASSIGNEE = frozenset(
    {
        _W.ISSUE_ASSIGNED,
        _W.ISSUE_STATUS_CHANGED,
        _W.ISSUE_BLOCKERS_RESOLVED,
        _W.ISSUE_CHILDREN_COMPLETED,
        _W.ISSUE_TREE_RESTORED,
        _W.EXECUTION_CHANGES_REQUESTED,
    }
)
# People wait for a comment that says what came of it.
NEEDS_COMMENT = frozenset(
    {_W.ISSUE_ASSIGNED, _W.EXECUTION_REVIEW_REQUESTED, _W.EXECUTION_CHANGES_REQUESTED}
)
# In the context of a wake that answers comments of its issue, and so may pass holds and blockers:
# by which reason. A comment's wake that joins another one leaves it there.
COMMENT_REASON = "comment_reason"
# In the context of a wake that brings its agent a decision, also where that joined another one:
# the answer to its own question, which may pass holds and blockers, too.
APPROVAL = "approval"


def answers(context: Mapping[str, Any]) -> bool:
    """Tell whether a wake answers somebody who said something; checked when it was enqueued."""
    return COMMENT_REASON in context


def tells(context: Mapping[str, Any]) -> bool:
    """Tell whether a wake answers somebody, or brings its agent a decision that it asked for."""
    return answers(context) or APPROVAL in context
