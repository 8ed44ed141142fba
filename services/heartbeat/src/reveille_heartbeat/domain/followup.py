"""What follows an attempt: another one under the same wakeup, or the wakeup's own end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import RunState, WakeupState

# One ledger per wakeup: the first attempt and its recorded repeats.
MAX_ATTEMPTS = 3
RETRYABLE = frozenset({Reason.PROCESS_LOST})


@dataclass(frozen=True, slots=True)
class Ended:
    """An attempt that has its terminal state."""

    state: RunState
    reason: str
    message: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Retry:
    """Make the next attempt, now, and say why."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Settle:
    """End the wakeup."""

    state: WakeupState
    reason: str = ""
    message: str = ""


def next_step(ended: Ended, *, cancel_requested: bool) -> Retry | Settle:
    """Decide from the attempt alone, and from whether somebody wants the wakeup to end."""
    match ended.state:
        case RunState.SUCCEEDED:
            return Settle(WakeupState.COMPLETED)
        case RunState.CANCELLED:
            if ended.reason == Reason.START_DEADLINE:
                return Settle(WakeupState.FAILED, ended.reason, ended.message)
            return Settle(WakeupState.CANCELLED, ended.reason or Reason.CANCELLED, ended.message)
        case RunState.FAILED | RunState.TIMED_OUT | RunState.INTERRUPTED:
            if cancel_requested:
                return Settle(WakeupState.CANCELLED, Reason.CANCELLED, "it was cancelled")
            if ended.reason in RETRYABLE and ended.attempt < MAX_ATTEMPTS:
                return Retry(Reason(ended.reason))
            return Settle(WakeupState.FAILED, ended.reason, ended.message)
        case RunState.QUEUED | RunState.SCHEDULED_RETRY | RunState.RUNNING:
            raise ValueError(f"a {ended.state.value} attempt has not ended")
        case _:
            assert_never(ended.state)


def joined_state(state: WakeupState) -> WakeupState:
    """Say how a wake ends that joined another: as that one did; work not done is cancelled."""
    return WakeupState.CANCELLED if state is WakeupState.SKIPPED else state
