"""Freezing: the run that an occurrence becomes, with everything it will ever need of its rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from reveille_autopilot.domain.deadlines import BUFFER_LOOK, FIRST_LOOK, dispatch_deadline
from reveille_autopilot.domain.gate import Judgement, Rule, Start, Verdict
from reveille_autopilot.domain.models import Autopilot, Run, ScheduleConfig, Trigger
from reveille_autopilot.domain.states import ExecutionMode, QuotaAction, RunSource, RunState
from reveille_autopilot.domain.template import render_title


@dataclass(frozen=True, slots=True)
class Occasion:
    """What sets this run apart from others of its rule."""

    run_id: UUID
    key: str
    source: RunSource
    trigger_id: UUID | None
    planned_at: datetime | None
    delivery_id: UUID | None
    payload_ready: bool
    request_fingerprint: bytes | None
    trace_carrier: Mapping[str, str]


def freeze(
    occasion: Occasion, rule: Rule, autopilot: Autopilot, judgement: Judgement, now: datetime
) -> Run:
    """Make the run; a refused one has its outcome from the start, a buffered one waits."""
    admitted = judgement.verdict is Verdict.ADMIT
    buffered = judgement.start is Start.BUFFERED
    attribution = judgement.attribution
    deadline = dispatch_deadline(occasion.source, occasion.planned_at, now)
    # Nothing can be done before the body is here, except giving up.
    first_look = min(now + FIRST_LOOK, deadline) if occasion.payload_ready else deadline
    if buffered:
        first_look = now + BUFFER_LOOK
    counted = admitted and rule.quota.action is not QuotaAction.OFF
    return Run(
        id=occasion.run_id,
        workspace_id=autopilot.workspace_id,
        autopilot_id=autopilot.id,
        trigger_id=occasion.trigger_id,
        source=occasion.source,
        state=_state(admitted=admitted, buffered=buffered),
        occurrence_key=occasion.key,
        planned_at=occasion.planned_at,
        delivery_id=occasion.delivery_id,
        given_up_at=None,
        execution_mode=autopilot.execution_mode,
        agent_id=autopilot.agent_id or judgement.agent_id,
        squad_id=autopilot.squad_id,
        project_id=autopilot.project_id,
        rule_version_id=autopilot.rule_version_id,
        title=_title(autopilot, rule.trigger, occasion.planned_at or now),
        prompt=autopilot.prompt,
        originator_user_id=None if attribution is None else attribution.originator_user_id,
        accountable_user_id=None if attribution is None else attribution.accountable_user_id,
        attribution_source=None if attribution is None else attribution.source,
        reason=judgement.reason,
        message=judgement.message,
        wakeup_id=None,
        issue_id=None,
        result=None,
        payload_ready=occasion.payload_ready,
        payload_bytes=0,
        attempts=0,
        next_attempt_at=first_look if admitted else None,
        dispatch_deadline_at=deadline,
        cancel_requested_at=None,
        cancel_requested_by=None,
        request_fingerprint=occasion.request_fingerprint,
        trace_carrier=occasion.trace_carrier,
        created_at=now,
        finished_at=None if admitted else now,
        quota_period_start=rule.quota.window(now)[0] if counted else None,
    )


def _state(*, admitted: bool, buffered: bool) -> RunState:
    if not admitted:
        return RunState.SKIPPED
    return RunState.BUFFERED if buffered else RunState.PENDING


def _title(autopilot: Autopilot, trigger: Trigger | None, moment: datetime) -> str:
    """Render the title that people will see; the template is for issues only."""
    if autopilot.execution_mode is not ExecutionMode.CREATE_ISSUE:
        return autopilot.title
    schedule = trigger.config if trigger is not None else None
    time_zone = schedule.time_zone if isinstance(schedule, ScheduleConfig) else "UTC"
    return render_title(autopilot.issue_title_template, autopilot.title, moment, time_zone)
