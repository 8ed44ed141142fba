"""The gate: whether an occurrence may become a run. One function, one order, every source.

The order: rule active, trigger enabled, everything belongs together, event wanted; then heartbeat
judges the agent (one question, answered by the first failing check); then somebody has to answer
for the run. Whatever the gate answers carries a reason from a closed list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never
from uuid import UUID

from reveille_autopilot.domain.attribution import Attribution, Blocked, Candidates, attribute
from reveille_autopilot.domain.models import Autopilot, EventFilter, Trigger, WebhookConfig
from reveille_autopilot.domain.states import (
    AutopilotStatus,
    ExecutionMode,
    Reason,
    RunSource,
    TriggerKind,
)

_NOT_FOUND = "the trigger no longer exists, or belongs elsewhere"


class Verdict(StrEnum):
    """What becomes of an occurrence."""

    ADMIT = "admit"
    # Stored as a run in state skipped.
    SKIP = "skip"
    # Leaves no run: the ledger or the delivery records the reason.
    IGNORE = "ignore"
    # Undecidable now: never a pass, never a skip.
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class Judgement:
    """The gate's answer; an admission names who answers for the run."""

    verdict: Verdict
    reason: str | None = None
    message: str = ""
    attribution: Attribution | None = None


@dataclass(frozen=True, slots=True)
class Occurrence:
    """What asks to become a run, as far as the gate has to know."""

    source: RunSource
    workspace_id: UUID | None
    trigger_id: UUID | None
    event: str = ""
    actions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """What is on record for the occurrence; None for what does not exist."""

    autopilot: Autopilot | None
    trigger: Trigger | None
    candidates: Candidates


@dataclass(frozen=True, slots=True)
class Invocable:
    """Heartbeat's answer about the agent; no answer at all is None in its place."""

    reason: str | None
    message: str
    owner_user_id: str | None


def own_checks(occurrence: Occurrence, rule: Rule) -> Judgement | None:
    """Judge by the rows of this service; None when heartbeat has to be asked."""
    autopilot, trigger = rule.autopilot, rule.trigger
    if not _exists(occurrence, autopilot):
        return _refused(occurrence, Reason.TRIGGER_NOT_FOUND, _NOT_FOUND)
    if autopilot is not None and autopilot.status is not AutopilotStatus.ACTIVE:
        return _refused(occurrence, Reason.AUTOPILOT_PAUSED, "the autopilot is paused")
    if trigger is not None and trigger.deleted_at is None and not trigger.enabled:
        return _refused(occurrence, Reason.TRIGGER_DISABLED, "the trigger is switched off")
    if not _belongs(occurrence, autopilot, trigger):
        return _refused(occurrence, Reason.TRIGGER_NOT_FOUND, _NOT_FOUND)
    if not _listens(occurrence, trigger):
        return _refused(
            occurrence,
            Reason.EVENT_FILTERED,
            f"the trigger does not listen for {_event_name(occurrence)}",
        )
    return None


def judge(
    occurrence: Occurrence, rule: Rule, invocable: Invocable | None, *, fail_closed: bool
) -> Judgement:
    """Give the whole answer; `invocable` is None when heartbeat could not be asked."""
    if (refusal := own_checks(occurrence, rule)) is not None:
        return refusal
    if invocable is None:
        return Judgement(Verdict.UNAVAILABLE, None, "whether the agent may be woken is not known")
    if invocable.reason is not None:
        return Judgement(Verdict.SKIP, invocable.reason, invocable.message)
    found = attribute(rule.candidates, invocable.owner_user_id, fail_closed=fail_closed)
    match found:
        case Blocked(message):
            return Judgement(Verdict.SKIP, Reason.ATTRIBUTION_BLOCKED, message)
        case Attribution():
            return Judgement(Verdict.ADMIT, attribution=found)
        case _:
            assert_never(found)


def runtime_must_be_online(mode: ExecutionMode) -> bool:
    """Tell whether a runtime that is away refuses the run; an issue can wait for it."""
    return mode is ExecutionMode.RUN_ONLY


def wants(filters: Sequence[EventFilter], event: str, actions: Sequence[str]) -> bool:
    """Tell whether a trigger listens for an event; without filters it listens for all."""
    if not filters:
        return True
    return any(
        wanted.event == event and (not wanted.actions or bool(set(wanted.actions) & set(actions)))
        for wanted in filters
    )


def _exists(occurrence: Occurrence, autopilot: Autopilot | None) -> bool:
    """Tell whether there is a rule to judge: one of another workspace does not exist for this one.

    First of all, so that a stranger never learns whether it is paused.
    """
    if autopilot is None:
        return False
    return occurrence.workspace_id in {None, autopilot.workspace_id}


def _listens(occurrence: Occurrence, trigger: Trigger | None) -> bool:
    if occurrence.source is not RunSource.WEBHOOK or trigger is None:
        return True
    if not isinstance(trigger.config, WebhookConfig):
        return True
    return wants(trigger.config.event_filters, occurrence.event, occurrence.actions)


def _belongs(occurrence: Occurrence, autopilot: Autopilot | None, trigger: Trigger | None) -> bool:
    if autopilot is None:
        return False
    if occurrence.trigger_id is None:
        return occurrence.source.on_request
    if trigger is None or trigger.deleted_at is not None:
        return False
    if (trigger.autopilot_id, trigger.workspace_id) != (autopilot.id, autopilot.workspace_id):
        return False
    match occurrence.source:
        case RunSource.SCHEDULE:
            return trigger.kind is TriggerKind.SCHEDULE
        case RunSource.WEBHOOK:
            return trigger.kind is TriggerKind.WEBHOOK
        case RunSource.MANUAL | RunSource.API:
            return True
        case _:
            assert_never(occurrence.source)


def _refused(occurrence: Occurrence, reason: Reason, message: str) -> Judgement:
    """Refuse before the agent was looked at: only who asked for this very run gets a run for it."""
    verdict = Verdict.SKIP if occurrence.source.on_request else Verdict.IGNORE
    return Judgement(verdict, reason, message)


def _event_name(occurrence: Occurrence) -> str:
    if not occurrence.actions:
        return occurrence.event or "an unnamed event"
    return f"{occurrence.event} ({', '.join(occurrence.actions)})"
