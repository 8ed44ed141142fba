"""The states and closed vocabularies of rules and their runs, and how a run may move."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class RunState(StrEnum):
    """Where a run stands."""

    PENDING = "pending"
    BUFFERED = "buffered"
    ISSUE_CREATED = "issue_created"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


_OUTCOMES = frozenset({RunState.COMPLETED, RunState.FAILED, RunState.SKIPPED, RunState.CANCELLED})

RUN_TRANSITIONS: Mapping[RunState, frozenset[RunState]] = {
    RunState.PENDING: _OUTCOMES | {RunState.ISSUE_CREATED, RunState.RUNNING},
    # Nothing was made for it yet: it is let go, or called off.
    RunState.BUFFERED: frozenset({RunState.PENDING, RunState.CANCELLED}),
    RunState.RUNNING: _OUTCOMES,
    # A refused assignment wakeup leaves the issue, and so the run, open: no way to `skipped`.
    RunState.ISSUE_CREATED: _OUTCOMES - {RunState.SKIPPED},
    RunState.COMPLETED: frozenset(),
    RunState.FAILED: frozenset(),
    RunState.SKIPPED: frozenset(),
    RunState.CANCELLED: frozenset(),
}
RUN_INITIAL = frozenset({RunState.PENDING, RunState.BUFFERED, RunState.SKIPPED})
RUN_TERMINAL = frozenset(state for state, after in RUN_TRANSITIONS.items() if not after)
RUN_OPEN = frozenset(RunState) - RUN_TERMINAL


def may_move(before: RunState, after: RunState) -> bool:
    """Tell whether a run may go from one state to another."""
    return after in RUN_TRANSITIONS[before]


class RunSource(StrEnum):
    """What set a run off."""

    SCHEDULE = "schedule"
    WEBHOOK = "webhook"
    MANUAL = "manual"
    API = "api"

    @property
    def on_request(self) -> bool:
        """Tell whether somebody asked for this very run and waits for an answer."""
        return self in {RunSource.MANUAL, RunSource.API}


class ExecutionMode(StrEnum):
    """What a trigger makes."""

    RUN_ONLY = "run_only"
    CREATE_ISSUE = "create_issue"


class AutopilotStatus(StrEnum):
    """Whether a rule is in force."""

    ACTIVE = "active"
    PAUSED = "paused"
    ARCHIVED = "archived"


class WorkspaceStatus(StrEnum):
    """Whether work goes on in a workspace."""

    ACTIVE = "active"
    PAUSED = "paused"
    ARCHIVED = "archived"


class OverlapPolicy(StrEnum):
    """What becomes of an occurrence while an earlier run has no outcome yet."""

    ALLOW = "allow"
    SKIP = "skip"
    BUFFER_ONE = "buffer_one"
    CANCEL_OTHER = "cancel_other"


class QuotaAction(StrEnum):
    """What a quota does."""

    OFF = "off"
    OBSERVE = "observe"
    ENFORCE = "enforce"


class QuotaPeriod(StrEnum):
    """How long a quota counts, in UTC."""

    DAY = "day"
    MONTH = "month"


class TriggerKind(StrEnum):
    """What a trigger listens to."""

    SCHEDULE = "schedule"
    WEBHOOK = "webhook"


class MemberRole(StrEnum):
    """A user's place in a workspace."""

    MEMBER = "member"
    ADMIN = "admin"
    OWNER = "owner"

    @property
    def manages(self) -> bool:
        """Tell whether the role may change what belongs to others."""
        return self in {MemberRole.ADMIN, MemberRole.OWNER}


class AttributionSource(StrEnum):
    """How the accountable person was found."""

    DIRECT_HUMAN = "direct_human"
    TRIGGER_OWNER = "trigger_owner"
    RULE_OWNER = "rule_owner"
    OWNER_FALLBACK = "owner_fallback"


class Reason(StrEnum):
    """Why a run did not go the ordinary way, in this service's own words.

    A part of the contract's vocabulary. What heartbeat answers is passed on as it came.
    """

    AUTOPILOT_PAUSED = "autopilot_paused"
    AUTOPILOT_ARCHIVED = "autopilot_archived"
    TRIGGER_DISABLED = "trigger_disabled"
    TRIGGER_NOT_FOUND = "trigger_not_found"
    EVENT_FILTERED = "event_filtered"
    ATTRIBUTION_BLOCKED = "attribution_blocked"
    # Heartbeat's answers that this service acts on.
    TARGET_UNAVAILABLE = "target_unavailable"
    PROJECT_UNAVAILABLE = "project_unavailable"
    INVOCATION_NOT_ALLOWED = "invocation_not_allowed"
    AGENT_RUNTIME_REQUIRED = "agent_runtime_required"
    ALREADY_ACTIVE = "already_active"
    QUOTA_EXCEEDED = "quota_exceeded"
    HIGH_FAILURE_RATE = "high_failure_rate"
    REPLACED = "replaced"
    DISPATCH_FAILED = "dispatch_failed"
    DISPATCH_INCOMPLETE = "dispatch_incomplete"
    CANCELLED = "cancelled"
    PURGED = "purged"
    ISSUE_CANCELLED = "issue_cancelled"
    ISSUE_NOT_FOUND = "issue_not_found"


class Change(StrEnum):
    """What an edit did to a rule, as its version records it."""

    CREATED = "created"
    UPDATED = "updated"
    RENAMED = "renamed"
    PAUSED = "paused"
    RESUMED = "resumed"
    ARCHIVED = "archived"
    TRIGGER_CREATED = "trigger_created"
    TRIGGER_UPDATED = "trigger_updated"
    TRIGGER_DELETED = "trigger_deleted"
    TOKEN_ROTATED = "token_rotated"  # noqa: S105 - the name of an edit
    SECRET_ADDED = "secret_added"  # noqa: S105 - the name of an edit
    SECRET_REMOVED = "secret_removed"  # noqa: S105 - the name of an edit
    RETARGETED = "retargeted"
