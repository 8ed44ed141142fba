"""May an attempt own an issue? Owners and locks count only while their attempts live."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Set as AbstractSet
from enum import StrEnum
from uuid import UUID

from reveille_heartbeat.domain.states import IssueState
from reveille_heartbeat.domain.values import Issue
from reveille_heartbeat.domain.wakes import WakeReason

# From where work begins, when the caller does not say.
READY = frozenset({IssueState.BACKLOG, IssueState.TODO, IssueState.BLOCKED})
# Wakes that ask for something else than the work itself.
_NOT_FOR_WORK = frozenset(
    {WakeReason.ISSUE_COMMENT_MENTIONED, WakeReason.EXECUTION_REVIEW_REQUESTED}
)


class Claim(StrEnum):
    """How an attempt comes to own an issue, or why it does not."""

    # It is ready, and nobody else's.
    TAKE = "take"
    # Work on it has begun by this agent, in an attempt that is over or never owned it.
    ADOPT = "adopt"
    # This attempt owns it already.
    OWNED = "owned"
    # Somebody else has it, or it is not where the caller expects it.
    CONFLICT = "conflict"


def claim(
    issue: Issue,
    run_id: UUID,
    agent_id: UUID,
    expected: Collection[IssueState],
    live: AbstractSet[UUID],
) -> Claim:
    """Judge a checkout; `live` are those of the attempts the issue names that wait or work."""
    owner = issue.checkout_run_id if issue.checkout_run_id in live else None
    lock = issue.execution_run_id if issue.execution_run_id in live else None
    if lock not in (None, run_id) or owner not in (None, run_id) or issue.assignee_user_id:
        return Claim.CONFLICT
    ours = issue.assignee_agent_id == agent_id
    working = issue.status is IssueState.IN_PROGRESS and ours
    if working and owner == run_id and lock == run_id:
        return Claim.OWNED
    if working:
        return Claim.ADOPT
    if issue.status in expected and (ours or issue.assignee_agent_id is None):
        return Claim.TAKE
    return Claim.CONFLICT


def begins_work(issue: Issue, agent_id: UUID, wake_reason: str) -> bool:
    """Tell whether an attempt that begins checks its issue out by itself.

    Only for the agent the issue belongs to, and only when the wake asks it to work.
    """
    return (
        issue.assignee_agent_id == agent_id
        and (issue.status in READY or issue.status is IssueState.IN_PROGRESS)
        and wake_reason not in _NOT_FOR_WORK
    )
