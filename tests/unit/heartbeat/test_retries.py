"""What follows an attempt: how often each kind of failure is repeated, when, and what ends it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.unit.heartbeat.made import NOW

from reveille_heartbeat.domain.followup import Ended, Retry, Settle, comment_after, next_step
from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.retries import (
    LADDER,
    LONGEST_PAUSE,
    MAX_ATTEMPTS,
    QUOTA_PAUSE,
    Failure,
    Ledger,
    Repeat,
    TurnLimit,
)
from reveille_heartbeat.domain.states import RunState, WakeupState
from reveille_heartbeat.domain.values import CommentStatus, FailureClass

MINUTE = timedelta(minutes=1)
FIRST = Ledger(1, {"": 1})
NO_TURNS = TurnLimit(0, timedelta(0), may_continue=False)
TURNS = TurnLimit(2, timedelta(seconds=1), may_continue=True)


def after(**repeats: int) -> Ledger:
    return Ledger(1 + sum(repeats.values()), {"": 1, **repeats})


def step_after(
    failure_class: FailureClass,
    ledger: Ledger = FIRST,
    *,
    turns: TurnLimit = NO_TURNS,
    not_before: datetime | None = None,
    jitter: float = 0.5,
    cancelled: bool = False,
) -> Retry | Settle:
    ended = Ended(RunState.FAILED, "x", "why", Failure(failure_class, not_before))
    return next_step(ended, ledger, turns, cancel_requested=cancelled, now=NOW, jitter=jitter)


FAILED = Settle(WakeupState.FAILED, "x", "why")


def at(delay: timedelta, reason: Reason = Reason.TRANSIENT_FAILURE) -> Retry:
    return Retry(Repeat(reason, NOW + delay))


@pytest.mark.parametrize(("tried", "minutes"), list(enumerate((2, 10, 30, 120))))
def test_a_passing_failure_is_repeated_up_a_ladder(tried: int, minutes: int) -> None:
    ledger = after(transient_failure=tried)

    assert step_after(FailureClass.TRANSIENT, ledger) == at(minutes * MINUTE)
    assert step_after(FailureClass.TRANSIENT, ledger, jitter=0) == at(0.75 * minutes * MINUTE)
    assert step_after(FailureClass.TRANSIENT, ledger, jitter=1) == at(1.25 * minutes * MINUTE)


def test_the_providers_time_counts_when_it_is_later() -> None:
    soon, late = NOW + MINUTE, NOW + 7 * MINUTE

    assert step_after(FailureClass.TRANSIENT, not_before=soon) == at(2 * MINUTE)
    assert step_after(FailureClass.TRANSIENT, not_before=late) == at(7 * MINUTE)
    quota = Reason.PROVIDER_QUOTA
    assert step_after(FailureClass.QUOTA, not_before=late) == at(7 * MINUTE, quota)
    assert step_after(FailureClass.QUOTA) == at(QUOTA_PAUSE, quota)
    # An agent cannot have its wake, and all that join it, wait for ever.
    never = datetime.max.replace(tzinfo=UTC)
    assert step_after(FailureClass.TRANSIENT, not_before=never) == at(LONGEST_PAUSE)
    assert step_after(FailureClass.QUOTA, not_before=never) == at(LONGEST_PAUSE, quota)


def test_the_two_kinds_of_waiting_for_a_provider_share_one_ladder() -> None:
    half = after(transient_failure=2, provider_quota=1)

    assert step_after(FailureClass.TRANSIENT, half) == at(LADDER[3])
    assert step_after(FailureClass.QUOTA, after(transient_failure=2, provider_quota=2)) == FAILED
    assert step_after(FailureClass.TRANSIENT, after(transient_failure=4)) == FAILED


@pytest.mark.parametrize(
    ("failure_class", "ledger", "turns", "step"),
    [
        (FailureClass.LOST, FIRST, NO_TURNS, Retry(Repeat(Reason.PROCESS_LOST))),
        (FailureClass.LOST, after(process_lost=1), NO_TURNS, FAILED),
        (
            FailureClass.LOST,
            after(transient_failure=3, max_turns=2),
            NO_TURNS,
            Retry(Repeat(Reason.PROCESS_LOST)),
        ),
        (FailureClass.MAX_TURNS, FIRST, TURNS, at(timedelta(seconds=1), Reason.MAX_TURNS)),
        (
            FailureClass.MAX_TURNS,
            FIRST,
            TurnLimit(2, timedelta(0), may_continue=True),
            Retry(Repeat(Reason.MAX_TURNS)),
        ),
        (
            FailureClass.MAX_TURNS,
            after(max_turns=1, transient_failure=4),
            TURNS,
            at(timedelta(seconds=1), Reason.MAX_TURNS),
        ),
        (FailureClass.MAX_TURNS, after(max_turns=2), TURNS, FAILED),
        (
            FailureClass.MAX_TURNS,
            FIRST,
            TurnLimit(2, timedelta(0), may_continue=False),
            FAILED,
        ),
        *(
            (failure_class, FIRST, TURNS, FAILED)
            for failure_class in (
                FailureClass.OTHER,
                FailureClass.REFUSAL,
                FailureClass.CREDENTIALS,
                FailureClass.CONFIGURATION,
            )
        ),
    ],
)
def test_each_kind_of_failure_has_its_own_count(
    failure_class: FailureClass, ledger: Ledger, turns: TurnLimit, step: Retry | Settle
) -> None:
    assert step_after(failure_class, ledger, turns=turns) == step


def test_all_kinds_together_have_an_end() -> None:
    almost = after(shutdown=MAX_ATTEMPTS - 2)
    ended = Ended(RunState.INTERRUPTED, "shutdown", "why", Failure(FailureClass.OTHER, None, True))

    def step(ledger: Ledger) -> Retry | Settle:
        return next_step(ended, ledger, NO_TURNS, cancel_requested=False, now=NOW, jitter=0.5)

    assert step(almost) == Retry(Repeat(Reason.SHUTDOWN))
    assert step(after(shutdown=MAX_ATTEMPTS - 1)) == Settle(WakeupState.FAILED, "shutdown", "why")


def test_nothing_is_repeated_for_somebody_who_cancelled() -> None:
    step = step_after(FailureClass.TRANSIENT, cancelled=True)

    assert step == Settle(WakeupState.CANCELLED, "cancelled", "it was cancelled")


@pytest.mark.parametrize(
    ("state", "reason", "cancelled", "step"),
    [
        (RunState.SUCCEEDED, "", True, Settle(WakeupState.COMPLETED)),
        (RunState.TIMED_OUT, "run_timeout", False, Settle(WakeupState.FAILED, "run_timeout", "w")),
        (
            RunState.CANCELLED,
            "issue_cancelled",
            True,
            Settle(WakeupState.CANCELLED, "issue_cancelled", "w"),
        ),
        (
            RunState.CANCELLED,
            "start_deadline",
            False,
            Settle(WakeupState.FAILED, "start_deadline", "w"),
        ),
    ],
)
def test_an_end_that_is_not_repeated_is_the_wakeups(
    state: RunState, reason: str, cancelled: bool, step: Settle
) -> None:
    failed = state is not RunState.SUCCEEDED
    ended = Ended(state, reason, "w", Failure(FailureClass.OTHER if failed else FailureClass.NONE))

    found = next_step(ended, FIRST, TURNS, cancel_requested=cancelled, now=NOW, jitter=0.5)
    assert found == step


@pytest.mark.parametrize("state", [RunState.QUEUED, RunState.SCHEDULED_RETRY, RunState.RUNNING])
def test_nothing_follows_an_attempt_that_has_not_ended(state: RunState) -> None:
    ended = Ended(state, "", "", Failure(FailureClass.NONE))

    with pytest.raises(ValueError, match="has not ended"):
        next_step(ended, FIRST, NO_TURNS, cancel_requested=False, now=NOW, jitter=0.5)


@pytest.mark.parametrize(
    ("ledger", "cancelled", "step", "comment"),
    [
        (FIRST, False, Retry(Repeat(Reason.MISSING_COMMENT)), CommentStatus.RETRY_QUEUED),
        (
            after(missing_comment=1),
            False,
            Settle(WakeupState.COMPLETED),
            CommentStatus.RETRY_EXHAUSTED,
        ),
        (
            after(shutdown=MAX_ATTEMPTS - 1),
            False,
            Settle(WakeupState.COMPLETED),
            CommentStatus.RETRY_EXHAUSTED,
        ),
        (FIRST, True, Settle(WakeupState.COMPLETED), None),
    ],
)
def test_a_comment_that_is_missing_is_asked_for_once(
    ledger: Ledger, cancelled: bool, step: Retry | Settle, comment: CommentStatus | None
) -> None:
    ended = Ended(RunState.SUCCEEDED, "", "", Failure(FailureClass.NONE), comment_missing=True)

    found = next_step(ended, ledger, NO_TURNS, cancel_requested=cancelled, now=NOW, jitter=0.5)
    assert found == step
    assert comment_after(ended, ledger, found) is comment
