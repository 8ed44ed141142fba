"""Domain values as messages of the contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any, TypeVar

from google.protobuf.json_format import ParseDict
from google.protobuf.timestamp_pb2 import Timestamp

from reveille.autopilot.v1 import autopilot_pb2 as rule_pb
from reveille.autopilot.v1 import autopilot_service_pb2 as service_pb
from reveille.autopilot.v1 import rule_version_pb2 as version_pb
from reveille.autopilot.v1 import run_pb2 as run_pb
from reveille.autopilot.v1 import workspace_service_pb2 as workspace_pb
from reveille.common.v1 import access_pb2
from reveille_autopilot.domain.models import (
    Autopilot,
    Collaborator,
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
from reveille_cron import CronError, Expression, Schedule, parse, zone
from reveille_runtime.carrier import SpanSeed
from reveille_runtime.reasons import reason_value
from reveille_runtime.validation import to_timestamp

E = TypeVar("E", bound=StrEnum)

MODES: Mapping[int, ExecutionMode] = {
    rule_pb.EXECUTION_MODE_RUN_ONLY: ExecutionMode.RUN_ONLY,
    rule_pb.EXECUTION_MODE_CREATE_ISSUE: ExecutionMode.CREATE_ISSUE,
}
ROLES: Mapping[int, MemberRole] = {
    access_pb2.ROLE_MEMBER: MemberRole.MEMBER,
    access_pb2.ROLE_ADMIN: MemberRole.ADMIN,
    access_pb2.ROLE_OWNER: MemberRole.OWNER,
}
POLICIES: Mapping[int, OverlapPolicy] = {
    rule_pb.OverlapPolicy.Value(f"OVERLAP_POLICY_{policy.name}"): policy for policy in OverlapPolicy
}
STATUSES: Mapping[int, AutopilotStatus] = {
    rule_pb.AutopilotStatus.Value(f"AUTOPILOT_STATUS_{status.name}"): status
    for status in AutopilotStatus
}
QUOTA_ACTIONS: Mapping[int, QuotaAction] = {
    workspace_pb.QuotaAction.Value(f"QUOTA_ACTION_{action.name}"): action for action in QuotaAction
}
QUOTA_PERIODS: Mapping[int, QuotaPeriod] = {
    workspace_pb.QuotaPeriod.Value(f"QUOTA_PERIOD_{period.name}"): period for period in QuotaPeriod
}
WORKSPACE_STATUSES: Mapping[int, WorkspaceStatus] = {
    workspace_pb.WorkspaceStatus.Value(f"WORKSPACE_STATUS_{status.name}"): status
    for status in WorkspaceStatus
}
RUN_STATES: Mapping[int, RunState] = {
    run_pb.RunState.Value(f"RUN_STATE_{state.name}"): state for state in RunState
}


def workspace(value: Workspace) -> workspace_pb.Workspace:
    """Show a workspace."""
    return workspace_pb.Workspace(
        workspace_id=str(value.id),
        name=value.name,
        issue_prefix=value.issue_prefix,
        attribution_fail_closed=value.attribution_fail_closed,
        quota=_quota(value.quota),
        status=workspace_status(value.status),
        default_responsible_user_id=value.default_responsible_user_id,
        etag=value.etag,
        create_time=to_timestamp(value.created_at),
    )


def member(value: Member) -> workspace_pb.Member:
    """Show a membership."""
    return workspace_pb.Member(
        workspace_id=str(value.workspace_id),
        user_id=value.user_id,
        role=access_pb2.Role.Value(f"ROLE_{value.role.name}"),
        create_time=to_timestamp(value.created_at),
    )


def collaborator(value: Collaborator) -> service_pb.Collaborator:
    """Show who was let in."""
    return service_pb.Collaborator(
        autopilot_id=str(value.autopilot_id),
        user_id=value.user_id,
        granted_by_user_id=value.granted_by,
        create_time=to_timestamp(value.created_at),
    )


def autopilot(value: Autopilot, subscribers: Sequence[str]) -> rule_pb.Autopilot:
    """Show a rule."""
    return rule_pb.Autopilot(
        autopilot_id=str(value.id),
        workspace_id=str(value.workspace_id),
        title=value.title,
        prompt=value.prompt,
        issue_title_template=value.issue_title_template,
        agent_id=_text(value.agent_id),
        squad_id=_text(value.squad_id),
        project_id=_text(value.project_id),
        execution_mode=_mode(value.execution_mode),
        overlap_policy=_policy(value.overlap_policy),
        status=_status(value.status),
        pause_reason=reason_value(value.pause_reason),
        subscriber_user_ids=subscribers,
        creator_user_id=value.creator_user_id,
        rule_version_id=str(value.rule_version_id),
        etag=value.etag,
        create_time=to_timestamp(value.created_at),
        update_time=to_timestamp(value.updated_at),
    )


def trigger(value: Trigger, rule: Autopilot, now: datetime) -> rule_pb.Trigger:
    """Show a trigger, never its address."""
    message = rule_pb.Trigger(
        trigger_id=str(value.id),
        autopilot_id=str(value.autopilot_id),
        workspace_id=str(value.workspace_id),
        enabled=value.enabled,
        label=value.label,
        publisher_user_id=value.publisher_user_id or "",
        synced=value.synced,
        sync_error="" if value.synced else value.sync_error,
        etag=value.etag,
        create_time=to_timestamp(value.created_at),
    )
    match value.config:
        case ScheduleConfig(cron, time_zone, run_at):
            message.schedule.cron = cron
            message.schedule.time_zone = time_zone
            if run_at is not None:
                message.schedule.run_at.CopyFrom(_stamp(run_at))
            following = next_fire(value, rule, now)
            if following is not None:
                message.schedule.next_fire_time.CopyFrom(_stamp(following))
        case WebhookConfig(provider, event_filters, max_body_bytes, options):
            message.webhook.provider = provider
            message.webhook.max_body_bytes = max_body_bytes
            _tell_options(message, options)
            for wanted in event_filters:
                message.webhook.event_filters.add(event=wanted.event, actions=wanted.actions)
    return message


def _tell_options(message: rule_pb.Trigger, options: Mapping[str, object]) -> None:
    if options:
        # A name that only a later release knows is left out.
        ParseDict(dict(options), message.webhook.options, ignore_unknown_fields=True)


def next_fire(value: Trigger, rule: Autopilot, now: datetime) -> datetime | None:
    """Say when a trigger fires next, for display; None while it does not."""
    live = value.enabled and value.deleted_at is None and rule.status is AutopilotStatus.ACTIVE
    if not live or not isinstance(value.config, ScheduleConfig):
        return None
    after = max(now, value.effective_from)
    if value.config.run_at is not None:
        return value.config.run_at if value.config.run_at > after else None
    try:
        schedule = Schedule(_expression(value.config.cron), zone(value.config.time_zone))
    except CronError:
        # Accepted by an older edition of the rules or of the zones; the scheduler says so.
        return None
    return schedule.next(after)


@lru_cache(maxsize=4096)
def _expression(cron: str) -> Expression:
    """Read a cron, which takes thirty times as long as to evaluate it; a page shows hundreds."""
    return parse(cron)


def rule_version(value: RuleVersion) -> version_pb.RuleVersion:
    """Show what a rule said."""
    return version_pb.RuleVersion(
        rule_version_id=str(value.id),
        autopilot_id=str(value.autopilot_id),
        workspace_id=str(value.workspace_id),
        sequence=value.sequence,
        change=version_pb.RuleChange.Value(f"RULE_CHANGE_{value.change.name}"),
        publisher_user_id=value.publisher_user_id or "",
        create_time=to_timestamp(value.created_at),
        title=value.title,
        prompt=value.prompt,
        issue_title_template=value.issue_title_template,
        agent_id=_text(value.agent_id),
        squad_id=_text(value.squad_id),
        project_id=_text(value.project_id),
        execution_mode=_mode(value.execution_mode),
        overlap_policy=_policy(value.overlap_policy),
        status=_status(value.status),
        triggers=[_past_trigger(value, facts) for facts in value.triggers],
    )


def run(value: Run) -> run_pb.AutopilotRun:
    """Show a run."""
    return run_pb.AutopilotRun(
        run_id=str(value.id),
        workspace_id=str(value.workspace_id),
        autopilot_id=str(value.autopilot_id),
        trigger_id=_text(value.trigger_id),
        source=_source(value.source),
        state=run_state(value.state),
        occurrence_key=value.occurrence_key,
        planned_time=to_timestamp(value.planned_at),
        delivery_id=_text(value.delivery_id),
        execution_mode=_mode(value.execution_mode),
        agent_id=_text(value.agent_id),
        squad_id=_text(value.squad_id),
        project_id=_text(value.project_id),
        rule_version_id=str(value.rule_version_id),
        title=value.title,
        prompt=value.prompt,
        originator_user_id=value.originator_user_id or "",
        accountable_user_id=value.accountable_user_id or "",
        attribution_source=_attribution(value.attribution_source),
        reason=reason_value(value.reason),
        message=value.message,
        wakeup_id=_text(value.wakeup_id),
        issue_id=_text(value.issue_id),
        result=value.result or b"",
        trace_id=trace_id(value.trace_carrier),
        create_time=to_timestamp(value.created_at),
        finish_time=to_timestamp(value.finished_at),
        cancel_request_time=to_timestamp(value.cancel_requested_at),
    )


def trace_id(carrier: Mapping[str, str]) -> str:
    """Read the trace's id out of a carrier; empty when it has none."""
    seed = SpanSeed.from_carrier(carrier)
    return "" if seed is None else f"{seed.trace_id:032x}"


def run_state(value: RunState) -> run_pb.RunState.ValueType:
    """Show a run's state."""
    return run_pb.RunState.Value(f"RUN_STATE_{value.name}")


def trigger_kind(value: TriggerKind) -> rule_pb.TriggerKind.ValueType:
    """Show what a trigger listens to."""
    return rule_pb.TriggerKind.Value(f"TRIGGER_KIND_{value.name}")


def workspace_status(value: WorkspaceStatus) -> workspace_pb.WorkspaceStatus.ValueType:
    """Show whether work goes on in a workspace."""
    return workspace_pb.WorkspaceStatus.Value(f"WORKSPACE_STATUS_{value.name}")


def quota_action(value: QuotaAction) -> workspace_pb.QuotaAction.ValueType:
    """Show what a quota does."""
    return workspace_pb.QuotaAction.Value(f"QUOTA_ACTION_{value.name}")


def _quota(value: Quota) -> workspace_pb.QuotaPolicy:
    return workspace_pb.QuotaPolicy(
        action=quota_action(value.action),
        limit=value.limit,
        period=workspace_pb.QuotaPeriod.Value(f"QUOTA_PERIOD_{value.period.name}"),
    )


def _past_trigger(version: RuleVersion, facts: Mapping[str, Any]) -> rule_pb.Trigger:
    """Show a trigger as a version recorded it."""
    message = rule_pb.Trigger(
        trigger_id=facts["trigger_id"],
        autopilot_id=str(version.autopilot_id),
        workspace_id=str(version.workspace_id),
        enabled=facts["enabled"],
        label=facts["label"],
        publisher_user_id=facts["publisher_user_id"] or "",
    )
    if facts["kind"] == TriggerKind.SCHEDULE:
        message.schedule.cron = facts["cron"] or ""
        message.schedule.time_zone = facts["time_zone"]
        # Versions from before one-shots came have no such fact.
        if facts.get("run_at"):
            message.schedule.run_at.CopyFrom(_stamp(datetime.fromisoformat(facts["run_at"])))
        return message
    message.webhook.provider = facts["provider"]
    message.webhook.max_body_bytes = facts["max_body_bytes"]
    # Versions from before hooks had options have no such fact.
    _tell_options(message, facts.get("options") or {})
    for wanted in facts["event_filters"]:
        message.webhook.event_filters.add(event=wanted["event"], actions=wanted["actions"])
    return message


def _policy(value: OverlapPolicy) -> rule_pb.OverlapPolicy.ValueType:
    return rule_pb.OverlapPolicy.Value(f"OVERLAP_POLICY_{value.name}")


def _status(value: AutopilotStatus) -> rule_pb.AutopilotStatus.ValueType:
    return rule_pb.AutopilotStatus.Value(f"AUTOPILOT_STATUS_{value.name}")


def _mode(value: ExecutionMode) -> rule_pb.ExecutionMode.ValueType:
    return rule_pb.ExecutionMode.Value(f"EXECUTION_MODE_{value.name}")


def _source(value: RunSource) -> run_pb.RunSource.ValueType:
    return run_pb.RunSource.Value(f"RUN_SOURCE_{value.name}")


def _attribution(value: AttributionSource | None) -> run_pb.AttributionSource.ValueType:
    if value is None:
        return run_pb.ATTRIBUTION_SOURCE_UNSPECIFIED
    return run_pb.AttributionSource.Value(f"ATTRIBUTION_SOURCE_{value.name}")


def _text(value: object | None) -> str:
    return "" if value is None else str(value)


def _stamp(moment: datetime) -> Timestamp:
    stamp = Timestamp()
    stamp.FromDatetime(moment)
    return stamp
