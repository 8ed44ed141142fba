"""What `reveille why` says next."""

from __future__ import annotations

import pytest
from tests.unit.autopilot.builders import NOON, a_run, a_trigger, an_autopilot

from reveille_autopilot.domain.models import EventFilter, WebhookConfig
from reveille_autopilot.domain.states import AutopilotStatus, Reason
from reveille_autopilot.usecases.findings import explain_autopilot, explain_run, explain_trigger


@pytest.mark.parametrize(
    ("reason", "verb"),
    [
        (None, "resume"),
        (Reason.HIGH_FAILURE_RATE, "resume"),
        (Reason.AGENT_RUNTIME_REQUIRED, "resume"),
        # An archived agent stays so: resuming would be refused.
        (Reason.TARGET_UNAVAILABLE, "update"),
    ],
)
def test_the_next_step_of_a_paused_rule_is_one_that_can_work(
    reason: Reason | None, verb: str
) -> None:
    rule = an_autopilot(status=AutopilotStatus.PAUSED, pause_reason=reason)
    told = (
        explain_autopilot(rule, "ann", []).command,
        explain_trigger(a_trigger(), rule, None).command,
    )
    expected = f"reveille autopilots {verb} {rule.id}"
    assert told == ((expected if verb == "resume" else f"{expected} --agent AGENT"),) * 2


def test_a_webhook_tells_of_the_actions_it_listens_for() -> None:
    filters = (EventFilter("issues", ("opened", "closed")), EventFilter("push", ()))
    trigger = a_trigger(config=WebhookConfig("github", filters, 1000, {}), enabled=True)

    told = explain_trigger(trigger, an_autopilot(), None).text

    assert told.startswith("The webhook listens for issues (opened, closed); push from github.")


def test_a_trigger_that_is_off_tells_how_to_switch_it_on() -> None:
    trigger = a_trigger(enabled=False)

    told = explain_trigger(trigger, an_autopilot(), None)

    assert told.command == f"reveille triggers update {trigger.id} --enabled true"


@pytest.mark.parametrize(
    ("asked_by", "words"),
    [
        ("ann", " ann asked to cancel it at "),
        ("", " It is being cancelled since "),
    ],
)
def test_a_run_that_is_being_cancelled_tells_because_of_whom(asked_by: str, words: str) -> None:
    run = a_run(cancel_requested_at=NOON, cancel_requested_by=asked_by)

    assert words in explain_run(run).text
