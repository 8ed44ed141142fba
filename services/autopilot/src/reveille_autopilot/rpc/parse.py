"""Requests into domain values: everything that is wrong is told at once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from reveille.autopilot.v1 import autopilot_pb2 as rule_pb
from reveille.autopilot.v1 import autopilot_service_pb2 as pb
from reveille.autopilot.v1 import workspace_service_pb2 as workspace_pb
from reveille_autopilot.domain.accepting import (
    DEFAULT_BODY_BYTES,
    ISSUE_PREFIX,
    MAX_BODY_BYTES,
    MAX_FILTERS,
    PROVIDER,
)
from reveille_autopilot.domain.keys import MAX_REQUEST_ID
from reveille_autopilot.domain.models import EventFilter, Payload, ScheduleConfig, WebhookConfig
from reveille_autopilot.domain.states import AutopilotStatus, MemberRole, OverlapPolicy, RunState
from reveille_autopilot.domain.template import MAX_TITLE, unknown_token
from reveille_autopilot.rpc import hook_options
from reveille_autopilot.usecases.autopilots import NewAutopilot
from reveille_autopilot.usecases.messages import MODES, POLICIES, ROLES, RUN_STATES, STATUSES
from reveille_autopilot.usecases.read_runs import RunFilter
from reveille_autopilot.usecases.run_now import RunNow
from reveille_autopilot.usecases.schedules import check_schedule
from reveille_autopilot.usecases.signing import NewSecret
from reveille_autopilot.usecases.triggers import NewTrigger
from reveille_autopilot.usecases.watch_runs import RunWatch
from reveille_autopilot.usecases.workspaces import NewWorkspace
from reveille_runtime.requests import fingerprint
from reveille_runtime.validation import Violations

INVALID = "INVALID_FIELD"
MAX_PROMPT = 100_000
MAX_PAYLOAD = 262_144
MAX_USER_ID = 128
MAX_SUBSCRIBERS = 100
MAX_GRACE = timedelta(days=7)
MAX_WAIT = timedelta(seconds=60)
DEFAULT_WAIT = timedelta(seconds=30)
_MAX_MEDIA_TYPE = 200
_MAX_EVENT = 200


def new_workspace(request: workspace_pb.CreateWorkspaceRequest, caller: str) -> NewWorkspace:
    """Read a workspace to create; the caller owns it when nobody else is named."""
    found = Violations()
    if not ISSUE_PREFIX.fullmatch(request.issue_prefix):
        found.add("issue_prefix", "must be 2 to 8 capital letters", INVALID)
    new = NewWorkspace(
        name=found.text("name", request.name, minimum=1, maximum=200),
        issue_prefix=request.issue_prefix,
        attribution_fail_closed=request.attribution_fail_closed,
        owner_user_id=found.text(
            "owner_user_id", request.owner_user_id or caller, minimum=1, maximum=MAX_USER_ID
        ),
    )
    _request_id(found, request.request_id)
    found.check()
    return new


def new_member(request: workspace_pb.AddMemberRequest) -> tuple[UUID, str, MemberRole]:
    """Read a member to add."""
    found = Violations()
    parsed = (
        found.uuid("workspace_id", request.workspace_id),
        found.text("user_id", request.user_id, minimum=1, maximum=MAX_USER_ID),
        found.enum("role", request.role, ROLES),
    )
    _request_id(found, request.request_id)
    found.check()
    return parsed


def changed_member(
    request: workspace_pb.UpdateMemberRequest,
) -> tuple[UUID, str, MemberRole]:
    """Read a member to change."""
    found = Violations()
    parsed = (
        found.uuid("workspace_id", request.workspace_id),
        found.text("user_id", request.user_id, minimum=1, maximum=MAX_USER_ID),
        found.enum("role", request.role, ROLES),
    )
    found.check()
    return parsed


def one_member(request: workspace_pb.RemoveMemberRequest) -> tuple[UUID, str]:
    """Read a member to remove."""
    found = Violations()
    parsed = (
        found.uuid("workspace_id", request.workspace_id),
        found.text("user_id", request.user_id, minimum=1, maximum=MAX_USER_ID),
    )
    found.check()
    return parsed


def new_autopilot(request: pb.CreateAutopilotRequest) -> NewAutopilot:
    """Read a rule to create."""
    found = Violations()
    if bool(request.agent_id) == bool(request.squad_id):
        found.add("agent_id", "give exactly one of agent_id and squad_id", INVALID)
    policy = OverlapPolicy.ALLOW
    if request.overlap_policy:
        policy = found.enum("overlap_policy", request.overlap_policy, POLICIES)
    new = NewAutopilot(
        workspace_id=found.uuid("workspace_id", request.workspace_id),
        title=found.text("title", request.title, minimum=1, maximum=MAX_TITLE),
        prompt=found.text("prompt", request.prompt, maximum=MAX_PROMPT, strip=False),
        issue_title_template=template(found, "issue_title_template", request.issue_title_template),
        agent_id=found.optional_uuid("agent_id", request.agent_id),
        squad_id=found.optional_uuid("squad_id", request.squad_id),
        project_id=found.optional_uuid("project_id", request.project_id),
        execution_mode=found.enum("execution_mode", request.execution_mode, MODES),
        overlap_policy=policy,
        subscribers=users(found, "subscriber_user_ids", request.subscriber_user_ids),
    )
    _request_id(found, request.request_id)
    found.check()
    return new


def template(found: Violations, field: str, text: str) -> str:
    """Read the title of created issues, in which only the date is replaced."""
    kept = found.text(field, text, maximum=MAX_TITLE)
    if (unknown := unknown_token(kept)) is not None:
        found.add(field, f"{unknown} is not known; only {{{{date}}}} is replaced", INVALID)
    return kept


def users(found: Violations, field: str, user_ids: Sequence[str]) -> tuple[str, ...]:
    """Read a list of users; one who is named twice counts once."""
    if len(user_ids) > MAX_SUBSCRIBERS:
        found.add(field, f"has more than {MAX_SUBSCRIBERS} entries", INVALID)
        return ()
    named = (
        found.text(f"{field}[{index}]", user_id, minimum=1, maximum=MAX_USER_ID)
        for index, user_id in enumerate(user_ids)
    )
    return tuple(sorted(set(named)))


def new_trigger(request: pb.CreateTriggerRequest) -> NewTrigger:
    """Read a trigger to create."""
    found = Violations()
    autopilot_id = found.uuid("autopilot_id", request.autopilot_id)
    label = found.text("label", request.label, maximum=200)
    config: ScheduleConfig | WebhookConfig = ScheduleConfig("", "")
    match request.WhichOneof("kind"):
        case "schedule":
            config = schedule(found, request.schedule)
            # Any replica's clock will do for this; the database's decides in the transaction.
            check_schedule(found, config, datetime.now(UTC))
        case "webhook":
            config = webhook(found, request.webhook)
        case _:
            found.add("kind", "is required: schedule or webhook", INVALID)
    _request_id(found, request.request_id)
    found.check()
    return NewTrigger(autopilot_id, label, not request.disabled, config)


def new_secret(request: pb.AddSigningSecretRequest) -> NewSecret:
    """Read a signing secret; its value never appears in a message."""
    found = Violations()
    trigger_id = found.uuid("trigger_id", request.trigger_id)
    if not 16 <= len(request.secret) <= 1024:
        found.add("secret", "must have 16 to 1024 bytes", INVALID)
    expires_at = None
    if request.HasField("expire_time"):
        expires_at = found.timestamp("expire_time", request.expire_time)
    _request_id(found, request.request_id)
    found.check()
    return NewSecret(trigger_id, request.secret, expires_at)


def rotation(request: pb.RotateWebhookTokenRequest) -> tuple[UUID, timedelta]:
    """Read which address to replace, and how long the old one goes on."""
    found = Violations()
    trigger_id = found.uuid("trigger_id", request.trigger_id)
    grace = timedelta(0)
    if request.HasField("grace"):
        grace = found.duration("grace", request.grace, maximum=MAX_GRACE)
    _request_id(found, request.request_id)
    found.check()
    return trigger_id, grace


def run_now(request: pb.RunAutopilotRequest) -> RunNow:
    """Read what to run now."""
    found = Violations()
    if len(request.payload) > MAX_PAYLOAD:
        found.add("payload", f"is larger than {MAX_PAYLOAD} bytes", INVALID)
    media_type = found.text("content_type", request.content_type, maximum=_MAX_MEDIA_TYPE)
    payload = None
    if request.payload or media_type:
        payload = Payload(media_type or "application/json", request.payload)
    asked = RunNow(
        autopilot_id=found.uuid("autopilot_id", request.autopilot_id),
        trigger_id=found.optional_uuid("trigger_id", request.trigger_id),
        payload=payload,
        request_id=_request_id(found, request.request_id),
        fingerprint=fingerprint(request),
    )
    found.check()
    return asked


def run_filter(request: pb.ListRunsRequest) -> RunFilter:
    """Read which runs to list."""
    found = Violations()
    states: list[RunState] = [
        found.enum(f"states[{index}]", state, RUN_STATES)
        for index, state in enumerate(request.states)
    ]
    wanted = RunFilter(
        found.uuid("workspace_id", request.workspace_id),
        found.optional_uuid("autopilot_id", request.autopilot_id),
        found.optional_uuid("trigger_id", request.trigger_id),
        tuple(dict.fromkeys(states)),
    )
    found.check()
    return wanted


def run_watch(request: pb.WatchRunsRequest) -> RunWatch:
    """Read which runs to watch."""
    found = Violations()
    watch = RunWatch(
        found.uuid("workspace_id", request.workspace_id),
        found.optional_uuid("autopilot_id", request.autopilot_id),
        found.optional_uuid("trigger_id", request.trigger_id),
        request.cursor,
    )
    found.check()
    return watch


def rule_filter(
    request: pb.ListAutopilotsRequest,
) -> tuple[UUID, tuple[AutopilotStatus, ...]]:
    """Read which rules to list."""
    found = Violations()
    workspace_id = found.uuid("workspace_id", request.workspace_id)
    statuses = [
        found.enum(f"statuses[{index}]", status, STATUSES)
        for index, status in enumerate(request.statuses)
    ]
    found.check()
    return workspace_id, tuple(dict.fromkeys(statuses))


def person(autopilot_id: str, user_id: str) -> tuple[UUID, str]:
    """Read a rule and a user."""
    found = Violations()
    parsed = (
        found.uuid("autopilot_id", autopilot_id),
        found.text("user_id", user_id, minimum=1, maximum=MAX_USER_ID),
    )
    found.check()
    return parsed


def waiting(request: pb.WaitRunRequest) -> tuple[UUID, float]:
    """Read which run to wait for, and how long."""
    found = Violations()
    run_id = found.uuid("run_id", request.run_id)
    timeout = DEFAULT_WAIT
    if request.HasField("timeout"):
        timeout = found.duration("timeout", request.timeout, maximum=MAX_WAIT)
    found.check()
    return run_id, timeout.total_seconds()


def one_id(field: str, text: str) -> UUID:
    """Read the only id of a request."""
    found = Violations()
    parsed = found.uuid(field, text)
    found.check()
    return parsed


def two_ids(first: tuple[str, str], second: tuple[str, str]) -> tuple[UUID, UUID]:
    """Read the two ids of a request."""
    found = Violations()
    parsed = found.uuid(*first), found.uuid(*second)
    found.check()
    return parsed


def schedule(found: Violations, given: rule_pb.ScheduleTrigger) -> ScheduleConfig:
    """Read the settings of a schedule, whatever they are worth."""
    run_at = None
    if given.HasField("run_at"):
        run_at = found.timestamp("schedule.run_at", given.run_at)
        if 0 < given.run_at.nanos < 1000:
            # What our times cannot hold would pass for a whole second.
            found.add("schedule.run_at", "must be a whole second", "OUT_OF_BOUNDS")
    return ScheduleConfig(" ".join(given.cron.split()), given.time_zone or "UTC", run_at)


def webhook(found: Violations, given: rule_pb.WebhookTrigger) -> WebhookConfig:
    """Read the settings of a webhook."""
    if not PROVIDER.fullmatch(given.provider):
        found.add("webhook.provider", "must be a scheme's name, for example github", INVALID)
    return WebhookConfig(
        given.provider,
        filters(found, given),
        body_limit(found, given),
        hook_options.read(found, given),
    )


def filters(found: Violations, given: rule_pb.WebhookTrigger) -> tuple[EventFilter, ...]:
    """Read the events a webhook listens for."""
    if len(given.event_filters) > MAX_FILTERS:
        found.add("webhook.event_filters", f"has more than {MAX_FILTERS} entries", INVALID)
    return tuple(
        _filter(found, f"webhook.event_filters[{index}]", wanted)
        for index, wanted in enumerate(given.event_filters)
    )


def body_limit(found: Violations, given: rule_pb.WebhookTrigger) -> int:
    """Read the largest accepted body."""
    size = given.max_body_bytes or DEFAULT_BODY_BYTES
    return found.integer("webhook.max_body_bytes", size, minimum=1, maximum=MAX_BODY_BYTES)


def _filter(found: Violations, field: str, wanted: rule_pb.EventFilter) -> EventFilter:
    if len(wanted.actions) > MAX_FILTERS:
        found.add(f"{field}.actions", f"has more than {MAX_FILTERS} entries", INVALID)
    return EventFilter(
        found.text(f"{field}.event", wanted.event, minimum=1, maximum=_MAX_EVENT),
        tuple(
            found.text(f"{field}.actions[{index}]", action, minimum=1, maximum=_MAX_EVENT)
            for index, action in enumerate(wanted.actions)
        ),
    )


def _request_id(found: Violations, request_id: str) -> str:
    return found.text("request_id", request_id, maximum=MAX_REQUEST_ID, strip=False)
