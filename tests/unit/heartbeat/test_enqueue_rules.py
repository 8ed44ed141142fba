"""What becomes of a wish: the first refusal in order, who answers, and where it goes."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID, uuid4

import pytest
from tests.unit.heartbeat.made import AGENT, ISSUE, WISH, WORKSPACE, wish

from reveille_heartbeat.domain.enqueue import (
    DECISIONS,
    Facts,
    Place,
    PlaceKind,
    Surroundings,
    judge,
    place,
    responsible_user,
)
from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import IssueState
from reveille_heartbeat.domain.values import Origin, WakeupSource, Wish

FACTS = Facts(WORKSPACE, AGENT, None)
ABOUT_ISSUE = wish(issue_id=ISSUE.issue_id)
CLOSED = replace(ISSUE, status=IssueState.DONE)
NOBODY = Origin()


def test_a_wish_that_nothing_speaks_against_may_start_work() -> None:
    assert judge(WISH, FACTS) is None
    assert judge(ABOUT_ISSUE, replace(FACTS, issue=ISSUE)) is None


@pytest.mark.parametrize(
    ("wanted", "facts", "reason"),
    [
        (WISH, replace(FACTS, workspace=None), Reason.WORKSPACE_INACTIVE),
        (WISH, replace(FACTS, agent=None), Reason.AGENT_NOT_FOUND),
        (
            WISH,
            replace(FACTS, agent=replace(AGENT, workspace_id=uuid4())),
            Reason.AGENT_NOT_FOUND,
        ),
        (
            WISH,
            replace(FACTS, agent=replace(AGENT, runtime_id=None)),
            Reason.AGENT_RUNTIME_REQUIRED,
        ),
        (ABOUT_ISSUE, FACTS, Reason.ISSUE_NOT_FOUND),
        (
            ABOUT_ISSUE,
            replace(FACTS, issue=replace(ISSUE, workspace_id=uuid4())),
            Reason.ISSUE_NOT_FOUND,
        ),
        (ABOUT_ISSUE, replace(FACTS, issue=CLOSED), Reason.ISSUE_CLOSED),
        (
            wish(origin=NOBODY),
            replace(FACTS, workspace=replace(WORKSPACE, default_responsible_user_id="")),
            Reason.RESPONSIBLE_USER_UNRESOLVED,
        ),
    ],
)
def test_each_rule_refuses_with_its_own_reason(wanted: Wish, facts: Facts, reason: Reason) -> None:
    refusal = judge(wanted, facts)

    assert refusal is not None
    assert refusal.reason is reason
    assert refusal.message


def test_the_first_refusal_in_order_counts() -> None:
    nothing = Facts(None, None, CLOSED)
    order = []
    refusal = judge(wish(issue_id=ISSUE.issue_id, origin=NOBODY), nothing)
    assert refusal is not None
    assert refusal.reason is Reason.WORKSPACE_INACTIVE
    for decision in DECISIONS:
        found = decision(wish(issue_id=ISSUE.issue_id, origin=NOBODY), nothing)
        order.append(None if found is None else found.reason)
    assert order == [
        Reason.WORKSPACE_INACTIVE,
        Reason.AGENT_NOT_FOUND,
        None,
        None,
        Reason.ISSUE_CLOSED,
        None,
    ]


@pytest.mark.parametrize(
    ("origin", "source", "with_issue", "answers"),
    [
        (Origin(accountable_user_id="a", originator_user_id="o"), "on_demand", True, "a"),
        (Origin(originator_user_id="o"), "on_demand", True, "o"),
        (Origin(originator_user_id="o"), "automation", True, "issue owner"),
        (Origin(), "automation", False, "default"),
    ],
)
def test_who_answers_is_the_first_that_can_be_named(
    origin: Origin, source: str, with_issue: bool, answers: str
) -> None:
    facts = replace(FACTS, issue=ISSUE if with_issue else None)

    assert responsible_user(wish(origin=origin, source=WakeupSource(source)), facts) == answers


OTHER = UUID(int=99)
KEYED = wish(origin=Origin(occurrence_key="webhook:1"), issue_id=ISSUE.issue_id)


@pytest.mark.parametrize(
    ("wanted", "around", "where"),
    [
        (WISH, Surroundings(None, issue_has_run=False), Place(PlaceKind.QUEUE)),
        (WISH, Surroundings(OTHER, issue_has_run=False), Place(PlaceKind.JOIN, OTHER)),
        (ABOUT_ISSUE, Surroundings(OTHER, issue_has_run=True), Place(PlaceKind.JOIN, OTHER)),
        (ABOUT_ISSUE, Surroundings(None, issue_has_run=True), Place(PlaceKind.DEFER)),
        (ABOUT_ISSUE, Surroundings(None, issue_has_run=False), Place(PlaceKind.QUEUE)),
        (KEYED, Surroundings(OTHER, issue_has_run=True), Place(PlaceKind.QUEUE)),
    ],
)
def test_where_a_wish_goes(wanted: Wish, around: Surroundings, where: Place) -> None:
    assert place(wanted, around) == where
