"""May a run that has waited begin now? The first gate that is shut, in order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from tests.unit.heartbeat.made import AGENT, ISSUE, NOW, RUN, WAKEUP

from reveille_heartbeat.domain.gates import GATES, Waiting, refusal_of
from reveille_heartbeat.domain.obstacles import Blocker, HoldMode, HoldOver
from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import AgentState, IssueState
from reveille_heartbeat.domain.targets import Target
from reveille_heartbeat.domain.values import WakeupSource
from reveille_heartbeat.domain.wakes import APPROVAL, COMMENT_REASON

OTHER = UUID(int=50)
ASSIGNED = replace(WAKEUP, wake_reason="issue_assigned", source=WakeupSource.ASSIGNMENT)
ANSWERS = replace(ASSIGNED, context={COMMENT_REASON: "issue_commented"})
DECIDED = replace(WAKEUP, wake_reason="approval_approved", context={APPROVAL: {}})
WAITING = Waiting(RUN.run_id, None, "", AGENT.agent_id, Target(AGENT), ASSIGNED, ISSUE)
PAUSED = Target(replace(AGENT, state=AgentState.PAUSED))
HELD = HoldOver(UUID(int=30), HoldMode.PAUSE, "an audit", UUID(int=31), "ABC-7")
BLOCKERS = (Blocker(UUID(int=40), "ABC-2", "First", IssueState.TODO),)
DONE = replace(ISSUE, status=IssueState.DONE)
THEIRS = replace(ISSUE, assignee_agent_id=OTHER)
CONTINUES = {"retry_reason": "max_turns", "retry_of_run_id": UUID(int=8)}
IN_PROGRESS = replace(ISSUE, status=IssueState.IN_PROGRESS)
REVIEW = replace(WAKEUP, wake_reason="execution_review_requested")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"issue": None}, None),
        ({"target": PAUSED}, Reason.AGENT_NOT_INVOKABLE),
        ({"issue": replace(ISSUE, deleted_at=NOW)}, Reason.ISSUE_DELETED),
        # A hold, a blocker or an end that came while it waited.
        ({"hold": HELD}, Reason.ISSUE_TREE_HELD),
        ({"hold": HELD, "wakeup": ANSWERS}, None),
        ({"blockers": BLOCKERS}, Reason.ISSUE_DEPENDENCIES_BLOCKED),
        ({"blockers": BLOCKERS, "wakeup": ANSWERS}, None),
        # The answer to its own question passes what keeps the work, and no end of it.
        ({"hold": HELD, "blockers": BLOCKERS, "wakeup": DECIDED}, None),
        ({"issue": DONE, "wakeup": DECIDED}, Reason.ISSUE_CLOSED),
        ({"issue": DONE}, Reason.ISSUE_CLOSED),
        ({"issue": DONE, "wakeup": ANSWERS}, None),
        # Naming comments is not enough: they were checked when the wish was judged.
        ({"issue": DONE, "wakeup": replace(ASSIGNED, comment_ids=(OTHER,))}, Reason.ISSUE_CLOSED),
        ({"issue": THEIRS}, Reason.ISSUE_ASSIGNEE_CHANGED),
        ({"issue": THEIRS, "wakeup": ANSWERS}, None),
        ({"issue": THEIRS, "wakeup": replace(ASSIGNED, context=DECIDED.context)}, None),
        ({"issue": THEIRS, "wakeup": replace(WAKEUP, wake_reason="robot_wants")}, None),
        ({"wakeup": REVIEW}, Reason.ISSUE_REVIEWER_CHANGED),
        ({"wakeup": replace(REVIEW, context=ANSWERS.context)}, None),
        (
            {"wakeup": REVIEW, "issue": replace(ISSUE, reviewer_agent_id=AGENT.agent_id)},
            None,
        ),
        (CONTINUES, Reason.ISSUE_NOT_IN_PROGRESS),
        ({"issue": IN_PROGRESS, **CONTINUES}, None),
        (
            {"issue": replace(IN_PROGRESS, execution_run_id=OTHER), **CONTINUES},
            Reason.ISSUE_LOCK_CHANGED,
        ),
    ],
)
def test_a_run_begins_only_where_nothing_has_changed_against_it(
    changes: dict[str, Any], reason: Reason | None
) -> None:
    refusal = refusal_of(replace(WAITING, **changes))

    assert (None if refusal is None else refusal.reason) is reason
    assert refusal is None or refusal.message


def test_the_first_gate_that_is_shut_counts() -> None:
    shut = replace(
        WAITING,
        target=PAUSED,
        issue=replace(THEIRS, status=IssueState.DONE, deleted_at=NOW),
        hold=HELD,
        blockers=BLOCKERS,
    )

    assert [None if each is None else each.reason for each in (gate(shut) for gate in GATES)][
        :6
    ] == [
        Reason.AGENT_NOT_INVOKABLE,
        Reason.ISSUE_DELETED,
        Reason.ISSUE_TREE_HELD,
        Reason.ISSUE_DEPENDENCIES_BLOCKED,
        Reason.ISSUE_CLOSED,
        Reason.ISSUE_ASSIGNEE_CHANGED,
    ]
