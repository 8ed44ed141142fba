"""Rules, triggers and runs explained in plain words, for an operator who asks why."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import assert_never

from reveille_autopilot.domain.models import Autopilot, EventFilter, Run, ScheduleConfig, Trigger
from reveille_autopilot.domain.states import AutopilotStatus, ExecutionMode, Reason, RunState
from reveille_runtime.explain import Finding, iso


def explain_run(run: Run) -> Finding:
    """Tell where a run stands, and why."""
    return Finding(
        time=run.finished_at or run.cancel_requested_at or run.created_at,
        subject="run",
        subject_id=str(run.id),
        state=run.state.value,
        reason=run.reason or "",
        text=_run_text(run),
        rows=(
            ("autopilot.runs", str(run.id)),
            ("autopilot.rule_versions", str(run.rule_version_id)),
        ),
        command=_run_command(run),
        related=_ids(
            run.occurrence_key,
            run.trigger_id,
            run.autopilot_id,
            run.delivery_id,
            run.wakeup_id,
            run.issue_id,
            run.agent_id,
            run.squad_id,
        ),
    )


def explain_trigger(trigger: Trigger, rule: Autopilot, next_fire: datetime | None) -> Finding:
    """Tell whether a trigger fires, when next, and what keeps it from firing."""
    receiver = "the scheduler" if isinstance(trigger.config, ScheduleConfig) else "the gateway"
    state, reason, command = "active", "", ""
    if trigger.deleted_at is not None:
        state, reason, text = "deleted", "", "The trigger was deleted; it does not fire any more."
    elif rule.status is AutopilotStatus.ARCHIVED:
        state, reason = "archived", Reason.AUTOPILOT_ARCHIVED.value
        text = "The autopilot is archived, so the trigger makes no runs any more."
    elif rule.status is AutopilotStatus.PAUSED:
        state, reason = "paused", Reason.AUTOPILOT_PAUSED.value
        text = "The autopilot is paused, so the trigger makes no runs."
        command = _into_force(rule)
    elif not trigger.enabled:
        state, reason = "disabled", Reason.TRIGGER_DISABLED.value
        text = "The trigger is switched off, so it makes no runs."
        command = f"reveille triggers update {trigger.id} --enabled true"
    elif isinstance(trigger.config, ScheduleConfig):
        state, text = _schedule(trigger.config, next_fire)
    else:
        events = "; ".join(map(_wanted, trigger.config.event_filters)) or "every event"
        text = f"The webhook listens for {events} from {trigger.config.provider}."
    if not trigger.synced:
        state = "unsynced" if state in {"active", "deleted"} else state
        text += f" {_unsynced(trigger, receiver)}"
    return Finding(
        time=trigger.deleted_at or trigger.created_at,
        subject="trigger",
        subject_id=str(trigger.id),
        state=state,
        reason=reason,
        text=text,
        rows=(("autopilot.triggers", str(trigger.id)), ("autopilot.autopilots", str(rule.id))),
        command=command,
        related=_ids(rule.id),
    )


def explain_autopilot(
    rule: Autopilot, publisher_user_id: str, triggers: Sequence[Trigger]
) -> Finding:
    """Tell whether a rule is in force, and who published what it says."""
    paused = rule.status is AutopilotStatus.PAUSED
    reason = Reason.AUTOPILOT_PAUSED.value if paused else ""
    match rule.status:
        case AutopilotStatus.ACTIVE:
            force = "is in force"
        case AutopilotStatus.PAUSED:
            force = "is paused: no trigger makes a run"
            if rule.pause_reason is not None:
                force = f"was paused by the system ({rule.pause_reason}): no trigger makes a run"
        case AutopilotStatus.ARCHIVED:
            reason = Reason.AUTOPILOT_ARCHIVED.value
            force = "is archived: it makes no runs any more"
        case _:
            assert_never(rule.status)
    return Finding(
        time=rule.updated_at,
        subject="autopilot",
        subject_id=str(rule.id),
        state=rule.status.value,
        reason=rule.pause_reason or reason,
        text=(
            f"“{rule.title}” {force}. Version {rule.rule_sequence} was published by"
            f" {publisher_user_id}; it has {len(triggers)} trigger(s)."
        ),
        rows=(
            ("autopilot.autopilots", str(rule.id)),
            ("autopilot.rule_versions", str(rule.rule_version_id)),
        ),
        command=_into_force(rule) if paused else "",
        related=_ids(rule.agent_id, rule.squad_id, *(trigger.id for trigger in triggers)),
    )


def _wanted(listened: EventFilter) -> str:
    """Write an event with its actions: the same event with another action is left out."""
    actions = ", ".join(listened.actions)
    return f"{listened.event} ({actions})" if actions else listened.event


def _into_force(rule: Autopilot) -> str:
    """Name the step towards force: whoever is archived stays so, and somebody else has to work."""
    if rule.pause_reason == Reason.TARGET_UNAVAILABLE:
        return f"reveille autopilots update {rule.id} --agent AGENT"
    return f"reveille autopilots resume {rule.id}"


def _unsynced(trigger: Trigger, receiver: str) -> str:
    revisions = f"it has revision {trigger.synced_revision} of {trigger.revision}"
    if trigger.sync_error:
        return (
            f"{receiver.capitalize()} refuses it: {trigger.sync_error}"
            f" ({revisions}, and is offered the rest now and then)."
        )
    return f"{receiver.capitalize()} has not confirmed this yet: {revisions}, and is sent the rest."


def _schedule(config: ScheduleConfig, next_fire: datetime | None) -> tuple[str, str]:
    if config.run_at is not None:
        if next_fire is None:
            return "done", f"It was to fire once at {iso(config.run_at)}; that time has passed."
        return "waiting", f"It fires once, at {iso(config.run_at)}."
    rule = f"“{config.cron}” in {config.time_zone}"
    if next_fire is None:
        return "never", f"{rule} does not fire any more in the years ahead."
    return "waiting", f"{rule} fires next at {iso(next_fire)}."


def _run_text(run: Run) -> str:
    match run.state:
        case RunState.PENDING:
            return _pending_text(run)
        case RunState.BUFFERED:
            text = "Admitted; it waits for the earlier run of its autopilot to end."
        case RunState.RUNNING:
            text = f"Its wakeup {run.wakeup_id} exists; the run ends when the wakeup is settled."
        case RunState.ISSUE_CREATED:
            text = f"Its issue {run.issue_id} exists; the run ends when the issue does."
            if run.result is not None:
                text += " The agent ended without closing the issue."
            text += f" `reveille issues move {run.issue_id} done` closes it by hand."
        case RunState.COMPLETED:
            made = "issue" if run.execution_mode is ExecutionMode.CREATE_ISSUE else "wakeup"
            return f"Done: its {made} was completed."
        case RunState.FAILED:
            return f"Failed ({run.reason or 'no reason given'}): {run.message or 'no details'}."
        case RunState.SKIPPED:
            return f"Refused by a rule ({run.reason}): {run.message or 'no details'}."
        case RunState.CANCELLED:
            return f"Cancelled ({run.reason}): {run.message or 'no details'}."
        case _:
            assert_never(run.state)
    return text + _cancelling(run)


def _pending_text(run: Run) -> str:
    if not run.payload_ready:
        text = "Admitted; it waits for the gateway to hand its body over."
    elif run.attempts:
        text = f"Admitted, but heartbeat could not be asked ({run.attempts} time(s))."
    else:
        text = "Admitted; it is about to be dispatched."
    if run.next_attempt_at is not None and run.payload_ready:
        text += f" The next try is at {iso(run.next_attempt_at)}."
    return f"{text} It is given up at {iso(run.dispatch_deadline_at)}." + _cancelling(run)


def _cancelling(run: Run) -> str:
    if run.cancel_requested_at is None:
        return ""
    since = iso(run.cancel_requested_at)
    if not run.cancel_requested_by:
        return (
            f" It is being cancelled since {since}: a later run of its autopilot takes its place."
        )
    return f" {run.cancel_requested_by} asked to cancel it at {since}."


def _run_command(run: Run) -> str:
    if not run.terminal:
        return "" if run.cancel_requested_at else f"reveille runs cancel {run.id}"
    if run.reason == Reason.ALREADY_ACTIVE:
        return f"reveille runs list --autopilot {run.autopilot_id}"
    if run.reason == Reason.QUOTA_EXCEEDED:
        return f"reveille autopilots usage --workspace {run.workspace_id}"
    if run.reason == Reason.AUTOPILOT_PAUSED:
        return f"reveille autopilots resume {run.autopilot_id}"
    if run.state is RunState.COMPLETED:
        return ""
    return f"reveille autopilots run {run.autopilot_id}"


def _ids(*values: object | None) -> tuple[str, ...]:
    return tuple(str(value) for value in values if value is not None)
