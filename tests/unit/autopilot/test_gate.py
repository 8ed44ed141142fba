"""The gate: its order, its reasons, and which refusals leave a run, source by source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import pytest
from tests.unit.autopilot.builders import NOON, WORKSPACE, a_trigger, a_webhook, an_autopilot

from reveille_autopilot.domain.attribution import (
    Attribution,
    Blocked,
    Candidates,
    Publisher,
    attribute,
    principal,
)
from reveille_autopilot.domain.gate import (
    Counts,
    Invocable,
    Judgement,
    Known,
    Occurrence,
    Rule,
    Start,
    Verdict,
    Wanted,
    judge,
    runtime_must_be_online,
    wants,
)
from reveille_autopilot.domain.models import Autopilot, EventFilter, Quota, Trigger
from reveille_autopilot.domain.states import (
    AttributionSource,
    AutopilotStatus,
    ExecutionMode,
    OverlapPolicy,
    QuotaAction,
    RunSource,
)

PUBLISHER = Publisher("publisher", active_member=True)
PASSES = Invocable(None, "", "owner")
NO_QUOTA, NOTHING = Quota(), Counts()
SOURCES = list(RunSource)


def a_rule(source: RunSource, autopilot: Autopilot | None = None, **trigger: Any) -> Rule:
    made: Trigger | None
    match source:
        case RunSource.SCHEDULE:
            made = a_trigger(**trigger)
        case RunSource.WEBHOOK:
            made = a_webhook(EventFilter("issues", ("opened",)), **trigger)
        case RunSource.MANUAL | RunSource.API:
            made = a_trigger(**trigger)
    clicker = Publisher("clicker", active_member=True) if source is RunSource.MANUAL else None
    return Rule(autopilot or an_autopilot(), made, Candidates(clicker, PUBLISHER, PUBLISHER))


def an_occurrence(source: RunSource, rule: Rule, **more: Any) -> Occurrence:
    trigger_id = None if rule.trigger is None else rule.trigger.id
    given: dict[str, Any] = {"event": "issues", "actions": ("opened",)}
    return Occurrence(source, WORKSPACE, trigger_id, **(given | more))


def judged(
    source: RunSource, rule: Rule, invocable: Invocable | None = PASSES, **more: Any
) -> Judgement:
    counts = more.pop("counts", Counts())
    known = Known(asked=True, invocable=invocable, counts=counts)
    found = judge(an_occurrence(source, rule, **more), rule, known)
    assert isinstance(found, Judgement)
    return found


@dataclass(frozen=True)
class Refusal:
    """What stands against an occurrence, and the reason it shall be refused with."""

    reason: str
    # Whether our own rows refuse it: then only who asked gets a run.
    own: bool = False
    autopilot: Mapping[str, Any] = field(default_factory=dict)
    trigger: Mapping[str, Any] = field(default_factory=dict)
    invocable: Invocable | None = PASSES
    fail_closed: bool = False
    publishers: tuple[Publisher | None, Publisher | None] = (PUBLISHER, PUBLISHER)
    quota: Quota = NO_QUOTA
    counts: Counts = NOTHING
    sources: tuple[RunSource, ...] = tuple(RunSource)
    event: str = "issues"


GONE = Publisher("gone", active_member=False)
AUTOMATIC = (RunSource.SCHEDULE, RunSource.WEBHOOK, RunSource.API)
# In the order of the gate.
REFUSALS = (
    Refusal("autopilot_paused", own=True, autopilot={"status": AutopilotStatus.PAUSED}),
    Refusal("autopilot_archived", own=True, autopilot={"status": AutopilotStatus.ARCHIVED}),
    Refusal("trigger_disabled", own=True, trigger={"enabled": False}),
    Refusal("trigger_not_found", own=True, trigger={"deleted_at": NOON}),
    Refusal("trigger_not_found", own=True, trigger={"autopilot_id": UUID(int=99)}),
    Refusal("trigger_not_found", own=True, trigger={"workspace_id": UUID(int=99)}),
    Refusal("event_filtered", own=True, event="push", sources=(RunSource.WEBHOOK,)),
    *(
        Refusal(reason, invocable=Invocable(reason, "as heartbeat says", "owner"))
        for reason in (
            "project_unavailable",
            "target_unavailable",
            "agent_runtime_required",
            "runtime_unusable",
            "runtime_offline",
            "invocation_not_allowed",
        )
    ),
    Refusal("attribution_blocked", fail_closed=True, publishers=(GONE, None), sources=AUTOMATIC),
    Refusal(
        "attribution_blocked",
        publishers=(None, None),
        invocable=Invocable(None, "", None),
        sources=AUTOMATIC,
    ),
    Refusal(
        "already_active",
        autopilot={"overlap_policy": OverlapPolicy.SKIP},
        counts=Counts(active=1),
    ),
    Refusal(
        "already_active",
        autopilot={"overlap_policy": OverlapPolicy.BUFFER_ONE},
        counts=Counts(active=1, buffered=1),
    ),
    Refusal("quota_exceeded", quota=Quota(QuotaAction.ENFORCE, limit=3), counts=Counts(used=3)),
)
MATRIX = [
    pytest.param(source, mode, refusal, id=f"{source}-{mode}-{number}-{refusal.reason}")
    for number, refusal in enumerate(REFUSALS)
    for source in refusal.sources
    for mode in ExecutionMode
]


def faced_with(source: RunSource, mode: ExecutionMode, *refusals: Refusal) -> Judgement:
    """Put everything that these refusals name in the way of one occurrence."""
    autopilot: dict[str, Any] = {"execution_mode": mode}
    trigger: dict[str, Any] = {}
    quota, counts, event, fail_closed = NO_QUOTA, NOTHING, "issues", False
    invocable: Invocable | None = PASSES
    publishers: tuple[Publisher | None, Publisher | None] = (PUBLISHER, PUBLISHER)
    for each in reversed(refusals):
        autopilot |= each.autopilot
        trigger |= each.trigger
        quota = each.quota if each.quota != Quota() else quota
        counts = each.counts if each.counts != Counts() else counts
        invocable = each.invocable if each.invocable != PASSES else invocable
        fail_closed = fail_closed or each.fail_closed
        publishers = each.publishers if each.publishers != (PUBLISHER, PUBLISHER) else publishers
        event = each.event if each.event != "issues" else event
    rule = a_rule(source, an_autopilot(**autopilot), **trigger)
    rule = replace(
        rule,
        candidates=Candidates(rule.candidates.clicker, *publishers),
        fail_closed=fail_closed,
        quota=quota,
    )
    return judged(source, rule, invocable, counts=counts, event=event)


@pytest.mark.parametrize(("source", "mode", "refusal"), MATRIX)
def test_every_refusal_of_every_source_and_mode_has_its_reason_and_its_run(
    source: RunSource, mode: ExecutionMode, refusal: Refusal
) -> None:
    judgement = faced_with(source, mode, refusal)
    assert judgement.reason == refusal.reason
    assert judgement.message
    leaves_a_run = not refusal.own or source.on_request
    assert judgement.verdict is (Verdict.SKIP if leaves_a_run else Verdict.IGNORE)


@pytest.mark.parametrize("mode", list(ExecutionMode))
def test_the_first_check_that_fails_gives_the_reason(mode: ExecutionMode) -> None:
    own = [each for each in REFUSALS if "deleted_at" not in each.trigger]
    webhook = [each for each in own if RunSource.WEBHOOK in each.sources]
    for number, first in enumerate(webhook):
        # The gate stops at the first of all that stands in the way; later ones never show.
        assert faced_with(RunSource.WEBHOOK, mode, *webhook[number:]).reason == first.reason


@pytest.mark.parametrize("source", SOURCES)
def test_what_passes_everything_is_admitted_with_somebody_who_answers(source: RunSource) -> None:
    judgement = judged(source, a_rule(source))
    assert judgement.verdict is Verdict.ADMIT
    assert judgement.attribution is not None
    by_hand = source is RunSource.MANUAL
    assert judgement.attribution.accountable_user_id == ("clicker" if by_hand else "publisher")


@pytest.mark.parametrize("source", SOURCES)
def test_an_unanswered_question_is_neither_pass_nor_skip(source: RunSource) -> None:
    assert judged(source, a_rule(source), None).verdict is Verdict.UNAVAILABLE


@pytest.mark.parametrize("source", SOURCES)
def test_the_gate_asks_for_no_more_than_it_needs(source: RunSource) -> None:
    skipping = an_autopilot(overlap_policy=OverlapPolicy.SKIP)
    paused = a_rule(source, an_autopilot(status=AutopilotStatus.PAUSED))
    rule = a_rule(source, skipping)
    answered = Known(asked=True, invocable=PASSES)
    assert isinstance(judge(an_occurrence(source, paused), paused, Known()), Judgement)
    assert judge(an_occurrence(source, rule), rule, Known()) is Wanted.INVOCABLE
    assert judge(an_occurrence(source, rule), rule, answered) is Wanted.COUNTS
    counting = replace(a_rule(source), quota=Quota(QuotaAction.OBSERVE, 1))
    assert judge(an_occurrence(source, counting), counting, answered) is Wanted.COUNTS
    plain = a_rule(source)
    assert isinstance(judge(an_occurrence(source, plain), plain, answered), Judgement)


@pytest.mark.parametrize(
    ("policy", "counts", "start"),
    [
        (OverlapPolicy.ALLOW, Counts(active=9), Start.NOW),
        (OverlapPolicy.SKIP, Counts(), Start.NOW),
        (OverlapPolicy.BUFFER_ONE, Counts(), Start.NOW),
        (OverlapPolicy.BUFFER_ONE, Counts(active=2), Start.BUFFERED),
        (OverlapPolicy.CANCEL_OTHER, Counts(), Start.NOW),
        (OverlapPolicy.CANCEL_OTHER, Counts(active=1), Start.REPLACING),
        (OverlapPolicy.CANCEL_OTHER, Counts(buffered=1), Start.REPLACING),
    ],
)
def test_how_an_admitted_run_begins(policy: OverlapPolicy, counts: Counts, start: Start) -> None:
    rule = a_rule(RunSource.SCHEDULE, an_autopilot(overlap_policy=policy))
    judgement = judged(RunSource.SCHEDULE, rule, counts=counts)
    assert (judgement.verdict, judgement.start) == (Verdict.ADMIT, start)


def test_an_observed_quota_refuses_nothing_and_tells() -> None:
    rule = replace(a_rule(RunSource.WEBHOOK), quota=Quota(QuotaAction.OBSERVE, limit=2))
    below = judged(RunSource.WEBHOOK, rule, counts=Counts(used=1))
    beyond = judged(RunSource.WEBHOOK, rule, counts=Counts(used=2))
    assert [(each.verdict, each.over_quota) for each in (below, beyond)] == [
        (Verdict.ADMIT, False),
        (Verdict.ADMIT, True),
    ]


def test_of_a_squad_the_leader_works() -> None:
    leader = UUID(int=77)
    rule = a_rule(RunSource.MANUAL, an_autopilot(agent_id=None, squad_id=UUID(int=8)))
    answer = Invocable(None, "", "owner", leader)
    assert judged(RunSource.MANUAL, rule, answer).agent_id == leader


def test_a_refused_run_tells_who_would_have_answered() -> None:
    refused = Invocable("invocation_not_allowed", "no", "owner")
    for source, user in ((RunSource.MANUAL, "clicker"), (RunSource.SCHEDULE, "publisher")):
        attribution = judged(source, a_rule(source), refused).attribution
        assert attribution is not None
        assert attribution.accountable_user_id == user


@pytest.mark.parametrize("status", list(AutopilotStatus))
def test_a_rule_of_another_workspace_does_not_exist_for_an_occurrence(
    status: AutopilotStatus,
) -> None:
    rule = Rule(an_autopilot(status=status), a_webhook(), Candidates())
    trigger_id = None if rule.trigger is None else rule.trigger.id
    stranger = Occurrence(RunSource.WEBHOOK, UUID(int=99), trigger_id)
    judgement = judge(stranger, rule, Known(asked=True, invocable=PASSES))
    assert isinstance(judgement, Judgement)
    assert (judgement.verdict, judgement.reason) == (Verdict.IGNORE, "trigger_not_found")


def test_a_trigger_fires_only_by_its_own_kind_and_may_be_run_by_hand() -> None:
    for source, trigger in (
        (RunSource.SCHEDULE, a_webhook()),
        (RunSource.WEBHOOK, a_trigger()),
    ):
        rule = Rule(an_autopilot(), trigger, Candidates())
        assert judged(source, rule).reason == "trigger_not_found"
    nobody = Rule(an_autopilot(), None, Candidates(PUBLISHER))
    assert judged(RunSource.MANUAL, nobody).verdict is Verdict.ADMIT
    assert judged(RunSource.SCHEDULE, nobody).reason == "trigger_not_found"
    assert judged(RunSource.SCHEDULE, Rule(None, None, Candidates())).reason == "trigger_not_found"


def test_a_webhook_run_by_hand_is_not_filtered() -> None:
    rule = Rule(an_autopilot(), a_webhook(EventFilter("push")), Candidates(PUBLISHER))
    assert judged(RunSource.MANUAL, rule, event="", actions=()).verdict is Verdict.ADMIT


@pytest.mark.parametrize(
    ("filters", "event", "actions", "wanted"),
    [
        ((), "anything", (), True),
        ((EventFilter("issues"),), "issues", (), True),
        ((EventFilter("issues"),), "issues", ("opened",), True),
        ((EventFilter("issues"),), "Issues", (), False),
        ((EventFilter("issues", ("opened",)),), "issues", ("opened", "x"), True),
        ((EventFilter("issues", ("opened",)),), "issues", (), False),
        ((EventFilter("issues", ("opened",)),), "issues", ("closed",), False),
        ((EventFilter("push"), EventFilter("issues")), "issues", (), True),
    ],
)
def test_filters(
    filters: tuple[EventFilter, ...], event: str, actions: tuple[str, ...], wanted: bool
) -> None:
    assert wants(filters, event, actions) is wanted


def test_only_a_wake_needs_its_runtime_now() -> None:
    assert runtime_must_be_online(ExecutionMode.RUN_ONLY)
    assert not runtime_must_be_online(ExecutionMode.CREATE_ISSUE)


RULE = Publisher("rule-publisher", active_member=True)


@pytest.mark.parametrize(
    ("candidates", "owner", "fail_closed", "expected"),
    [
        (
            Candidates(PUBLISHER, GONE, RULE),
            "owner",
            True,
            Attribution("publisher", AttributionSource.DIRECT_HUMAN, "publisher"),
        ),
        # Whoever clicked answers, whatever else is known: that person is checked live.
        (
            Candidates(GONE, PUBLISHER, RULE),
            "owner",
            False,
            Attribution("gone", AttributionSource.DIRECT_HUMAN, "gone"),
        ),
        (
            Candidates(None, PUBLISHER, RULE),
            "owner",
            True,
            Attribution("publisher", AttributionSource.TRIGGER_OWNER),
        ),
        (
            Candidates(None, GONE, RULE),
            "owner",
            True,
            Attribution("rule-publisher", AttributionSource.RULE_OWNER),
        ),
        (
            Candidates(None, None, RULE),
            None,
            True,
            Attribution("rule-publisher", AttributionSource.RULE_OWNER),
        ),
        # The newest version was published by the system: nobody of an older one answers.
        (
            Candidates(None, None, None),
            "owner",
            False,
            Attribution("owner", AttributionSource.OWNER_FALLBACK),
        ),
        (
            Candidates(None, GONE, GONE),
            "owner",
            False,
            Attribution("owner", AttributionSource.OWNER_FALLBACK),
        ),
    ],
)
def test_the_chain(
    candidates: Candidates, owner: str | None, fail_closed: bool, expected: Attribution
) -> None:
    assert attribute(candidates, owner, fail_closed=fail_closed) == expected


def test_nobody_is_made_up() -> None:
    nobody = Candidates(None, GONE, None)
    assert principal(nobody) is None
    assert isinstance(attribute(nobody, "owner", fail_closed=True), Blocked)
    assert isinstance(attribute(nobody, None, fail_closed=False), Blocked)
    assert isinstance(attribute(nobody, "", fail_closed=False), Blocked)
