"""Edits out of requests: only what the mask names counts, and an empty value clears."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf.field_mask_pb2 import FieldMask

from reveille.autopilot.v1 import autopilot_pb2 as rule_pb
from reveille.autopilot.v1 import autopilot_service_pb2 as pb
from reveille.autopilot.v1 import workspace_service_pb2 as workspace_pb
from reveille_autopilot.domain.editing import RuleEdit, TriggerEdit
from reveille_autopilot.domain.models import Quota
from reveille_autopilot.domain.states import QuotaAction, QuotaPeriod
from reveille_autopilot.domain.template import MAX_TITLE
from reveille_autopilot.rpc import hook_options, parse
from reveille_autopilot.usecases.messages import (
    MODES,
    POLICIES,
    QUOTA_ACTIONS,
    QUOTA_PERIODS,
    WORKSPACE_STATUSES,
)
from reveille_autopilot.usecases.workspaces import WorkspaceEdit
from reveille_runtime.masks import read_mask
from reveille_runtime.validation import Violations

MAX_QUOTA = 1_000_000_000
Reader = Callable[[Violations, Any], Any]

_RULE: Mapping[str, Reader] = {
    "title": lambda found, given: found.text(
        "autopilot.title", given.title, minimum=1, maximum=MAX_TITLE
    ),
    "prompt": lambda found, given: found.text(
        "autopilot.prompt", given.prompt, maximum=parse.MAX_PROMPT, strip=False
    ),
    "issue_title_template": lambda found, given: parse.template(
        found, "autopilot.issue_title_template", given.issue_title_template
    ),
    "agent_id": lambda found, given: found.uuid("autopilot.agent_id", given.agent_id),
    "squad_id": lambda found, given: found.uuid("autopilot.squad_id", given.squad_id),
    "project_id": lambda found, given: found.optional_uuid(
        "autopilot.project_id", given.project_id
    ),
    "execution_mode": lambda found, given: found.enum(
        "autopilot.execution_mode", given.execution_mode, MODES
    ),
    "overlap_policy": lambda found, given: found.enum(
        "autopilot.overlap_policy", given.overlap_policy, POLICIES
    ),
    "subscriber_user_ids": lambda found, given: parse.users(
        found, "autopilot.subscriber_user_ids", given.subscriber_user_ids
    ),
}
_TRIGGER: Mapping[str, Reader] = {
    "label": lambda found, given: found.text("trigger.label", given.label, maximum=200),
    "enabled": lambda _, given: given.enabled,
    "schedule.cron": lambda found, given: parse.schedule(found, given.schedule).cron,
    "schedule.time_zone": lambda found, given: parse.schedule(found, given.schedule).time_zone,
    "schedule.run_at": lambda found, given: parse.schedule(found, given.schedule).run_at,
    "webhook.event_filters": lambda found, given: parse.filters(found, given.webhook),
    "webhook.max_body_bytes": lambda found, given: parse.body_limit(found, given.webhook),
    "webhook.options": lambda found, given: hook_options.read(found, given.webhook),
}


def rule_edit(request: pb.UpdateAutopilotRequest) -> RuleEdit:
    """Read an edit of a rule."""
    found = Violations()
    rule: rule_pb.Autopilot = request.autopilot
    rule_id = found.uuid("autopilot.autopilot_id", rule.autopilot_id)
    values = _masked(found, request.update_mask, rule, _RULE)
    if {"agent_id", "squad_id"} <= values.keys():
        found.add("update_mask", "names both agent_id and squad_id: one takes the other's place")
    subscribers = values.pop("subscriber_user_ids", None)
    etag = _etag(found, "autopilot.etag", rule.etag)
    found.check()
    return RuleEdit(rule_id, etag, values, subscribers)


def trigger_edit(request: pb.UpdateTriggerRequest) -> TriggerEdit:
    """Read an edit of a trigger."""
    found = Violations()
    trigger_id = found.uuid("trigger.trigger_id", request.trigger.trigger_id)
    values = _masked(found, request.update_mask, request.trigger, _TRIGGER)
    if {"schedule.cron", "schedule.run_at"} <= values.keys() and values["schedule.cron"]:
        found.add("update_mask", "names both schedule.cron and schedule.run_at: give one of them")
    etag = _etag(found, "trigger.etag", request.trigger.etag)
    found.check()
    return TriggerEdit(
        trigger_id,
        etag,
        label=values.get("label"),
        enabled=values.get("enabled"),
        config={path.partition(".")[2]: each for path, each in values.items() if "." in path},
    )


def workspace_edit(request: workspace_pb.UpdateWorkspaceRequest) -> WorkspaceEdit:
    """Read an edit of a workspace."""
    found = Violations()
    workspace_id = found.uuid("workspace.workspace_id", request.workspace.workspace_id)
    values = _masked(found, request.update_mask, request.workspace, _WORKSPACE)
    etag = _etag(found, "workspace.etag", request.workspace.etag)
    found.check()
    return WorkspaceEdit(workspace_id, etag, values)


def _quota(found: Violations, given: workspace_pb.Workspace) -> Quota:
    quota = given.quota
    action, period = QuotaAction.OFF, QuotaPeriod.MONTH
    if quota.action:
        action = found.enum("workspace.quota.action", quota.action, QUOTA_ACTIONS)
    if quota.period:
        period = found.enum("workspace.quota.period", quota.period, QUOTA_PERIODS)
    return Quota(
        action,
        found.integer("workspace.quota.limit", quota.limit, minimum=0, maximum=MAX_QUOTA),
        period,
    )


_WORKSPACE: Mapping[str, Reader] = {
    "name": lambda found, given: found.text("workspace.name", given.name, minimum=1, maximum=200),
    "attribution_fail_closed": lambda _, given: given.attribution_fail_closed,
    "default_responsible_user_id": lambda found, given: found.text(
        "workspace.default_responsible_user_id",
        given.default_responsible_user_id,
        minimum=1,
        maximum=parse.MAX_USER_ID,
    ),
    "quota": _quota,
    "status": lambda found, given: found.enum(
        "workspace.status",
        given.status or workspace_pb.WORKSPACE_STATUS_ACTIVE,
        WORKSPACE_STATUSES,
    ),
}


def _masked(
    found: Violations, mask: FieldMask, given: Any, readers: Mapping[str, Reader]
) -> dict[str, Any]:
    """Read the fields that a mask names."""
    named = read_mask(found, mask, readers)
    return {path: readers[path](found, given) for path in sorted(named)}


def _etag(found: Violations, field: str, etag: str) -> str:
    return found.text(field, etag, minimum=1, maximum=100)
