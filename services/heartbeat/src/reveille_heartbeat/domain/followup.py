"""What follows an attempt: another one under the same wakeup, or the wakeup's own end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.retries import (
    MAX_MISSING_COMMENT,
    Failure,
    Ledger,
    Repeat,
    TurnLimit,
    repeat_of,
)
from reveille_heartbeat.domain.states import RunState, WakeupState
from reveille_heartbeat.domain.values import CommentStatus


@dataclass(frozen=True, slots=True)
class Ended:
    """An attempt that has its terminal state."""

    state: RunState
    reason: str
    message: str
    failure: Failure
    # Whether people wait for a comment that it did not leave.
    comment_missing: bool = False


@dataclass(frozen=True, slots=True)
class Retry:
    """Make the next attempt, and say why."""

    repeat: Repeat


@dataclass(frozen=True, slots=True)
class Settle:
    """End the wakeup."""

    state: WakeupState
    reason: str = ""
    message: str = ""


def next_step(
    ended: Ended,
    ledger: Ledger,
    turns: TurnLimit,
    *,
    cancel_requested: bool,
    now: datetime,
    jitter: float,
) -> Retry | Settle:
    """Decide from the attempts, and from whether somebody wants the wakeup to end."""
    match ended.state:
        case RunState.SUCCEEDED:
            if ended.comment_missing and not cancel_requested and _may_ask_again(ledger):
                return Retry(Repeat(Reason.MISSING_COMMENT))
            return Settle(WakeupState.COMPLETED)
        case RunState.CANCELLED:
            if ended.reason == Reason.START_DEADLINE:
                return Settle(WakeupState.FAILED, ended.reason, ended.message)
            return Settle(WakeupState.CANCELLED, ended.reason or Reason.CANCELLED, ended.message)
        case RunState.FAILED | RunState.TIMED_OUT | RunState.INTERRUPTED:
            if cancel_requested:
                return Settle(WakeupState.CANCELLED, Reason.CANCELLED, "it was cancelled")
            repeat = repeat_of(ended.failure, ledger, turns, now=now, jitter=jitter)
            if repeat is not None:
                return Retry(repeat)
            return Settle(WakeupState.FAILED, ended.reason, ended.message)
        case RunState.QUEUED | RunState.SCHEDULED_RETRY | RunState.RUNNING:
            raise ValueError(f"a {ended.state.value} attempt has not ended")
        case _:
            assert_never(ended.state)


def comment_after(ended: Ended, ledger: Ledger, step: Retry | Settle) -> CommentStatus | None:
    """Say what became of a comment that is missing; None when none is."""
    if not ended.comment_missing or ended.state is not RunState.SUCCEEDED:
        return None
    if isinstance(step, Retry):
        return CommentStatus.RETRY_QUEUED
    return CommentStatus.RETRY_EXHAUSTED if not _may_ask_again(ledger) else None


def _may_ask_again(ledger: Ledger) -> bool:
    return not ledger.used_up and ledger.count(Reason.MISSING_COMMENT) < MAX_MISSING_COMMENT


def joined_state(state: WakeupState) -> WakeupState:
    """Say how a wake ends that joined another: as that one did; work not done is cancelled."""
    return WakeupState.CANCELLED if state is WakeupState.SKIPPED else state
