"""The gate: whether an occurrence may become a run. One function, one order, every source.

`GATE` is the order: rule in force, trigger enabled, everything belongs together, event wanted;
then heartbeat judges project and agent (one question, answered by the first failing check); then
somebody has to answer for the run; then, under the rule's lock, its overlap policy and the
workspace's quota. A check that needs to know more says what, and the gate is asked again with it.
Whatever it answers in the end carries a reason from a closed list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import assert_never
from uuid import UUID

from reveille_autopilot.domain.attribution import Attribution, Blocked, Candidates, attribute
from reveille_autopilot.domain.models import Autopilot, EventFilter, Quota, Trigger, WebhookConfig
from reveille_autopilot.domain.states import (
    AutopilotStatus,
    ExecutionMode,
    OverlapPolicy,
    QuotaAction,
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


class Start(StrEnum):
    """How an admitted run begins."""

    NOW = "now"
    # When the run before it has ended.
    BUFFERED = "buffered"
    # At once, and the others are cancelled.
    REPLACING = "replacing"


class Wanted(StrEnum):
    """What the gate has to know before it can go on."""

    INVOCABLE = "invocable"
    COUNTS = "counts"


@dataclass(frozen=True, slots=True)
class Judgement:
    """The gate's answer; an admission names who answers for the run."""

    verdict: Verdict
    reason: str | None = None
    message: str = ""
    attribution: Attribution | None = None
    start: Start = Start.NOW
    # Who works: of a squad, the leader that heartbeat named.
    agent_id: UUID | None = None
    # The quota is used up, and only observed.
    over_quota: bool = False


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
    # Whether a run for which nobody answers is refused, not charged to the agent's owner.
    fail_closed: bool = False
    quota: Quota = field(default_factory=Quota)


@dataclass(frozen=True, slots=True)
class Invocable:
    """Heartbeat's answer about the agent."""

    reason: str | None
    message: str
    owner_user_id: str | None
    agent_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Counts:
    """What was counted under the locks: open runs of the rule, and used runs of the period."""

    active: int = 0
    buffered: int = 0
    used: int = 0


@dataclass(frozen=True, slots=True)
class Known:
    """What has been found out so far; asked without an answer means that it cannot be told now."""

    asked: bool = False
    invocable: Invocable | None = None
    counts: Counts | None = None


@dataclass(frozen=True, slots=True)
class _Case:
    """What a check looks at."""

    occurrence: Occurrence
    rule: Rule
    known: Known


def judge(occurrence: Occurrence, rule: Rule, known: Known) -> Judgement | Wanted:
    """Walk the gate: the first check that refuses, or wants to know more, is the answer."""
    case = _Case(occurrence, rule, known)
    for check in GATE:
        found = check(case)
        if isinstance(found, Wanted):
            return found
        if found is not None:
            return _attributed(found, rule, known)
    quota, counts = rule.quota, known.counts or Counts()
    admitted = Judgement(
        Verdict.ADMIT,
        start=_start(rule, counts),
        over_quota=quota.action is not QuotaAction.OFF and counts.used >= quota.limit,
    )
    return _attributed(admitted, rule, known)


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


def _exists(case: _Case) -> Judgement | None:
    """Refuse what has no rule: one of another workspace does not exist for this one.

    First of all, so that a stranger never learns whether it is paused.
    """
    autopilot = case.rule.autopilot
    if autopilot is not None and case.occurrence.workspace_id in {None, autopilot.workspace_id}:
        return None
    return _refused(case.occurrence, Reason.TRIGGER_NOT_FOUND, _NOT_FOUND)


def _in_force(case: _Case) -> Judgement | None:
    match _autopilot(case.rule).status:
        case AutopilotStatus.ACTIVE:
            return None
        case AutopilotStatus.PAUSED:
            return _refused(case.occurrence, Reason.AUTOPILOT_PAUSED, "the autopilot is paused")
        case AutopilotStatus.ARCHIVED:
            return _refused(case.occurrence, Reason.AUTOPILOT_ARCHIVED, "the autopilot is archived")
        case _:
            assert_never(_autopilot(case.rule).status)


def _enabled(case: _Case) -> Judgement | None:
    trigger = case.rule.trigger
    if trigger is None or trigger.deleted_at is not None or trigger.enabled:
        return None
    return _refused(case.occurrence, Reason.TRIGGER_DISABLED, "the trigger is switched off")


def _belongs(case: _Case) -> Judgement | None:
    if _one_family(case.occurrence, _autopilot(case.rule), case.rule.trigger):
        return None
    return _refused(case.occurrence, Reason.TRIGGER_NOT_FOUND, _NOT_FOUND)


def _listens(case: _Case) -> Judgement | None:
    trigger = case.rule.trigger
    if case.occurrence.source is not RunSource.WEBHOOK or trigger is None:
        return None
    config = trigger.config
    if not isinstance(config, WebhookConfig):
        return None
    if wants(config.event_filters, case.occurrence.event, case.occurrence.actions):
        return None
    return _refused(
        case.occurrence,
        Reason.EVENT_FILTERED,
        f"the trigger does not listen for {_event_name(case.occurrence)}",
    )


def _invocable(case: _Case) -> Judgement | Wanted | None:
    if not case.known.asked:
        return Wanted.INVOCABLE
    answer = case.known.invocable
    if answer is None:
        return Judgement(Verdict.UNAVAILABLE, None, "whether the agent may be woken is not known")
    if answer.reason is not None:
        return Judgement(Verdict.SKIP, answer.reason, answer.message)
    return None


def _accountable(case: _Case) -> Judgement | None:
    found = _attribution(case.rule, case.known)
    if isinstance(found, Blocked):
        return Judgement(Verdict.SKIP, Reason.ATTRIBUTION_BLOCKED, found.message)
    return None


def _alone(case: _Case) -> Judgement | Wanted | None:
    policy, counts = _autopilot(case.rule).overlap_policy, case.known.counts
    if policy is OverlapPolicy.ALLOW:
        return None
    if counts is None:
        return Wanted.COUNTS
    match policy:
        case OverlapPolicy.SKIP if counts.active or counts.buffered:
            text = "an earlier run of the autopilot has no outcome yet"
        case OverlapPolicy.BUFFER_ONE if counts.buffered:
            text = "an earlier run of the autopilot has no outcome yet, and another waits for it"
        case OverlapPolicy.SKIP | OverlapPolicy.BUFFER_ONE | OverlapPolicy.CANCEL_OTHER:
            return None
        case _:
            assert_never(policy)
    return Judgement(Verdict.SKIP, Reason.ALREADY_ACTIVE, text)


def _within_quota(case: _Case) -> Judgement | Wanted | None:
    quota, counts = case.rule.quota, case.known.counts
    if quota.action is QuotaAction.OFF:
        return None
    if counts is None:
        return Wanted.COUNTS
    if quota.action is QuotaAction.OBSERVE or counts.used < quota.limit:
        return None
    return Judgement(
        Verdict.SKIP,
        Reason.QUOTA_EXCEEDED,
        f"the workspace has used its {quota.limit} runs of this {quota.period}",
    )


Check = Callable[[_Case], Judgement | Wanted | None]
GATE: tuple[Check, ...] = (
    _exists,
    _in_force,
    _enabled,
    _belongs,
    _listens,
    _invocable,
    _accountable,
    _alone,
    _within_quota,
)


def _start(rule: Rule, counts: Counts) -> Start:
    match _autopilot(rule).overlap_policy:
        case OverlapPolicy.BUFFER_ONE if counts.active:
            return Start.BUFFERED
        case OverlapPolicy.CANCEL_OTHER if counts.active or counts.buffered:
            return Start.REPLACING
        case _:
            return Start.NOW


def _attribution(rule: Rule, known: Known) -> Attribution | Blocked:
    owner = None if known.invocable is None else known.invocable.owner_user_id
    return attribute(rule.candidates, owner, fail_closed=rule.fail_closed)


def _attributed(found: Judgement, rule: Rule, known: Known) -> Judgement:
    """Name who answers and who works, as far as that is known: also for what was refused."""
    attribution = _attribution(rule, known)
    return replace(
        found,
        attribution=attribution if isinstance(attribution, Attribution) else None,
        agent_id=None if known.invocable is None else known.invocable.agent_id,
    )


def _autopilot(rule: Rule) -> Autopilot:
    if rule.autopilot is None:
        raise RuntimeError("the gate's first check refuses what has no rule")
    return rule.autopilot


def _one_family(occurrence: Occurrence, autopilot: Autopilot, trigger: Trigger | None) -> bool:
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
