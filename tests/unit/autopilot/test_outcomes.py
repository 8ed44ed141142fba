"""What answers and events mean for a run, and that its one outcome stands."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from tests.unit.autopilot.builders import NOON, a_run

from reveille_autopilot.domain.deadlines import FIRST_LOOK, LATE, dispatch_deadline
from reveille_autopilot.domain.outcomes import (
    IssueEnd,
    IssueFacts,
    Step,
    WakeFacts,
    WakeState,
    apply,
    apply_all,
    cancelled_downstream,
    enqueued,
    given_up,
    hands_back_slot,
    issue_changed,
    issue_made,
    wakeup_settled,
    withdrawn,
)
from reveille_autopilot.domain.states import (
    RUN_INITIAL,
    RUN_OPEN,
    RUN_TERMINAL,
    RUN_TRANSITIONS,
    ExecutionMode,
    RunSource,
    RunState,
    may_move,
)
from reveille_runtime.interceptors.deadline import DEFAULT_TIMEOUT

WAKEUP, ISSUE = UUID(int=10), UUID(int=11)
RUN_ONLY, CREATE_ISSUE = ExecutionMode.RUN_ONLY, ExecutionMode.CREATE_ISSUE
OUTCOMES = {
    WakeState.COMPLETED: RunState.COMPLETED,
    WakeState.FAILED: RunState.FAILED,
    WakeState.SKIPPED: RunState.SKIPPED,
    WakeState.CANCELLED: RunState.CANCELLED,
}


def test_terminal_is_final() -> None:
    assert {RunState.COMPLETED, RunState.FAILED, RunState.SKIPPED, RunState.CANCELLED} == (
        RUN_TERMINAL
    )
    assert set(RunState) >= RUN_INITIAL
    assert not any(
        may_move(before, after) for before, after in itertools.product(RUN_TERMINAL, RunState)
    )
    # From every open state there is a way out.
    assert all(RUN_TRANSITIONS[state] & RUN_TERMINAL for state in RUN_OPEN)


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (WakeState.QUEUED, RunState.RUNNING),
        (WakeState.DEFERRED, RunState.RUNNING),
        (WakeState.CLAIMED, RunState.RUNNING),
        (WakeState.COALESCED, RunState.RUNNING),
        (WakeState.SKIPPED, RunState.SKIPPED),
        (WakeState.CANCELLED, RunState.CANCELLED),
        # Ended since: the event is on its way with the result, and is looked for soon.
        (WakeState.COMPLETED, RunState.RUNNING),
        (WakeState.FAILED, RunState.RUNNING),
    ],
)
def test_the_answer_to_an_enqueue(answer: WakeState, state: RunState) -> None:
    step = enqueued(WakeFacts(answer, WAKEUP, reason="runtime_offline"))
    assert step.state is state
    assert step.wakeup_id == WAKEUP
    assert step.expect_soon is (answer in {WakeState.COMPLETED, WakeState.FAILED})
    if answer is WakeState.SKIPPED:
        assert step.reason == "runtime_offline"


def test_the_answer_to_an_issue() -> None:
    refused = WakeFacts(WakeState.SKIPPED, WAKEUP, reason="agent_not_invokable")
    step = issue_made(IssueFacts(ISSUE), refused)
    # The issue stays, and with it the run, until somebody ends the issue.
    assert (step.state, step.issue_id, step.wakeup_id) == (
        RunState.ISSUE_CREATED,
        ISSUE,
        WAKEUP,
    )
    assert issue_made(IssueFacts(ISSUE, IssueEnd.DONE), None).expect_soon
    assert issue_made(None, None).state is RunState.CANCELLED


@pytest.mark.parametrize("state", list(WakeState))
def test_a_wakeup_is_the_outcome_only_of_a_run_that_just_wakes(state: WakeState) -> None:
    facts = WakeFacts(state, WAKEUP, reason="r", message="m", result=b"{}")
    step = wakeup_settled(RUN_ONLY, False, facts)
    assert step.state is OUTCOMES.get(state)
    assert (step.wakeup_id, step.result) == (WAKEUP, b"{}")

    with_issue = wakeup_settled(CREATE_ISSUE, True, facts)
    assert with_issue.state is None
    assert (with_issue.wakeup_id, with_issue.result) == (WAKEUP, b"{}")
    before_issue = wakeup_settled(CREATE_ISSUE, False, facts)
    cancelled = state is WakeState.CANCELLED
    assert before_issue.state is (RunState.CANCELLED if cancelled else None)


@pytest.mark.parametrize(
    ("end", "state"),
    [
        (None, RunState.ISSUE_CREATED),
        (IssueEnd.DONE, RunState.COMPLETED),
        (IssueEnd.CANCELLED, RunState.CANCELLED),
        (IssueEnd.GONE, RunState.FAILED),
    ],
)
def test_an_issue_is_the_outcome_of_the_run_that_made_it(
    end: IssueEnd | None, state: RunState
) -> None:
    assert issue_changed(CREATE_ISSUE, IssueFacts(ISSUE, end)).state is state
    assert issue_changed(RUN_ONLY, IssueFacts(ISSUE, end)) == Step()


@pytest.mark.parametrize("judge", [cancelled_downstream, given_up])
@pytest.mark.parametrize("mode", list(ExecutionMode))
def test_calling_off_ends_what_is_recorded_or_cancelled_and_nothing_else(
    judge: object, mode: ExecutionMode
) -> None:
    assert callable(judge)
    outcome = RunState.FAILED if judge is given_up else RunState.CANCELLED
    assert judge(mode, WakeFacts(WakeState.QUEUED), recorded=True).state is outcome
    cancelled = judge(mode, WakeFacts(WakeState.CANCELLED, WAKEUP), recorded=False)
    assert (cancelled.state, cancelled.wakeup_id) == (outcome, WAKEUP)
    for state in (WakeState.COMPLETED, WakeState.FAILED, WakeState.CLAIMED):
        step = judge(mode, WakeFacts(state, WAKEUP, ISSUE), recorded=False)
        assert step.state in {RunState.RUNNING, RunState.ISSUE_CREATED}
        assert step.expect_soon


def test_a_wakeup_refused_long_ago_is_the_outcome_of_a_run_called_off() -> None:
    facts = WakeFacts(WakeState.SKIPPED, WAKEUP, reason="runtime_offline")
    assert given_up(RUN_ONLY, facts, recorded=False).state is RunState.SKIPPED
    assert given_up(CREATE_ISSUE, facts, recorded=False).state is None


@pytest.mark.parametrize("state", sorted(RUN_OPEN - {RunState.BUFFERED}))
def test_every_open_run_takes_its_outcome(state: RunState) -> None:
    run = a_run(state=state, next_attempt_at=NOON)
    written = apply(run, Step(RunState.COMPLETED, result=b"1", wakeup_id=WAKEUP))
    assert (written.ended, written.changed) == (True, True)
    assert (written.run.state, written.run.result) == (RunState.COMPLETED, b"1")


@pytest.mark.parametrize("state", sorted(RUN_TERMINAL))
@pytest.mark.parametrize("later", list(RunState))
def test_an_outcome_stands_and_only_gaps_are_filled(state: RunState, later: RunState) -> None:
    run = a_run(state=state, reason="first", message="first", finished_at=NOON)
    step = Step(later, "second", "second", WAKEUP, ISSUE, b"late")
    written = apply(run, step)
    assert not written.ended
    after = written.run
    assert (after.state, after.reason, after.message) == (state, "first", "first")
    assert (after.wakeup_id, after.issue_id, after.result) == (WAKEUP, ISSUE, b"late")
    again = apply(after, Step(later, wakeup_id=uuid4(), result=b"later still"))
    assert not again.changed


@pytest.mark.parametrize("state", [RunState.PENDING, RunState.BUFFERED])
def test_a_purged_delivery_ends_its_run_only_before_its_body_came(state: RunState) -> None:
    waiting = a_run(state=state, payload_ready=False)
    ended = apply(waiting, withdrawn())

    assert (ended.run.state, ended.run.reason) == (RunState.CANCELLED, "purged")
    assert hands_back_slot(ended.run)
    assert not apply(replace(waiting, payload_ready=True), withdrawn()).changed
    # Who asked for its end before decides why it ended, and that there is no other.
    wanted = replace(waiting, cancel_requested_at=NOON, cancel_requested_by="ada")
    assert not hands_back_slot(apply(wanted, withdrawn()).run)


def test_a_refused_wakeup_does_not_end_a_run_with_an_issue() -> None:
    run = a_run(state=RunState.ISSUE_CREATED, execution_mode=CREATE_ISSUE)
    assert apply(run, Step(RunState.SKIPPED)).run.state is RunState.ISSUE_CREATED


def test_the_outcome_does_not_depend_on_the_order_of_what_arrives() -> None:
    link = enqueued(WakeFacts(WakeState.QUEUED, WAKEUP))
    outcome = wakeup_settled(RUN_ONLY, False, WakeFacts(WakeState.FAILED, WAKEUP, reason="r"))
    keeps = wakeup_settled(CREATE_ISSUE, True, WakeFacts(WakeState.CLAIMED, WAKEUP, result=b"1"))
    ends = set()
    for steps in itertools.permutations([link, outcome, keeps, outcome, link]):
        written = apply_all(a_run(), steps)
        assert written.ended
        ends.add((written.run.state, written.run.reason, written.run.wakeup_id))
    assert ends == {(RunState.FAILED, "r", WAKEUP)}


def test_deadlines() -> None:
    planned = datetime(2026, 3, 2, 9, tzinfo=UTC)
    soon = planned + timedelta(minutes=1)
    assert dispatch_deadline(RunSource.SCHEDULE, planned, soon) == planned + timedelta(hours=1)
    late = planned + timedelta(hours=2)
    # However late it was admitted, it is tried anew after a first call that hung.
    assert dispatch_deadline(RunSource.SCHEDULE, planned, late) == late + LATE
    assert timedelta(seconds=DEFAULT_TIMEOUT) * 3 + FIRST_LOOK < LATE
    for source in (RunSource.WEBHOOK, RunSource.MANUAL, RunSource.API):
        assert dispatch_deadline(source, None, soon) == soon + timedelta(hours=24)
