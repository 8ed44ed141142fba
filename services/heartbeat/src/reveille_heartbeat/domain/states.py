"""The state machines of heartbeat, each with its one transition table.

The tables are drawn in `docs/states.md` and repeated as CHECK constraints; a test holds all
of them against each other. States move by compare-and-set only.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class WakeupState(StrEnum):
    """Where a wakeup stands."""

    QUEUED = "queued"
    DEFERRED = "deferred"
    CLAIMED = "claimed"
    COALESCED = "coalesced"
    SKIPPED = "skipped"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class RunState(StrEnum):
    """Where an attempt stands."""

    QUEUED = "queued"
    SCHEDULED_RETRY = "scheduled_retry"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"


class AgentState(StrEnum):
    """Whether an agent, or a squad, takes work."""

    ACTIVE = "active"
    PAUSED = "paused"
    ARCHIVED = "archived"


class IssueState(StrEnum):
    """Where an issue stands."""

    BACKLOG = "backlog"
    TODO = "todo"
    IN_PROGRESS = "in_progress"
    IN_REVIEW = "in_review"
    BLOCKED = "blocked"
    DONE = "done"
    CANCELLED = "cancelled"


class ApprovalStatus(StrEnum):
    """Where an approval stands."""

    PENDING = "pending"
    REVISION_REQUESTED = "revision_requested"
    APPROVED = "approved"
    REJECTED = "rejected"
    CANCELLED = "cancelled"


class ProjectState(StrEnum):
    """Whether work is done for a project."""

    ACTIVE = "active"
    ARCHIVED = "archived"


_W = WakeupState
WAKEUP_INITIAL = frozenset({_W.QUEUED, _W.DEFERRED, _W.COALESCED, _W.SKIPPED, _W.CANCELLED})
WAKEUP_TRANSITIONS: Mapping[WakeupState, frozenset[WakeupState]] = {
    _W.QUEUED: frozenset({_W.CLAIMED, _W.SKIPPED, _W.FAILED, _W.CANCELLED}),
    _W.DEFERRED: frozenset({_W.QUEUED, _W.SKIPPED, _W.FAILED, _W.CANCELLED}),
    _W.CLAIMED: frozenset({_W.COMPLETED, _W.FAILED, _W.CANCELLED}),
    _W.COALESCED: frozenset({_W.COMPLETED, _W.FAILED, _W.CANCELLED}),
    _W.SKIPPED: frozenset(),
    _W.COMPLETED: frozenset(),
    _W.FAILED: frozenset(),
    _W.CANCELLED: frozenset(),
}
WAKEUP_TERMINAL = frozenset({_W.SKIPPED, _W.COMPLETED, _W.FAILED, _W.CANCELLED})

_R = RunState
RUN_INITIAL = frozenset({_R.QUEUED, _R.SCHEDULED_RETRY})
RUN_TRANSITIONS: Mapping[RunState, frozenset[RunState]] = {
    _R.QUEUED: frozenset({_R.RUNNING, _R.CANCELLED}),
    _R.SCHEDULED_RETRY: frozenset({_R.QUEUED, _R.CANCELLED}),
    _R.RUNNING: frozenset({_R.SUCCEEDED, _R.INTERRUPTED, _R.FAILED, _R.TIMED_OUT, _R.CANCELLED}),
    _R.SUCCEEDED: frozenset(),
    _R.INTERRUPTED: frozenset(),
    _R.FAILED: frozenset(),
    _R.CANCELLED: frozenset(),
    _R.TIMED_OUT: frozenset(),
}
RUN_TERMINAL = frozenset({_R.SUCCEEDED, _R.INTERRUPTED, _R.FAILED, _R.CANCELLED, _R.TIMED_OUT})

_A = AgentState
AGENT_INITIAL = frozenset({_A.ACTIVE})
AGENT_TRANSITIONS: Mapping[AgentState, frozenset[AgentState]] = {
    _A.ACTIVE: frozenset({_A.PAUSED, _A.ARCHIVED}),
    _A.PAUSED: frozenset({_A.ACTIVE, _A.ARCHIVED}),
    _A.ARCHIVED: frozenset(),
}
AGENT_TERMINAL = frozenset({_A.ARCHIVED})

_I = IssueState
_OPEN_ENDS = frozenset({_I.DONE, _I.CANCELLED})
ISSUE_INITIAL = frozenset({_I.BACKLOG, _I.TODO})
ISSUE_TRANSITIONS: Mapping[IssueState, frozenset[IssueState]] = {
    _I.BACKLOG: frozenset({_I.TODO, _I.IN_PROGRESS, _I.CANCELLED}),
    _I.TODO: frozenset({_I.BACKLOG, _I.IN_PROGRESS, _I.IN_REVIEW, _I.BLOCKED, *_OPEN_ENDS}),
    _I.IN_PROGRESS: frozenset({_I.TODO, _I.IN_REVIEW, _I.BLOCKED, *_OPEN_ENDS}),
    _I.IN_REVIEW: frozenset({_I.TODO, _I.IN_PROGRESS, _I.BLOCKED, *_OPEN_ENDS}),
    _I.BLOCKED: frozenset({_I.TODO, _I.IN_PROGRESS, _I.IN_REVIEW, *_OPEN_ENDS}),
    # A reopened issue is a new piece of work; what its first end decided stays decided.
    _I.DONE: frozenset({_I.TODO}),
    # Beside that, a hold that is released gives back what it took.
    _I.CANCELLED: frozenset({_I.BACKLOG, _I.TODO, _I.IN_PROGRESS, _I.IN_REVIEW, _I.BLOCKED}),
}
ISSUE_TERMINAL = _OPEN_ENDS


def may_move(current: IssueState, target: IssueState) -> bool:
    """Tell whether somebody may move an issue there; an ended one is opened by being to do."""
    if current in ISSUE_TERMINAL:
        return target is IssueState.TODO
    return target in ISSUE_TRANSITIONS[current]


_D = ApprovalStatus
_DECIDED = frozenset({_D.APPROVED, _D.REJECTED, _D.CANCELLED})
APPROVAL_INITIAL = frozenset({_D.PENDING})
APPROVAL_TRANSITIONS: Mapping[ApprovalStatus, frozenset[ApprovalStatus]] = {
    _D.PENDING: frozenset({_D.REVISION_REQUESTED, *_DECIDED}),
    # The asker has changed what somebody wanted changed; the decision proper is still to come.
    _D.REVISION_REQUESTED: _DECIDED,
    _D.APPROVED: frozenset(),
    _D.REJECTED: frozenset(),
    _D.CANCELLED: frozenset(),
}
APPROVAL_TERMINAL = _DECIDED

_P = ProjectState
PROJECT_INITIAL = frozenset({_P.ACTIVE})
PROJECT_TRANSITIONS: Mapping[ProjectState, frozenset[ProjectState]] = {
    _P.ACTIVE: frozenset({_P.ARCHIVED}),
    _P.ARCHIVED: frozenset({_P.ACTIVE}),
}
PROJECT_TERMINAL: frozenset[ProjectState] = frozenset()
