"""The things heartbeat knows, as values: workspaces, agents, issues, wakes and attempts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import AgentState, IssueState, RunState, WakeupState

Carrier = Mapping[str, str]
# Where a wish names an agent that cannot be found.
NOBODY = UUID(int=0)


class WakeupSource(StrEnum):
    """Where the wish to wake an agent came from."""

    AUTOMATION = "automation"
    ON_DEMAND = "on_demand"
    ASSIGNMENT = "assignment"
    TIMER = "timer"


class InvocationRule(StrEnum):
    """Who may wake an agent besides its owner."""

    PRIVATE = "private"
    WORKSPACE = "workspace"
    MEMBERS = "members"


class LogStream(StrEnum):
    """Which output of an agent."""

    STDOUT = "stdout"
    STDERR = "stderr"


class WorkspaceStatus(StrEnum):
    """Whether work goes on in a workspace."""

    ACTIVE = "active"
    PAUSED = "paused"
    ARCHIVED = "archived"


class RequesterKind(StrEnum):
    """What kind of caller wanted an agent awake."""

    USER = "user"
    AGENT = "agent"
    SERVICE = "service"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class Requester:
    """Who wanted an agent awake: a user's, an agent's or a service's name, by its kind."""

    kind: RequesterKind
    id: str


@dataclass(frozen=True, slots=True)
class Workspace:
    """The copy of a workspace."""

    workspace_id: UUID
    issue_prefix: str
    default_responsible_user_id: str
    status: WorkspaceStatus = WorkspaceStatus.ACTIVE


@dataclass(frozen=True, slots=True)
class HeartbeatPolicy:
    """What wakes an agent, and how often."""

    timer_enabled: bool = False
    timer_interval: timedelta = timedelta(0)
    skip_timer_without_work: bool = False
    wake_on_demand: bool = True
    # Per UTC day; None is no limit, 0 is never.
    max_daily_runs: int | None = None
    max_daily_cost_cents: int | None = None
    cooldown: timedelta = timedelta(0)
    max_turn_continuations: int = 2
    max_turn_delay: timedelta = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Agent:
    """What can be woken."""

    agent_id: UUID
    workspace_id: UUID
    name: str
    adapter: str
    adapter_config: Mapping[str, Any]
    owner_user_id: str
    invocation_rule: InvocationRule
    invocation_user_ids: tuple[str, ...]
    max_concurrent_runs: int
    run_timeout: timedelta
    idle_timeout: timedelta
    created_at: datetime
    runtime_id: UUID | None
    runtime_present: bool
    # Why its runtime is of no use although it is present; empty when it is.
    runtime_unusable_reason: str
    state: AgentState
    pause_reason: str
    manager_agent_id: UUID | None
    heartbeat: HeartbeatPolicy
    last_timer_fired_at: datetime | None
    start_limit: timedelta
    revision: int
    updated_at: datetime
    # Derived when read: a run never writes to the row that all of them share.
    busy: bool = False
    last_run_failed: bool = False


@dataclass(frozen=True, slots=True)
class Issue:
    """A piece of work."""

    issue_id: UUID
    workspace_id: UUID
    identifier: str
    title: str
    description: str
    status: IssueState
    priority: int
    assignee_agent_id: UUID | None
    responsible_user_id: str
    occurrence_key: str | None
    execution_run_id: UUID | None
    revision: int
    trace_carrier: Carrier
    created_at: datetime
    updated_at: datetime
    project_id: UUID | None
    parent_issue_id: UUID | None
    assignee_user_id: str
    reviewer_agent_id: UUID | None
    reviewer_user_id: str
    # The attempt that owns the work; `execution_run_id` is the one that executes now.
    checkout_run_id: UUID | None
    origin_kind: str
    origin_id: str
    started_at: datetime | None
    ended_at: datetime | None
    # When others than the agent at work last said or changed something.
    last_input_at: datetime
    deleted_at: datetime | None


@dataclass(frozen=True, slots=True)
class Payload:
    """What an agent gets to read, as it came."""

    content_type: str = ""
    body: bytes = b""
    delivery_id: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Origin:
    """Who asks, and for whom."""

    occurrence_key: str | None = None
    originator_user_id: str = ""
    accountable_user_id: str = ""
    autopilot_run_id: str = ""
    trace_carrier: Carrier = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wish:
    """A normalised wish to wake an agent; `wakeup_id` is the row it will have."""

    wakeup_id: UUID
    workspace_id: UUID
    agent_id: UUID
    source: WakeupSource
    wake_reason: str
    title: str
    prompt: str
    issue_id: UUID | None
    caller: str
    idempotency_key: str | None
    origin: Origin
    payload: Payload
    requester: Requester
    # As the caller named the issue, in upper case, until it has its id.
    issue_identifier: str = ""
    squad_id: UUID | None = None
    # What keeps a conversation together; empty when nothing does.
    task_key: str = ""
    comment_ids: tuple[UUID, ...] = ()
    fresh_session: bool = False
    # What the agent should know beside the payload, for example what blocks its issue.
    context: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wakeup:
    """A wakeup as recorded."""

    wakeup_id: UUID
    workspace_id: UUID
    agent_id: UUID
    source: WakeupSource
    wake_reason: str
    title: str
    state: WakeupState
    reason: str
    message: str
    issue_id: UUID | None
    run_id: UUID | None
    occurrence_key: str | None
    joined_wakeup_id: UUID | None
    originator_user_id: str
    accountable_user_id: str
    responsible_user_id: str
    autopilot_run_id: str
    attempts: int
    cancel_requested: bool
    trace_carrier: Carrier
    created_at: datetime
    claimed_at: datetime | None
    finished_at: datetime | None
    squad_id: UUID | None
    requester: Requester
    task_key: str
    comment_ids: tuple[UUID, ...]
    fresh_session: bool
    coalesced_count: int
    context: Mapping[str, Any]


class FailureClass(StrEnum):
    """Why an attempt failed, as far as that decides what follows."""

    NONE = ""
    TRANSIENT = "transient"
    QUOTA = "quota"
    REFUSAL = "refusal"
    CREDENTIALS = "credentials"
    CONFIGURATION = "configuration"
    MAX_TURNS = "max_turns"
    LOST = "lost"
    OTHER = "other"


class CommentStatus(StrEnum):
    """Whether an attempt left the comment that its issue's people wait for."""

    NOT_APPLICABLE = "not_applicable"
    SATISFIED = "satisfied"
    RETRY_QUEUED = "retry_queued"
    RETRY_EXHAUSTED = "retry_exhausted"


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process that cannot be mistaken for another of the same number, within one place."""

    pid: int
    start_ticks: int


@dataclass(frozen=True, slots=True)
class Run:
    """One attempt."""

    run_id: UUID
    workspace_id: UUID
    agent_id: UUID
    wakeup_id: UUID
    issue_id: UUID | None
    state: RunState
    attempt: int
    retry_of_run_id: UUID | None
    retry_reason: str
    reason: str
    message: str
    exit_code: int | None
    summary: str
    result: bytes | None
    responsible_user_id: str
    occupied: bool
    executor_id: str
    place: str
    lease_token: UUID | None
    lease_expires_at: datetime | None
    deadline_at: datetime | None
    idle_deadline_at: datetime | None
    process: ProcessIdentity | None
    trace_carrier: Carrier
    agent_carrier: Carrier
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    follow_up_done_at: datetime | None
    start_by: datetime
    scheduled_retry_at: datetime | None
    failure_class: FailureClass
    retry_not_before: datetime | None
    comment_status: CommentStatus
    # Whether it left something on its issue that others can see.
    left_progress: bool
    last_output_at: datetime | None
    progress: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A decision of a rule: the wish goes no further, and why."""

    reason: Reason
    message: str
