"""What a change of an issue means for its agents: whom to wake, and whose wakes are void now."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import ISSUE_TERMINAL, IssueState
from reveille_heartbeat.domain.values import Issue, Wakeup, WakeupSource
from reveille_heartbeat.domain.wakes import WakeReason, tells

MAX_RELATIONS = 100


@dataclass(frozen=True, slots=True)
class IssueWake:
    """An agent to wake about an issue."""

    agent_id: UUID
    source: WakeupSource
    reason: WakeReason


def wakes_after(before: Issue, after: Issue, *, by_agent: UUID | None) -> list[IssueWake]:
    """Say whom a change concerns; `by_agent` made it, and is not told of its own doing."""
    if after.status in ISSUE_TERMINAL:
        return []
    wakes = []
    if _review_is_new(before, after) and after.reviewer_agent_id is not None:
        wakes.append(_automatic(after.reviewer_agent_id, WakeReason.EXECUTION_REVIEW_REQUESTED))
    assignee = after.assignee_agent_id
    if assignee is None or assignee == by_agent or after.status is IssueState.BACKLOG:
        return wakes
    if assignee != before.assignee_agent_id:
        wakes.append(IssueWake(assignee, WakeupSource.ASSIGNMENT, WakeReason.ISSUE_ASSIGNED))
    elif before.status is IssueState.IN_REVIEW and after.status in _SENT_BACK:
        wakes.append(_automatic(assignee, WakeReason.EXECUTION_CHANGES_REQUESTED))
    elif before.status is not after.status and after.status is IssueState.TODO:
        wakes.append(_automatic(assignee, WakeReason.ISSUE_STATUS_CHANGED))
    return wakes


def void_after(before: Issue, after: Issue, wakeup: Wakeup) -> Reason | None:
    """Say why a wake that waits has no object any more; None when it still has one.

    What an agent is told reaches it although the work is another's now.
    """
    if tells(wakeup.context):
        return None
    reviews = wakeup.wake_reason == WakeReason.EXECUTION_REVIEW_REQUESTED
    if reviews:
        was, now, reason = (
            before.reviewer_agent_id,
            after.reviewer_agent_id,
            Reason.ISSUE_REVIEWER_CHANGED,
        )
    else:
        was, now, reason = (
            before.assignee_agent_id,
            after.assignee_agent_id,
            Reason.ISSUE_ASSIGNEE_CHANGED,
        )
    return reason if was == wakeup.agent_id != now else None


def may_be_woken(issue: Issue) -> bool:
    """Tell whether work on an issue can go on by itself: it is open, ready, and an agent's."""
    return (
        issue.assignee_agent_id is not None
        and issue.deleted_at is None
        and issue.status not in ISSUE_TERMINAL
        and issue.status is not IssueState.BACKLOG
    )


def wakes_when_whole(issue: Issue) -> list[IssueWake]:
    """Say who is woken about an issue all of whose parts have ended."""
    return _to_its_agent(issue, WakeReason.ISSUE_CHILDREN_COMPLETED)


def wakes_when_free(issue: Issue, reason: WakeReason) -> list[IssueWake]:
    """Say who is woken about an issue that nothing keeps any more.

    Its agent goes on; whoever judges it was perhaps asked while it was kept, and is asked again.
    """
    wakes = _to_its_agent(issue, reason)
    if (
        issue.reviewer_agent_id is not None
        and issue.status is IssueState.IN_REVIEW
        and issue.deleted_at is None
    ):
        wakes.append(_automatic(issue.reviewer_agent_id, WakeReason.EXECUTION_REVIEW_REQUESTED))
    return wakes


def _review_is_new(before: Issue, after: Issue) -> bool:
    return after.status is IssueState.IN_REVIEW and (
        before.status is not after.status or before.reviewer_agent_id != after.reviewer_agent_id
    )


def _to_its_agent(issue: Issue, reason: WakeReason) -> list[IssueWake]:
    if issue.assignee_agent_id is None or not may_be_woken(issue):
        return []
    return [_automatic(issue.assignee_agent_id, reason)]


def _automatic(agent_id: UUID, reason: WakeReason) -> IssueWake:
    return IssueWake(agent_id, WakeupSource.AUTOMATION, reason)


_SENT_BACK = frozenset({IssueState.TODO, IssueState.IN_PROGRESS})
