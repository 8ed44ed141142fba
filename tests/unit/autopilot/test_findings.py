"""What `reveille why` says next."""

from __future__ import annotations

import pytest
from tests.unit.autopilot.builders import a_trigger, an_autopilot

from reveille_autopilot.domain.states import AutopilotStatus, Reason
from reveille_autopilot.usecases.findings import explain_autopilot, explain_trigger


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
