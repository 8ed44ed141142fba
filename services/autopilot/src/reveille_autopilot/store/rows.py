"""Rows into values: the one place that knows how columns are read."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import asyncpg

from reveille_autopilot.domain.models import (
    Autopilot,
    EventFilter,
    Member,
    Quota,
    Run,
    ScheduleConfig,
    Trigger,
    WebhookConfig,
    Workspace,
)
from reveille_autopilot.domain.states import (
    AttributionSource,
    AutopilotStatus,
    Change,
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
from reveille_autopilot.domain.versions import RuleVersion

Row = asyncpg.Record


def uuid(value: Any) -> UUID:
    """Make a plain UUID of the driver's own subclass, which compares but does not pickle."""
    return UUID(int=value.int)


def maybe_uuid(value: Any) -> UUID | None:
    """Do the same for a column that may be null."""
    return None if value is None else uuid(value)


def workspace(row: Row) -> Workspace:
    """Read a workspace."""
    return Workspace(
        id=uuid(row["id"]),
        name=row["name"],
        issue_prefix=row["issue_prefix"],
        attribution_fail_closed=row["attribution_fail_closed"],
        default_responsible_user_id=row["default_responsible_user_id"],
        quota=quota(row),
        status=WorkspaceStatus(row["status"]),
        revision=row["revision"],
        created_at=row["created_at"],
    )


def quota(row: Row) -> Quota:
    """Read a quota."""
    return Quota(
        QuotaAction(row["quota_action"]), row["quota_limit"], QuotaPeriod(row["quota_period"])
    )


def member(row: Row) -> Member:
    """Read a membership."""
    return Member(
        uuid(row["workspace_id"]), row["user_id"], MemberRole(row["role"]), row["created_at"]
    )


def autopilot(row: Row, prefix: str = "") -> Autopilot:
    """Read a rule; `prefix` stands before its columns in a join."""
    return Autopilot(
        id=uuid(row[f"{prefix}id"]),
        workspace_id=uuid(row[f"{prefix}workspace_id"]),
        title=row[f"{prefix}title"],
        prompt=row[f"{prefix}prompt"],
        issue_title_template=row[f"{prefix}issue_title_template"],
        agent_id=maybe_uuid(row[f"{prefix}agent_id"]),
        squad_id=maybe_uuid(row[f"{prefix}squad_id"]),
        project_id=maybe_uuid(row[f"{prefix}project_id"]),
        execution_mode=ExecutionMode(row[f"{prefix}execution_mode"]),
        overlap_policy=OverlapPolicy(row[f"{prefix}overlap_policy"]),
        status=AutopilotStatus(row[f"{prefix}status"]),
        pause_reason=row[f"{prefix}pause_reason"],
        creator_user_id=row[f"{prefix}creator_user_id"],
        rule_version_id=uuid(row[f"{prefix}rule_version_id"]),
        rule_sequence=row[f"{prefix}rule_sequence"],
        revision=row[f"{prefix}revision"],
        active_since=row[f"{prefix}active_since"],
        created_at=row[f"{prefix}created_at"],
        updated_at=row[f"{prefix}updated_at"],
    )


def trigger(row: Row, prefix: str = "") -> Trigger:
    """Read a trigger; `prefix` stands before its columns in a join."""
    return Trigger(
        id=uuid(row[f"{prefix}id"]),
        autopilot_id=uuid(row[f"{prefix}autopilot_id"]),
        workspace_id=uuid(row[f"{prefix}workspace_id"]),
        enabled=row[f"{prefix}enabled"],
        label=row[f"{prefix}label"],
        config=_config(row, prefix),
        publisher_user_id=row[f"{prefix}publisher_user_id"],
        revision=row[f"{prefix}revision"],
        synced_revision=row[f"{prefix}synced_revision"],
        sync_error=row[f"{prefix}sync_error"],
        effective_from=row[f"{prefix}effective_from"],
        created_at=row[f"{prefix}created_at"],
        deleted_at=row[f"{prefix}deleted_at"],
    )


def _config(row: Row, prefix: str) -> ScheduleConfig | WebhookConfig:
    if TriggerKind(row[f"{prefix}kind"]) is TriggerKind.SCHEDULE:
        return ScheduleConfig(
            row[f"{prefix}cron"] or "", row[f"{prefix}time_zone"], row[f"{prefix}run_at"]
        )
    return WebhookConfig(
        provider=row[f"{prefix}provider"],
        event_filters=tuple(
            EventFilter(each["event"], tuple(each["actions"]))
            for each in row[f"{prefix}event_filters"]
        ),
        max_body_bytes=row[f"{prefix}max_body_bytes"],
        options=row[f"{prefix}endpoint_options"],
    )


def run(row: Row) -> Run:
    """Read a run."""
    attribution = row["attribution_source"]
    return Run(
        id=uuid(row["id"]),
        workspace_id=uuid(row["workspace_id"]),
        autopilot_id=uuid(row["autopilot_id"]),
        trigger_id=maybe_uuid(row["trigger_id"]),
        source=RunSource(row["source"]),
        state=RunState(row["state"]),
        occurrence_key=row["occurrence_key"],
        planned_at=row["planned_at"],
        delivery_id=maybe_uuid(row["delivery_id"]),
        given_up_at=row["given_up_at"],
        execution_mode=ExecutionMode(row["execution_mode"]),
        agent_id=maybe_uuid(row["agent_id"]),
        squad_id=maybe_uuid(row["squad_id"]),
        project_id=maybe_uuid(row["project_id"]),
        rule_version_id=uuid(row["rule_version_id"]),
        title=row["title"],
        prompt=row["prompt"],
        originator_user_id=row["originator_user_id"],
        accountable_user_id=row["accountable_user_id"],
        attribution_source=None if attribution is None else AttributionSource(attribution),
        reason=row["reason"],
        message=row["message"],
        wakeup_id=maybe_uuid(row["wakeup_id"]),
        issue_id=maybe_uuid(row["issue_id"]),
        result=row["result"],
        payload_ready=row["payload_ready"],
        payload_bytes=row["payload_bytes"],
        attempts=row["attempts"],
        next_attempt_at=row["next_attempt_at"],
        dispatch_deadline_at=row["dispatch_deadline_at"],
        cancel_requested_at=row["cancel_requested_at"],
        cancel_requested_by=row["cancel_requested_by"],
        request_fingerprint=row["request_fingerprint"],
        trace_carrier=row["trace_carrier"],
        created_at=row["created_at"],
        finished_at=row["finished_at"],
        quota_period_start=row["quota_period_start"],
    )


def rule_version(row: Row) -> RuleVersion:
    """Read what a rule said."""
    return RuleVersion(
        id=uuid(row["id"]),
        autopilot_id=uuid(row["autopilot_id"]),
        workspace_id=uuid(row["workspace_id"]),
        sequence=row["sequence"],
        change=Change(row["change"]),
        publisher_user_id=row["publisher_user_id"],
        title=row["title"],
        prompt=row["prompt"],
        issue_title_template=row["issue_title_template"],
        agent_id=maybe_uuid(row["agent_id"]),
        squad_id=maybe_uuid(row["squad_id"]),
        project_id=maybe_uuid(row["project_id"]),
        execution_mode=ExecutionMode(row["execution_mode"]),
        overlap_policy=OverlapPolicy(row["overlap_policy"]),
        status=AutopilotStatus(row["status"]),
        triggers=tuple(row["triggers"]),
        created_at=row["created_at"],
    )
