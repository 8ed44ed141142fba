"""Values for tests of the rules, ordinary unless a test says otherwise."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from reveille_autopilot.domain.models import (
    Autopilot,
    Run,
    ScheduleConfig,
    Trigger,
    WebhookConfig,
)
from reveille_autopilot.domain.states import (
    AutopilotStatus,
    ExecutionMode,
    OverlapPolicy,
    RunSource,
    RunState,
)

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
WORKSPACE = UUID(int=1)


def an_autopilot(**more: Any) -> Autopilot:
    given: dict[str, Any] = {
        "id": UUID(int=2),
        "workspace_id": WORKSPACE,
        "title": "Triage",
        "prompt": "Look.",
        "issue_title_template": "",
        "agent_id": UUID(int=3),
        "squad_id": None,
        "project_id": None,
        "execution_mode": ExecutionMode.RUN_ONLY,
        "overlap_policy": OverlapPolicy.ALLOW,
        "status": AutopilotStatus.ACTIVE,
        "pause_reason": None,
        "creator_user_id": "creator",
        "rule_version_id": UUID(int=4),
        "rule_sequence": 1,
        "revision": 1,
        "active_since": NOON,
        "created_at": NOON,
        "updated_at": NOON,
    }
    return Autopilot(**(given | more))


def a_trigger(**more: Any) -> Trigger:
    given: dict[str, Any] = {
        "id": uuid4(),
        "autopilot_id": UUID(int=2),
        "workspace_id": WORKSPACE,
        "enabled": True,
        "label": "",
        "config": ScheduleConfig("0 9 * * *", "Europe/Berlin"),
        "publisher_user_id": "publisher",
        "revision": 1,
        "synced_revision": 1,
        "effective_from": NOON,
        "created_at": NOON,
    }
    return Trigger(**(given | more))


def a_webhook(*filters: Any, **more: Any) -> Trigger:
    return a_trigger(config=WebhookConfig("github", tuple(filters), 1000), **more)


def a_run(**more: Any) -> Run:
    given: dict[str, Any] = {
        "id": uuid4(),
        "workspace_id": WORKSPACE,
        "autopilot_id": UUID(int=2),
        "trigger_id": None,
        "source": RunSource.MANUAL,
        "state": RunState.PENDING,
        "occurrence_key": "manual:key",
        "planned_at": None,
        "delivery_id": None,
        "given_up_at": None,
        "execution_mode": ExecutionMode.RUN_ONLY,
        "agent_id": UUID(int=3),
        "squad_id": None,
        "project_id": None,
        "rule_version_id": UUID(int=4),
        "title": "Triage",
        "prompt": "Look.",
        "originator_user_id": None,
        "accountable_user_id": None,
        "attribution_source": None,
        "reason": None,
        "message": "",
        "wakeup_id": None,
        "issue_id": None,
        "result": None,
        "payload_ready": True,
        "payload_bytes": 0,
        "attempts": 0,
        "next_attempt_at": NOON,
        "dispatch_deadline_at": NOON + timedelta(hours=24),
        "cancel_requested_at": None,
        "cancel_requested_by": None,
        "request_fingerprint": None,
        "trace_carrier": {},
        "created_at": NOON,
        "finished_at": None,
    }
    return Run(**(given | more))
