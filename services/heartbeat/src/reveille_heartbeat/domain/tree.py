"""What a hold finds in a tree of issues, and what its release gives back."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from reveille_heartbeat.domain.obstacles import HoldMode, HoldOver
from reveille_heartbeat.domain.states import ISSUE_TERMINAL, IssueState
from reveille_heartbeat.domain.values import Issue

# Issues in one tree; more are not locked in one transaction.
MAX_TREE = 2000

TERMINAL_STATUS = "terminal_status"
ALREADY_HELD = "already_held"
CHANGED_AFTER_CANCEL = "changed_after_cancel"


@dataclass(frozen=True, slots=True)
class Placed:
    """An issue, and how far it is below the root."""

    issue: Issue
    depth: int


@dataclass(frozen=True, slots=True)
class Member:
    """An issue as a hold found it."""

    issue_id: UUID
    depth: int
    status_before: IssueState
    status_after: IssueState
    # Why it was left as it was; empty when it was not.
    skip_reason: str = ""
    # When the hold ended it.
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """A hold on an issue and all below it."""

    hold_id: UUID
    root_issue_id: UUID
    mode: HoldMode
    reason: str
    active: bool
    created_by: str
    released_by: str
    created_at: datetime
    released_at: datetime | None
    members: tuple[Member, ...]


def member_found(placed: Placed, mode: HoldMode, over: HoldOver | None) -> Member:
    """Say what a hold does to an issue of its tree."""
    status = placed.issue.status
    skip = ""
    if status in ISSUE_TERMINAL:
        skip = TERMINAL_STATUS
    elif mode is HoldMode.PAUSE and over is not None and over.mode is HoldMode.PAUSE:
        skip = ALREADY_HELD
    cancels = mode is HoldMode.CANCEL and not skip
    after = IssueState.CANCELLED if cancels else status
    return Member(placed.issue.issue_id, placed.depth, status, after, skip)


def restores(member: Member, issue: Issue) -> bool:
    """Tell whether an issue still has the status that the hold gave it, and no other since."""
    return (
        issue.deleted_at is None
        and issue.status is member.status_after
        and issue.ended_at == member.ended_at
    )


def member_released(hold: Hold, changed: Collection[UUID]) -> Hold:
    """Note the issues that somebody changed while they were held."""
    members = tuple(
        replace(each, skip_reason=CHANGED_AFTER_CANCEL) if each.issue_id in changed else each
        for each in hold.members
    )
    return replace(hold, members=members)
