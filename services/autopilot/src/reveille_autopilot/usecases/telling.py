"""What this service tells of its rules and runs: the events of its feed. Never a secret."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reveille_autopilot.domain.models import Autopilot, Run
from reveille_autopilot.domain.states import AutopilotStatus, Change, RunState
from reveille_autopilot.store.limits import Released
from reveille_runtime.feed import FeedEvent

RULE_CREATED = "autopilot.created"
RULE_UPDATED = "autopilot.updated"
RULE_ARCHIVED = "autopilot.archived"
RUN_ADMITTED = "autopilot.run.admitted"
RUN_STARTED = "autopilot.run.started"
RUN_DONE = "autopilot.run.done"
NOTICE = "autopilot.notice"
RUN_TYPES = (RUN_ADMITTED, RUN_STARTED, RUN_DONE)
FEED_CHANNEL = "autopilot.feed"


def rule_event(rule: Autopilot, change: Change | None, *, reason: str | None = None) -> FeedEvent:
    """Tell that a rule was changed; without a version where none was made."""
    kind = RULE_UPDATED
    if change is Change.CREATED:
        kind = RULE_CREATED
    elif rule.status is AutopilotStatus.ARCHIVED:
        kind = RULE_ARCHIVED
    return FeedEvent(
        type=kind,
        subject_id=rule.id,
        workspace_id=rule.workspace_id,
        payload={
            "autopilot_id": str(rule.id),
            "status": rule.status.value,
            "etag": rule.etag,
            "change": None if change is None else change.value,
            "rule_version_id": str(rule.rule_version_id),
            "reason": reason,
        },
    )


def run_event(run: Run) -> FeedEvent:
    """Tell where a run stands."""
    kind = RUN_STARTED
    if run.terminal:
        kind = RUN_DONE
    elif run.state is RunState.PENDING or run.state is RunState.BUFFERED:
        kind = RUN_ADMITTED
    run_id = str(run.id)
    return FeedEvent(
        type=kind,
        subject_id=run_id,
        workspace_id=run.workspace_id,
        occurrence_key=run.occurrence_key,
        payload={
            "run_id": run_id,
            "autopilot_id": str(run.autopilot_id),
            "trigger_id": None if run.trigger_id is None else str(run.trigger_id),
            "source": run.source.value,
            "state": run.state.value,
            "reason": run.reason,
        },
        trace_carrier=run.trace_carrier,
    )


def released_event(run: Released) -> FeedEvent:
    """Tell that a run that waited may begin."""
    return FeedEvent(
        type=RUN_ADMITTED,
        subject_id=run.id,
        workspace_id=run.workspace_id,
        occurrence_key=run.occurrence_key,
        payload={
            "run_id": str(run.id),
            "autopilot_id": str(run.autopilot_id),
            "state": RunState.PENDING.value,
        },
        trace_carrier=run.trace_carrier,
    )


def notice(
    subject: Mapping[str, Any], kind: str, message: str, reason: str | None, to: Sequence[str]
) -> FeedEvent:
    """Tell people something about a rule that they did not do themselves."""
    return FeedEvent(
        type=NOTICE,
        subject_id=subject["autopilot_id"],
        workspace_id=subject["workspace_id"],
        payload={
            "kind": kind,
            "autopilot_id": str(subject["autopilot_id"]),
            "title": subject["title"],
            "message": message,
            "reason": reason,
            "user_ids": list(dict.fromkeys(to)),
        },
    )
