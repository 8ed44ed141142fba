"""The gate: its order, its reasons, and which refusals leave a run, source by source."""

from __future__ import annotations

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
    Invocable,
    Judgement,
    Occurrence,
    Rule,
    Verdict,
    judge,
    own_checks,
    runtime_must_be_online,
    wants,
)
from reveille_autopilot.domain.models import Autopilot, EventFilter, Trigger
from reveille_autopilot.domain.states import (
    AttributionSource,
    AutopilotStatus,
    ExecutionMode,
    RunSource,
)

PUBLISHER = Publisher("publisher", active_member=True)
PASSES = Invocable(None, "", "owner")
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
    return judge(an_occurrence(source, rule, **more), rule, invocable, fail_closed=False)


@pytest.mark.parametrize("source", SOURCES)
def test_what_passes_everything_is_admitted_with_somebody_who_answers(source: RunSource) -> None:
    judgement = judged(source, a_rule(source))
    assert judgement.verdict is Verdict.ADMIT
    assert judgement.attribution is not None
    by_hand = source is RunSource.MANUAL
    assert judgement.attribution.accountable_user_id == ("clicker" if by_hand else "publisher")


PAUSED = an_autopilot(status=AutopilotStatus.PAUSED)
REFUSALS: list[tuple[str, dict[str, Any], Autopilot | None]] = [
    ("autopilot_paused", {}, PAUSED),
    ("trigger_disabled", {"enabled": False}, None),
    ("trigger_not_found", {"deleted_at": NOON}, None),
    ("trigger_not_found", {"autopilot_id": UUID(int=99)}, None),
    ("trigger_not_found", {"workspace_id": UUID(int=99)}, None),
]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(("reason", "trigger", "autopilot"), REFUSALS)
def test_a_refusal_by_our_own_rows_leaves_a_run_only_for_who_asked(
    source: RunSource, reason: str, trigger: dict[str, Any], autopilot: Autopilot | None
) -> None:
    judgement = judged(source, a_rule(source, autopilot, **trigger))
    assert judgement.reason == reason
    asked = source in {RunSource.MANUAL, RunSource.API}
    assert judgement.verdict is (Verdict.SKIP if asked else Verdict.IGNORE)
    assert judgement.message


@pytest.mark.parametrize("source", SOURCES)
def test_a_refusal_by_heartbeat_is_a_skipped_run_for_every_source(source: RunSource) -> None:
    refused = Invocable("runtime_offline", "it is away", "owner")
    judgement = judged(source, a_rule(source), refused)
    assert judgement == Judgement(Verdict.SKIP, "runtime_offline", "it is away")


@pytest.mark.parametrize("source", SOURCES)
def test_an_unanswered_question_is_neither_pass_nor_skip(source: RunSource) -> None:
    assert judged(source, a_rule(source), None).verdict is Verdict.UNAVAILABLE


@pytest.mark.parametrize("source", SOURCES)
def test_what_our_own_rows_refuse_needs_no_answer(source: RunSource) -> None:
    rule = a_rule(source, PAUSED)
    assert own_checks(an_occurrence(source, rule), rule) is not None
    assert judged(source, rule, None).reason == "autopilot_paused"


def test_the_first_check_that_fails_gives_the_reason() -> None:
    everything = a_webhook(
        EventFilter("push"), enabled=False, deleted_at=None, workspace_id=UUID(int=99)
    )
    rule = Rule(PAUSED, everything, Candidates())
    assert judged(RunSource.WEBHOOK, rule).reason == "autopilot_paused"
    rule = Rule(an_autopilot(), everything, Candidates())
    assert judged(RunSource.WEBHOOK, rule).reason == "trigger_disabled"
    elsewhere = a_webhook(EventFilter("push"), workspace_id=UUID(int=99))
    rule = Rule(an_autopilot(), elsewhere, Candidates())
    assert judged(RunSource.WEBHOOK, rule).reason == "trigger_not_found"
    filtered = a_webhook(EventFilter("push"))
    rule = Rule(an_autopilot(), filtered, Candidates())
    refused = Invocable("invocation_not_allowed", "", None)
    assert judged(RunSource.WEBHOOK, rule, refused).reason == "event_filtered"
    rule = Rule(an_autopilot(), a_webhook(), Candidates())
    blocked = judge(an_occurrence(RunSource.WEBHOOK, rule), rule, refused, fail_closed=True)
    assert blocked.reason == "invocation_not_allowed"


@pytest.mark.parametrize("status", list(AutopilotStatus))
def test_a_rule_of_another_workspace_does_not_exist_for_an_occurrence(
    status: AutopilotStatus,
) -> None:
    rule = Rule(an_autopilot(status=status), a_webhook(), Candidates())
    trigger_id = None if rule.trigger is None else rule.trigger.id
    stranger = Occurrence(RunSource.WEBHOOK, UUID(int=99), trigger_id)
    judgement = judge(stranger, rule, PASSES, fail_closed=False)
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


GONE = Publisher("gone", active_member=False)
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


def test_a_blocked_attribution_is_a_skipped_run() -> None:
    rule = Rule(an_autopilot(), a_trigger(), Candidates(None, GONE, GONE))
    judgement = judge(an_occurrence(RunSource.SCHEDULE, rule), rule, PASSES, fail_closed=True)
    assert (judgement.verdict, judgement.reason) == (Verdict.SKIP, "attribution_blocked")
