"""How each kind of thing looks in a table: the columns, and the few cells that are computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "reveille.autopilot.v1.Workspace": ("workspace_id", "name", "issue_prefix", "create_time"),
    "reveille.autopilot.v1.Member": ("user_id", "role", "create_time"),
    "reveille.autopilot.v1.Autopilot": (
        "autopilot_id",
        "status",
        "execution_mode",
        "title",
        "last_run_state",
        "next_fire_time",
        "create_time",
    ),
    "reveille.autopilot.v1.RuleVersion": (
        "sequence",
        "change",
        "publisher",
        "create_time",
        "title",
        "rule_version_id",
    ),
    "reveille.autopilot.v1.Collaborator": ("user_id", "granted_by_user_id", "create_time"),
    "reveille.autopilot.v1.Trigger": ("trigger_id", "enabled", "synced", "fires", "label"),
    "reveille.autopilot.v1.SigningSecret": (
        "secret_id",
        "hint",
        "create_time",
        "expire_time",
        "last_use_time",
    ),
    "reveille.autopilot.v1.AutopilotRun": (
        "run_id",
        "state",
        "reason",
        "source",
        "create_time",
        "title",
    ),
    "reveille.heartbeat.v1.Agent": ("agent_id", "name", "adapter", "status", "owner_user_id"),
    "reveille.heartbeat.v1.Squad": ("squad_id", "name", "state", "leader_agent_id"),
    "reveille.heartbeat.v1.Runtime": (
        "runtime_id",
        "name",
        "kind",
        "online",
        "presence_expire_time",
        "unusable_reason",
    ),
    "reveille.heartbeat.v1.HeartbeatRun": (
        "run_id",
        "state",
        "reason",
        "attempt",
        "create_time",
        "finish_time",
        "summary",
    ),
    "reveille.heartbeat.v1.WakeupRecord": (
        "wakeup_id",
        "state",
        "reason",
        "source",
        "create_time",
        "title",
    ),
    "reveille.heartbeat.v1.Issue": (
        "issue_id",
        "identifier",
        "status",
        "priority",
        "create_time",
        "title",
    ),
    "reveille.heartbeat.v1.Comment": (
        "comment_id",
        "author_kind",
        "author_id",
        "create_time",
        "body",
    ),
    "reveille.heartbeat.v1.Approval": (
        "approval_id",
        "status",
        "issue_id",
        "create_time",
        "title",
    ),
    "reveille.heartbeat.v1.Project": ("project_id", "name", "state", "create_time"),
    "reveille.webhook.v1.Delivery": (
        "delivery_id",
        "state",
        "reason",
        "signature_state",
        "event",
        "action",
        "receive_time",
    ),
    "reveille.scheduler.v1.Job": ("name", "handler", "paused", "pause_note", "update_time"),
    "reveille.scheduler.v1.Scope": ("id", "kind", "enabled", "next_plan_time", "plans"),
    "reveille.scheduler.v1.Execution": (
        "execution_id",
        "state",
        "reason",
        "plan_time",
        "attempt",
        "job_name",
        "scope_id",
    ),
}

# By the name of a field, or by that of one field of one message.
HEADINGS: Mapping[str, str] = {
    "reveille.heartbeat.v1.HeartbeatRun.run_id": "agent_run_id",
    "reveille.scheduler.v1.Scope.id": "scope_id",
    "create_time": "created",
    "expire_time": "expires",
    "finish_time": "finished",
    "granted_by_user_id": "granted_by",
    "job_name": "job",
    "last_run_state": "last_run",
    "next_fire_time": "next",
    "last_use_time": "last_used",
    "next_plan_time": "next",
    "owner_user_id": "owner",
    "leader_agent_id": "leader",
    "plan_time": "planned",
    "presence_expire_time": "present_until",
    "receive_time": "received",
    "signature_state": "signature",
    "update_time": "updated",
}

# Words of states, by how they read to an operator.
STYLES: Mapping[str, str] = {
    **dict.fromkeys(
        ("completed", "succeeded", "success", "dispatched", "done", "active", "valid"), "green"
    ),
    **dict.fromkeys(
        ("failed", "timed_out", "rejected", "error", "invalid", "missing", "blocked"), "bold red"
    ),
    **dict.fromkeys(
        ("running", "claimed", "issue_created", "in_progress", "in_review", "pending"), "yellow"
    ),
    **dict.fromkeys(
        (
            "queued",
            "deferred",
            "buffered",
            "skipped",
            "ignored",
            "cancelled",
            "coalesced",
            "paused",
            "archived",
        ),
        "dim",
    ),
}


def _fires(trigger: Mapping[str, Any]) -> str:
    if (schedule := trigger["schedule"]) and schedule["run_at"]:
        return f"once, at {schedule['run_at']}"
    if schedule:
        return f"{schedule['cron']} ({schedule['time_zone'] or 'UTC'})"
    webhook = trigger["webhook"]
    if not webhook:
        return ""
    events = (
        wanted["event"] + (":" + ",".join(wanted["actions"]) if wanted["actions"] else "")
        for wanted in webhook["event_filters"]
    )
    return f"{webhook['provider']} webhook: {' '.join(events) or 'every event'}"


def _plans(scope: Mapping[str, Any]) -> str:
    if scope["deleted"]:
        return "deleted"
    if scope["cron"]:
        return f"{scope['cron']} ({scope['time_zone'] or 'UTC'})"
    if scope["cadence"]:
        return f"every {scope['cadence']}"
    return f"once, at {scope['run_at']}" if scope["run_at"] else "asks its owner"


def _publisher(version: Mapping[str, Any]) -> str:
    return version["publisher_user_id"] or "the system"


# What lists of rules have beside the rule; another list of them may lack it.
def _beside(name: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda values: values.get(name) or ""


COMPUTED: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "fires": _fires,
    "plans": _plans,
    "publisher": _publisher,
    "last_run_state": _beside("last_run_state"),
    "next_fire_time": _beside("next_fire_time"),
}
