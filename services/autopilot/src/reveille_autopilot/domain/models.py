"""The values of the rule plane: workspaces, rules, triggers, versions and runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import assert_never
from uuid import UUID

from reveille_autopilot.domain.states import (
    RUN_TERMINAL,
    AttributionSource,
    AutopilotStatus,
    ExecutionMode,
    MemberRole,
    OverlapPolicy,
    QuotaAction,
    QuotaPeriod,
    RunSource,
    RunState,
    TriggerKind,
    WorkspaceStatus,
)


@dataclass(frozen=True, slots=True)
class Quota:
    """How many runs a workspace may have in a period."""

    action: QuotaAction = QuotaAction.OFF
    limit: int = 0
    period: QuotaPeriod = QuotaPeriod.MONTH

    def window(self, now: datetime) -> tuple[datetime, datetime]:
        """Give the period that an instant lies in: its start, and the start of the next."""
        midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        match self.period:
            case QuotaPeriod.DAY:
                return midnight, midnight + timedelta(days=1)
            case QuotaPeriod.MONTH:
                first = midnight.replace(day=1)
                return first, (first + timedelta(days=32)).replace(day=1)
            case _:
                assert_never(self.period)


@dataclass(frozen=True, slots=True)
class Workspace:
    """A tenant."""

    id: UUID
    name: str
    issue_prefix: str
    attribution_fail_closed: bool
    default_responsible_user_id: str
    quota: Quota
    status: WorkspaceStatus
    revision: int
    created_at: datetime

    @property
    def etag(self) -> str:
        """The mark that changes with every change."""
        return f"w{self.revision}"


@dataclass(frozen=True, slots=True)
class Member:
    """A user's place in a workspace."""

    workspace_id: UUID
    user_id: str
    role: MemberRole
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Collaborator:
    """A member who may change a rule of another."""

    autopilot_id: UUID
    user_id: str
    granted_by: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Autopilot:
    """A standing rule as it is in force."""

    id: UUID
    workspace_id: UUID
    title: str
    prompt: str
    issue_title_template: str
    # The agent that works, or the squad whose leader does: exactly one of them.
    agent_id: UUID | None
    squad_id: UUID | None
    project_id: UUID | None
    execution_mode: ExecutionMode
    overlap_policy: OverlapPolicy
    status: AutopilotStatus
    pause_reason: str | None
    creator_user_id: str
    rule_version_id: UUID
    rule_sequence: int
    revision: int
    active_since: datetime
    created_at: datetime
    updated_at: datetime

    @property
    def etag(self) -> str:
        """The mark that changes with every change, also of what no version records."""
        return f"v{self.revision}"


@dataclass(frozen=True, slots=True)
class EventFilter:
    """An event a webhook trigger listens for; no actions means all of them."""

    event: str
    actions: tuple[str, ...] = ()

    def as_json(self) -> dict[str, object]:
        """Return the stored form."""
        return {"event": self.event, "actions": list(self.actions)}


@dataclass(frozen=True, slots=True)
class ScheduleConfig:
    """The settings of a schedule trigger."""

    cron: str
    time_zone: str
    # The one instant at which it fires, in place of a cron.
    run_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class WebhookConfig:
    """The settings of a webhook trigger; its address is not one of them."""

    provider: str
    event_filters: tuple[EventFilter, ...]
    max_body_bytes: int
    # What else the gateway shall do: its words, in JSON, which it judges itself.
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Trigger:
    """What sets a rule off."""

    id: UUID
    autopilot_id: UUID
    workspace_id: UUID
    enabled: bool
    label: str
    config: ScheduleConfig | WebhookConfig
    publisher_user_id: str | None
    revision: int
    synced_revision: int
    effective_from: datetime
    created_at: datetime
    deleted_at: datetime | None = None
    # What the receiver said when it refused the current settings.
    sync_error: str = ""

    @property
    def kind(self) -> TriggerKind:
        """Tell what it listens to."""
        if isinstance(self.config, ScheduleConfig):
            return TriggerKind.SCHEDULE
        return TriggerKind.WEBHOOK

    @property
    def etag(self) -> str:
        """The mark that changes with its settings, and with nothing else.

        The revision will not do: it also tells the receivers that the rule was paused.
        """
        settings = [self.enabled, self.label, asdict(self.config)]
        written = json.dumps(settings, sort_keys=True, default=str).encode()
        return f"t{hashlib.sha256(written).hexdigest()[:16]}"

    @property
    def synced(self) -> bool:
        """Tell whether the scheduler or the gateway has confirmed the current settings."""
        return self.revision == self.synced_revision


@dataclass(frozen=True, slots=True)
class Payload:
    """What the agent gets to read: the bytes as they came, and facts beside them."""

    content_type: str
    body: bytes
    facts: Mapping[str, str] = field(default_factory=dict)
    # The body is too large to travel: heartbeat fetches it from the gateway by its delivery.
    omitted: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a rule: the intent, frozen at admission, and its one outcome."""

    id: UUID
    workspace_id: UUID
    autopilot_id: UUID
    trigger_id: UUID | None
    source: RunSource
    state: RunState
    occurrence_key: str
    planned_at: datetime | None
    delivery_id: UUID | None
    given_up_at: datetime | None
    execution_mode: ExecutionMode
    # None where no leader of the squad could be named.
    agent_id: UUID | None
    squad_id: UUID | None
    project_id: UUID | None
    rule_version_id: UUID
    title: str
    prompt: str
    originator_user_id: str | None
    accountable_user_id: str | None
    attribution_source: AttributionSource | None
    reason: str | None
    message: str
    wakeup_id: UUID | None
    issue_id: UUID | None
    result: bytes | None
    payload_ready: bool
    payload_bytes: int
    attempts: int
    next_attempt_at: datetime | None
    dispatch_deadline_at: datetime
    cancel_requested_at: datetime | None
    cancel_requested_by: str | None
    request_fingerprint: bytes | None
    trace_carrier: Mapping[str, str]
    created_at: datetime
    finished_at: datetime | None
    # The period whose quota it counts in; None while quotas are off.
    quota_period_start: datetime | None = None

    @property
    def terminal(self) -> bool:
        """Tell whether the run has its outcome."""
        return self.state in RUN_TERMINAL
