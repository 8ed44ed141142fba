"""Rules of issues: who may own them, whom changes concern, what holds find and give back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from tests.unit.heartbeat.made import AGENT, ISSUE, NOW, WAKEUP

from reveille_heartbeat.domain.checkout import READY, Claim, begins_work, claim
from reveille_heartbeat.domain.issue_changes import (
    IssueWake,
    may_be_woken,
    void_after,
    wakes_after,
    wakes_when_free,
    wakes_when_whole,
)
from reveille_heartbeat.domain.issue_edits import IssueChange, differing
from reveille_heartbeat.domain.obstacles import HoldMode, HoldOver
from reveille_heartbeat.domain.queue import ready_rank
from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import IssueState, may_move
from reveille_heartbeat.domain.tree import Member, Placed, member_found, restores
from reveille_heartbeat.domain.values import WakeupSource
from reveille_heartbeat.domain.wakes import APPROVAL, COMMENT_REASON, WakeReason

S, W = IssueState, WakeReason
MINE, OTHER, REVIEWER = AGENT.agent_id, UUID(int=20), UUID(int=21)
RUN, PAST, LIVE = UUID(int=30), UUID(int=31), UUID(int=32)
OURS = replace(ISSUE, assignee_agent_id=MINE)
SAID = {COMMENT_REASON: W.ISSUE_COMMENTED.value}
DECIDED = {APPROVAL: {"decision": "approved"}}


@pytest.mark.parametrize(
    ("issue", "expected"),
    [
        ({}, Claim.TAKE),
        ({"status": S.BACKLOG}, Claim.TAKE),
        ({"status": S.BLOCKED, "assignee_agent_id": None}, Claim.TAKE),
        ({"status": S.IN_REVIEW}, Claim.CONFLICT),
        ({"status": S.DONE}, Claim.CONFLICT),
        ({"assignee_agent_id": OTHER}, Claim.CONFLICT),
        ({"assignee_agent_id": None, "assignee_user_id": "ann"}, Claim.CONFLICT),
        # A lock or an owner counts while its attempt lives, and not longer.
        ({"execution_run_id": LIVE}, Claim.CONFLICT),
        ({"checkout_run_id": LIVE}, Claim.CONFLICT),
        ({"execution_run_id": PAST, "checkout_run_id": PAST}, Claim.TAKE),
        ({"execution_run_id": RUN}, Claim.TAKE),
        # Work that has begun: never owned, owned by an attempt that is over, by this one.
        ({"status": S.IN_PROGRESS}, Claim.ADOPT),
        ({"status": S.IN_PROGRESS, "checkout_run_id": PAST}, Claim.ADOPT),
        ({"status": S.IN_PROGRESS, "checkout_run_id": RUN}, Claim.ADOPT),
        (
            {"status": S.IN_PROGRESS, "checkout_run_id": RUN, "execution_run_id": RUN},
            Claim.OWNED,
        ),
        ({"status": S.IN_PROGRESS, "checkout_run_id": LIVE}, Claim.CONFLICT),
        ({"status": S.IN_PROGRESS, "assignee_agent_id": None}, Claim.CONFLICT),
    ],
)
def test_an_owner_counts_while_its_attempt_lives(issue: dict[str, Any], expected: Claim) -> None:
    assert claim(replace(OURS, **issue), RUN, MINE, READY, {LIVE, RUN}) is expected


def test_the_caller_may_expect_another_status() -> None:
    reviewed = replace(OURS, status=S.IN_REVIEW)
    assert claim(reviewed, RUN, MINE, {S.IN_REVIEW}, set()) is Claim.TAKE
    assert claim(OURS, RUN, MINE, {S.IN_REVIEW}, set()) is Claim.CONFLICT


@pytest.mark.parametrize(
    ("status", "agent", "reason", "begins"),
    [
        (S.TODO, MINE, W.ISSUE_ASSIGNED, True),
        (S.BLOCKED, MINE, W.ISSUE_BLOCKERS_RESOLVED, True),
        (S.IN_PROGRESS, MINE, "autopilot_run", True),
        (S.TODO, MINE, W.EXECUTION_CHANGES_REQUESTED, True),
        (S.TODO, MINE, W.ISSUE_COMMENT_MENTIONED, False),
        (S.TODO, MINE, W.EXECUTION_REVIEW_REQUESTED, False),
        (S.TODO, OTHER, W.ISSUE_ASSIGNED, False),
        (S.IN_REVIEW, MINE, W.ISSUE_COMMENTED, False),
        (S.DONE, MINE, W.ISSUE_COMMENTED, False),
    ],
)
def test_an_attempt_checks_out_what_it_was_woken_to_work_on(
    status: IssueState, agent: UUID, reason: str, begins: bool
) -> None:
    assert begins_work(replace(OURS, status=status), agent, reason) is begins


@pytest.mark.parametrize(
    ("before", "after", "by", "expected"),
    [
        # Assignment: told to the new one, whoever did it but itself; not while it is for later.
        ({"assignee_agent_id": None}, {}, None, [(MINE, "assignment", W.ISSUE_ASSIGNED)]),
        ({"assignee_agent_id": OTHER}, {}, OTHER, [(MINE, "assignment", W.ISSUE_ASSIGNED)]),
        ({"assignee_agent_id": None}, {}, MINE, []),
        ({"assignee_agent_id": None}, {"status": S.BACKLOG}, None, []),
        ({"assignee_agent_id": None}, {"status": S.DONE}, None, []),
        # A move by somebody else to where work is to be done.
        ({"status": S.BACKLOG}, {}, None, [(MINE, "automation", W.ISSUE_STATUS_CHANGED)]),
        ({"status": S.DONE}, {}, None, [(MINE, "automation", W.ISSUE_STATUS_CHANGED)]),
        ({"status": S.BLOCKED}, {}, MINE, []),
        ({}, {"status": S.IN_PROGRESS}, None, []),
        ({}, {"title": "Other"}, None, []),
        # A review, asked of its judge once, and its answer.
        (
            {"status": S.IN_PROGRESS, "reviewer_agent_id": REVIEWER},
            {"status": S.IN_REVIEW, "reviewer_agent_id": REVIEWER},
            MINE,
            [(REVIEWER, "automation", W.EXECUTION_REVIEW_REQUESTED)],
        ),
        (
            {"status": S.IN_REVIEW},
            {"status": S.IN_REVIEW, "reviewer_agent_id": REVIEWER},
            None,
            [(REVIEWER, "automation", W.EXECUTION_REVIEW_REQUESTED)],
        ),
        (
            {"status": S.IN_REVIEW, "reviewer_agent_id": REVIEWER},
            {"status": S.IN_REVIEW, "reviewer_agent_id": REVIEWER, "priority": 0},
            None,
            [],
        ),
        ({"status": S.IN_PROGRESS}, {"status": S.IN_REVIEW}, MINE, []),
        (
            {"status": S.IN_REVIEW, "reviewer_agent_id": REVIEWER},
            {"status": S.IN_PROGRESS, "reviewer_agent_id": REVIEWER},
            REVIEWER,
            [(MINE, "automation", W.EXECUTION_CHANGES_REQUESTED)],
        ),
        ({"status": S.IN_REVIEW}, {}, None, [(MINE, "automation", W.EXECUTION_CHANGES_REQUESTED)]),
        ({"status": S.IN_REVIEW}, {"status": S.IN_PROGRESS}, MINE, []),
        ({"status": S.IN_REVIEW}, {"status": S.DONE}, REVIEWER, []),
    ],
)
def test_a_change_wakes_whom_it_concerns(
    before: dict[str, Any],
    after: dict[str, Any],
    by: UUID | None,
    expected: list[tuple[UUID, str, WakeReason]],
) -> None:
    woken = wakes_after(replace(OURS, **before), replace(OURS, **after), by_agent=by)
    assert woken == [
        IssueWake(agent, WakeupSource(source), reason) for agent, source, reason in expected
    ]


@pytest.mark.parametrize(
    ("agent", "reason", "context", "changes", "expected"),
    [
        (MINE, W.ISSUE_ASSIGNED, {}, {"assignee_agent_id": OTHER}, Reason.ISSUE_ASSIGNEE_CHANGED),
        (MINE, "autopilot_run", {}, {"assignee_agent_id": None}, Reason.ISSUE_ASSIGNEE_CHANGED),
        # What an agent is told reaches it, also where it joined a wake of another reason.
        (MINE, W.ISSUE_COMMENTED, SAID, {"assignee_agent_id": OTHER}, None),
        (MINE, W.ISSUE_ASSIGNED, SAID, {"assignee_agent_id": OTHER}, None),
        (MINE, W.APPROVAL_APPROVED, DECIDED, {"assignee_agent_id": OTHER}, None),
        (MINE, W.ISSUE_ASSIGNED, DECIDED, {"assignee_agent_id": OTHER}, None),
        (REVIEWER, W.EXECUTION_REVIEW_REQUESTED, SAID, {"reviewer_agent_id": OTHER}, None),
        (MINE, W.ISSUE_ASSIGNED, {}, {"title": "Other"}, None),
        (OTHER, W.ISSUE_ASSIGNED, {}, {"assignee_agent_id": OTHER}, None),
        (
            REVIEWER,
            W.EXECUTION_REVIEW_REQUESTED,
            {},
            {"reviewer_agent_id": OTHER},
            Reason.ISSUE_REVIEWER_CHANGED,
        ),
        (REVIEWER, W.EXECUTION_REVIEW_REQUESTED, {}, {"assignee_agent_id": OTHER}, None),
    ],
)
def test_a_wake_is_void_once_the_work_is_anothers(
    agent: UUID,
    reason: str,
    context: dict[str, Any],
    changes: dict[str, Any],
    expected: Reason | None,
) -> None:
    before = replace(OURS, reviewer_agent_id=REVIEWER)
    wakeup = replace(WAKEUP, agent_id=agent, wake_reason=reason, context=context)
    assert void_after(before, replace(before, **changes), wakeup) is expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"status": S.BLOCKED}, True),
        ({"status": S.BACKLOG}, False),
        ({"status": S.CANCELLED}, False),
        ({"assignee_agent_id": None}, False),
        ({"deleted_at": NOW}, False),
    ],
)
def test_work_goes_on_by_itself_where_an_agent_has_it(
    changes: dict[str, Any], expected: bool
) -> None:
    assert may_be_woken(replace(OURS, **changes)) is expected


@pytest.mark.parametrize(
    ("changes", "woken"),
    [
        ({}, [MINE]),
        # Whoever judges it was not to be asked while it was kept.
        ({"status": S.IN_REVIEW}, [MINE, REVIEWER]),
        ({"status": S.IN_REVIEW, "assignee_agent_id": None}, [REVIEWER]),
        ({"status": S.IN_REVIEW, "reviewer_agent_id": None}, [MINE]),
        ({"status": S.IN_REVIEW, "deleted_at": NOW}, []),
        ({"status": S.DONE}, []),
    ],
)
def test_what_comes_free_goes_on_with_its_agent_or_its_judge(
    changes: dict[str, Any], woken: list[UUID]
) -> None:
    issue = replace(OURS, **({"reviewer_agent_id": REVIEWER} | changes))
    wakes = wakes_when_free(issue, W.ISSUE_BLOCKERS_RESOLVED)

    assert [each.agent_id for each in wakes] == woken
    asked = {each.reason for each in wakes if each.agent_id == REVIEWER}
    assert asked <= {W.EXECUTION_REVIEW_REQUESTED}
    # Parts that have ended are news for its agent alone.
    assert [each.agent_id for each in wakes_when_whole(issue)] == [
        each for each in woken if each == MINE
    ]


def test_an_ended_issue_is_opened_by_being_to_do() -> None:
    opened = {target for target in S if may_move(S.CANCELLED, target)}
    assert opened == {target for target in S if may_move(S.DONE, target)} == {S.TODO}
    assert may_move(S.IN_REVIEW, S.IN_PROGRESS)
    assert not may_move(S.IN_REVIEW, S.BACKLOG)


def test_what_waits_for_others_comes_last() -> None:
    ranks = [ready_rank(S.IN_PROGRESS), ready_rank(S.TODO), ready_rank(None)]
    assert [*ranks, ready_rank(S.BLOCKED)] == [0, 1, 2, 3]
    assert ready_rank(S.IN_PROGRESS, waits=True) == 3


def test_a_new_owner_takes_the_others_place() -> None:
    person = replace(ISSUE, assignee_agent_id=None, assignee_user_id="ann")
    given = IssueChange({"assignee_agent_id": OTHER}).applied_to(person)
    assert (given.assignee_agent_id, given.assignee_user_id) == (OTHER, "")
    taken = IssueChange({"assignee_user_id": "ann"}).applied_to(OURS)
    assert (taken.assignee_agent_id, taken.assignee_user_id) == (None, "ann")
    cleared = IssueChange({"assignee_agent_id": None}).applied_to(person)
    assert cleared.assignee_user_id == "ann"
    assert differing(OURS, taken) == ("assignee_agent_id", "assignee_user_id")


PAUSE = HoldOver(UUID(int=40), HoldMode.PAUSE, "", UUID(int=41), "ABC-9")


@pytest.mark.parametrize(
    ("status", "mode", "over", "after", "skipped"),
    [
        (S.TODO, HoldMode.PAUSE, None, S.TODO, ""),
        (S.TODO, HoldMode.PAUSE, PAUSE, S.TODO, "already_held"),
        (S.DONE, HoldMode.PAUSE, None, S.DONE, "terminal_status"),
        (S.IN_REVIEW, HoldMode.CANCEL, None, S.CANCELLED, ""),
        (S.TODO, HoldMode.CANCEL, PAUSE, S.CANCELLED, ""),
        (S.CANCELLED, HoldMode.CANCEL, None, S.CANCELLED, "terminal_status"),
    ],
)
def test_a_hold_takes_what_it_finds_open(
    status: IssueState, mode: HoldMode, over: HoldOver | None, after: IssueState, skipped: str
) -> None:
    member = member_found(Placed(replace(ISSUE, status=status), 1), mode, over)
    assert (member.status_before, member.status_after, member.skip_reason) == (
        status,
        after,
        skipped,
    )


def test_a_release_gives_back_what_nobody_has_touched() -> None:
    member = Member(ISSUE.issue_id, 0, S.TODO, S.CANCELLED, ended_at=NOW)
    ended = replace(ISSUE, status=S.CANCELLED, ended_at=NOW)
    assert restores(member, ended)
    assert not restores(member, replace(ended, status=S.TODO, ended_at=None))
    # Opened by somebody and cancelled again: the same status, and yet another decision.
    assert not restores(member, replace(ended, ended_at=NOW + timedelta(seconds=1)))
    assert not restores(member, replace(ended, deleted_at=NOW))
