"""What becomes of a wish: the first refusal in order, who answers, and what it may pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from tests.unit.heartbeat.made import AGENT, FACTS, ISSUE, NOW, TARGET, WISH, WORKSPACE, wish

from reveille_heartbeat.domain.enqueue import (
    DECISIONS,
    Comment,
    Facts,
    from_a_person,
    judge,
    notes,
    responsible_user,
    verified_comment,
)
from reveille_heartbeat.domain.obstacles import Blocker, HoldMode, HoldOver
from reveille_heartbeat.domain.placing import PlaceKind, Surroundings, place
from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import AgentState, IssueState
from reveille_heartbeat.domain.targets import Target
from reveille_heartbeat.domain.values import (
    HeartbeatPolicy,
    InvocationRule,
    Origin,
    Requester,
    RequesterKind,
    WakeupSource,
    Wish,
    WorkspaceStatus,
)
from reveille_heartbeat.domain.wakes import APPROVAL

ABOUT_ISSUE = wish(issue_id=ISSUE.issue_id)
ON_ISSUE = replace(FACTS, issue=ISSUE)
NOBODY = Origin()
MAX = Requester(RequesterKind.USER, "max")
ANN = Requester(RequesterKind.AGENT, "ann")
SYSTEM = Requester(RequesterKind.SYSTEM, "heartbeat")
HELD = HoldOver(UUID(int=70), HoldMode.PAUSE, "on leave", UUID(int=71), "ABC-7")
BLOCKER = Blocker(UUID(int=72), "ABC-8", "First this", IssueState.CANCELLED)
BY_MAX = Comment(UUID(int=80), MAX, None)
BY_ANN = Comment(UUID(int=81), ANN, UUID(int=6))
TIMER = wish(source=WakeupSource.TIMER, wake_reason="heartbeat_timer")
LOOKS = HeartbeatPolicy(timer_enabled=True, skip_timer_without_work=True)


def target(**changes: Any) -> Target:
    return replace(TARGET, agent=replace(AGENT, **changes))


PRIVATE = target(invocation_rule=InvocationRule.PRIVATE)


def comment_wake(requester: Requester = MAX, **more: Any) -> Wish:
    given: dict[str, Any] = {"comment_ids": (BY_MAX.comment_id,), "requester": requester}
    return wish(issue_id=ISSUE.issue_id, wake_reason="issue_commented", **(given | more))


@pytest.mark.parametrize(
    ("wanted", "facts"),
    [
        (WISH, FACTS),
        (ABOUT_ISSUE, ON_ISSUE),
        # An agent whose last run failed is woken like any other.
        (WISH, replace(FACTS, target=target(last_run_failed=True))),
        (TIMER, replace(FACTS, target=target(heartbeat=LOOKS))),
        # Without the setting a timer wakes whatever there is to do; with a task it is not generic.
        (
            TIMER,
            replace(FACTS, target=target(heartbeat=HeartbeatPolicy(True)), has_work=False),
        ),
        (
            replace(TIMER, task_key="nightly"),
            replace(FACTS, target=target(heartbeat=LOOKS), has_work=False),
        ),
        (
            replace(TIMER, issue_id=ISSUE.issue_id),
            replace(ON_ISSUE, target=target(heartbeat=LOOKS), has_work=False),
        ),
        (comment_wake(), replace(ON_ISSUE, hold=HELD, comments=(BY_MAX,))),
        # Heartbeat's own wishes, and what gives an agent its own, ask nobody's leave.
        (
            replace(ABOUT_ISSUE, wake_reason="issue_blockers_resolved", requester=SYSTEM),
            replace(ON_ISSUE, target=PRIVATE),
        ),
        (
            replace(ABOUT_ISSUE, wake_reason="issue_tree_restored", requester=MAX),
            replace(ON_ISSUE, target=PRIVATE),
        ),
        (
            replace(ABOUT_ISSUE, context={APPROVAL: {}}, requester=MAX),
            replace(ON_ISSUE, target=PRIVATE),
        ),
        (comment_wake(SYSTEM), replace(ON_ISSUE, hold=HELD, comments=(BY_ANN,))),
        (
            comment_wake(ANN),
            replace(ON_ISSUE, issue=replace(ISSUE, status=IssueState.DONE), comments=(BY_ANN,)),
        ),
        (
            wish(source=WakeupSource.ON_DEMAND, requester=MAX),
            replace(
                FACTS,
                target=target(invocation_rule=InvocationRule.MEMBERS, invocation_user_ids=("max",)),
            ),
        ),
    ],
)
def test_a_wish_that_nothing_speaks_against_may_start_work(wanted: Wish, facts: Facts) -> None:
    assert judge(wanted, facts) is None


REFUSED: list[tuple[Wish, Facts, Reason]] = [
    (WISH, replace(FACTS, suppressed=True), Reason.SCHEDULING_SUPPRESSED),
    (WISH, replace(FACTS, workspace=None), Reason.WORKSPACE_INACTIVE),
    (
        WISH,
        replace(FACTS, workspace=replace(WORKSPACE, status=WorkspaceStatus.PAUSED)),
        Reason.WORKSPACE_INACTIVE,
    ),
    (WISH, replace(FACTS, target=Target(None)), Reason.AGENT_NOT_FOUND),
    (WISH, replace(FACTS, target=target(workspace_id=uuid4())), Reason.AGENT_NOT_FOUND),
    (wish(squad_id=UUID(int=30)), FACTS, Reason.AGENT_NOT_FOUND),
    (
        WISH,
        replace(FACTS, target=target(state=AgentState.PAUSED)),
        Reason.AGENT_NOT_INVOKABLE,
    ),
    (
        WISH,
        replace(FACTS, target=target(manager_agent_id=UUID(int=99))),
        Reason.AGENT_NOT_INVOKABLE,
    ),
    (
        wish(source=WakeupSource.ON_DEMAND, requester=MAX),
        replace(FACTS, target=target(invocation_rule=InvocationRule.PRIVATE)),
        Reason.INVOCATION_NOT_ALLOWED,
    ),
    # A decision's wake that somebody else asks for again is that person's.
    (
        wish(source=WakeupSource.ON_DEMAND, context={APPROVAL: {}}, requester=MAX),
        replace(FACTS, target=PRIVATE),
        Reason.INVOCATION_NOT_ALLOWED,
    ),
    # However a person wakes it: by a comment, or by moving its issue.
    (
        comment_wake(),
        replace(ON_ISSUE, target=PRIVATE, comments=(BY_MAX,)),
        Reason.INVOCATION_NOT_ALLOWED,
    ),
    (
        replace(ABOUT_ISSUE, wake_reason="execution_changes_requested", requester=MAX),
        replace(ON_ISSUE, target=PRIVATE),
        Reason.INVOCATION_NOT_ALLOWED,
    ),
    (TIMER, FACTS, Reason.TIMER_DISABLED),
    (
        WISH,
        replace(FACTS, target=target(heartbeat=HeartbeatPolicy(wake_on_demand=False))),
        Reason.WAKE_ON_DEMAND_DISABLED,
    ),
    (
        TIMER,
        replace(FACTS, target=target(heartbeat=LOOKS), has_work=False),
        Reason.NO_ACTIONABLE_WORK,
    ),
    (WISH, replace(FACTS, target=target(runtime_id=None)), Reason.AGENT_RUNTIME_REQUIRED),
    (ABOUT_ISSUE, FACTS, Reason.ISSUE_NOT_FOUND),
    (wish(issue_identifier="ABC-99"), FACTS, Reason.ISSUE_NOT_FOUND),
    (
        ABOUT_ISSUE,
        replace(FACTS, issue=replace(ISSUE, workspace_id=uuid4())),
        Reason.ISSUE_NOT_FOUND,
    ),
    (ABOUT_ISSUE, replace(FACTS, issue=replace(ISSUE, deleted_at=NOW)), Reason.ISSUE_NOT_FOUND),
    (
        ABOUT_ISSUE,
        replace(FACTS, issue=replace(ISSUE, status=IssueState.DONE)),
        Reason.ISSUE_CLOSED,
    ),
    (ABOUT_ISSUE, replace(ON_ISSUE, hold=HELD), Reason.ISSUE_TREE_HELD),
    # Somebody else's comment, or none of this issue, opens no door.
    (comment_wake(), replace(ON_ISSUE, hold=HELD, comments=(BY_ANN,)), Reason.ISSUE_TREE_HELD),
    (comment_wake(), replace(ON_ISSUE, hold=HELD), Reason.ISSUE_TREE_HELD),
    (
        replace(comment_wake(), wake_reason="issue_assigned"),
        replace(ON_ISSUE, hold=HELD, comments=(BY_MAX,)),
        Reason.ISSUE_TREE_HELD,
    ),
    (
        wish(origin=NOBODY),
        replace(FACTS, workspace=replace(WORKSPACE, default_responsible_user_id="")),
        Reason.RESPONSIBLE_USER_UNRESOLVED,
    ),
]


@pytest.mark.parametrize(("wanted", "facts", "reason"), REFUSED)
def test_each_rule_refuses_with_its_own_reason(wanted: Wish, facts: Facts, reason: Reason) -> None:
    refusal = judge(wanted, facts)

    assert refusal is not None
    assert refusal.reason is reason
    assert refusal.message


def test_the_first_refusal_in_order_counts() -> None:
    agent = replace(
        AGENT, state=AgentState.PAUSED, heartbeat=LOOKS, runtime_id=None, workspace_id=uuid4()
    )
    everything = replace(
        FACTS,
        suppressed=True,
        workspace=None,
        target=Target(agent),
        issue=replace(ISSUE, status=IssueState.DONE, deleted_at=NOW, responsible_user_id=""),
        hold=HELD,
        has_work=False,
    )
    wanted = replace(TIMER, issue_identifier="ABC-1", origin=NOBODY)
    refusals = [decision(wanted, everything) for decision in DECISIONS]

    assert judge(wanted, everything) == refusals[0]
    assert [None if each is None else each.reason for each in refusals] == [
        Reason.SCHEDULING_SUPPRESSED,
        Reason.WORKSPACE_INACTIVE,
        Reason.AGENT_NOT_FOUND,
        Reason.AGENT_NOT_INVOKABLE,
        None,
        None,
        None,
        Reason.AGENT_RUNTIME_REQUIRED,
        Reason.ISSUE_NOT_FOUND,
        Reason.ISSUE_CLOSED,
        Reason.ISSUE_TREE_HELD,
        Reason.RESPONSIBLE_USER_UNRESOLVED,
    ]


@pytest.mark.parametrize(
    ("changes", "facts", "answers"),
    [
        (
            {
                "origin": Origin(accountable_user_id="a", originator_user_id="o"),
                "source": WakeupSource.ON_DEMAND,
            },
            ON_ISSUE,
            "a",
        ),
        (
            {"origin": Origin(originator_user_id="o"), "source": WakeupSource.ON_DEMAND},
            ON_ISSUE,
            "o",
        ),
        ({"origin": NOBODY, "requester": MAX, "source": WakeupSource.ON_DEMAND}, FACTS, "max"),
        # A person who only says something on an issue does not take it over.
        (
            {
                "origin": NOBODY,
                "requester": MAX,
                "source": WakeupSource.ON_DEMAND,
                "wake_reason": "issue_commented",
            },
            ON_ISSUE,
            "issue owner",
        ),
        ({"origin": Origin(originator_user_id="o")}, ON_ISSUE, "issue owner"),
        (
            {"origin": Origin(originator_user_id="o")},
            replace(
                ON_ISSUE,
                issue=replace(ISSUE, responsible_user_id=""),
                parent_responsible_user_id="parent owner",
            ),
            "parent owner",
        ),
        (
            {"origin": Origin(originator_user_id="o")},
            replace(ON_ISSUE, issue=replace(ISSUE, responsible_user_id="")),
            "default",
        ),
        ({"origin": Origin(originator_user_id="o")}, FACTS, "o"),
        ({"origin": NOBODY}, FACTS, "default"),
        ({"origin": NOBODY}, replace(FACTS, workspace=None), ""),
    ],
)
def test_who_answers_is_the_first_that_can_be_named(
    changes: dict[str, Any], facts: Facts, answers: str
) -> None:
    assert responsible_user(wish(**changes), facts) == answers


def test_what_passes_is_told_why_it_was_woken_nevertheless() -> None:
    facts = replace(ON_ISSUE, hold=HELD, blockers=(BLOCKER,), comments=(BY_MAX,))

    told = notes(comment_wake(), facts)
    assert told["tree_hold_interaction"] is True
    assert told["tree_hold"]["root_identifier"] == "ABC-7"
    assert told["dependency_blocked_interaction"] is True
    assert told["unresolved_blocker_count"] == 1
    assert told["unresolved_blockers"][0]["identifier"] == "ABC-8"
    assert notes(ABOUT_ISSUE, facts) == {}


def test_a_decision_reaches_the_agent_that_asked_through_holds_and_blockers() -> None:
    facts = replace(ON_ISSUE, hold=HELD, blockers=(BLOCKER,))
    said = replace(ABOUT_ISSUE, wake_reason="approval_approved")
    decided = replace(said, context={APPROVAL: {"status": "approved"}})

    assert judge(decided, facts) is None
    assert place(decided, facts, Surroundings((), issue_has_run=False)).kind is PlaceKind.QUEUE
    assert notes(decided, facts).keys() >= {"tree_hold_interaction", "unresolved_blockers"}
    # Only heartbeat tells of decisions: naming one is not enough.
    refusal = judge(said, facts)
    assert refusal is not None
    assert refusal.reason is Reason.ISSUE_TREE_HELD


def test_a_verified_comment_keeps_its_right_where_it_joined_another_wake() -> None:
    facts = replace(ON_ISSUE, hold=HELD, comments=(BY_MAX, BY_ANN))
    merged = replace(
        ABOUT_ISSUE, wake_reason="issue_assigned", context=notes(comment_wake(), facts)
    )

    assert verified_comment(merged, facts)
    assert judge(merged, facts) is None


@pytest.mark.parametrize(
    ("wanted", "comments", "waits"),
    [
        (comment_wake(), (BY_MAX,), True),
        (comment_wake(ANN), (BY_ANN,), False),
        (wish(source=WakeupSource.ON_DEMAND, requester=MAX), (), True),
        (wish(source=WakeupSource.ON_DEMAND), (), False),
        (wish(requester=MAX), (), False),
    ],
)
def test_a_person_waits_where_one_has_just_spoken_or_asked(
    wanted: Wish, comments: tuple[Comment, ...], waits: bool
) -> None:
    assert from_a_person(wanted, replace(ON_ISSUE, comments=comments)) is waits
