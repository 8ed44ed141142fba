"""Repeats: how often each kind of failure is tried again under one wakeup, and when.

There is one ledger per wakeup: its attempts themselves, each with the reason why it was made. No
kind of repeat can overlook another, and none goes on for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.values import FailureClass

# All attempts of a wakeup together, whatever made them.
MAX_ATTEMPTS = 12
LADDER = (timedelta(minutes=2), timedelta(minutes=10), timedelta(minutes=30), timedelta(hours=2))
SPREAD = 0.25
QUOTA_PAUSE = timedelta(hours=1)
# A quota may be one of a month; nothing waits for ever, whatever moment an agent names.
LONGEST_PAUSE = timedelta(days=31)
MAX_LOST = 1
MAX_MISSING_COMMENT = 1
_ON_THE_LADDER = (Reason.TRANSIENT_FAILURE, Reason.PROVIDER_QUOTA)


@dataclass(frozen=True, slots=True)
class Ledger:
    """The attempts of a wakeup so far, by why each was made; the first has no reason."""

    attempts: int
    by_reason: Mapping[str, int]

    @property
    def used_up(self) -> bool:
        """Whether no attempt of any kind may follow."""
        return self.attempts >= MAX_ATTEMPTS

    def count(self, *reasons: Reason) -> int:
        """Count the repeats that were made for these reasons."""
        return sum(self.by_reason.get(reason.value, 0) for reason in reasons)


@dataclass(frozen=True, slots=True)
class Failure:
    """What decides about a repeat."""

    failure_class: FailureClass
    retry_not_before: datetime | None = None
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class TurnLimit:
    """What an agent allows itself after it has used up its turns."""

    continuations: int
    delay: timedelta
    # The issue is in progress still, and nobody else has it.
    may_continue: bool


@dataclass(frozen=True, slots=True)
class Repeat:
    """Make another attempt; now when it has no time."""

    reason: Reason
    due_at: datetime | None = None


def repeat_of(
    failure: Failure, ledger: Ledger, turns: TurnLimit, *, now: datetime, jitter: float
) -> Repeat | None:
    """Decide whether a failed attempt is repeated; `jitter` is at random from 0 to 1."""
    if ledger.used_up:
        return None
    if failure.interrupted:
        return Repeat(Reason.SHUTDOWN)
    match failure.failure_class:
        case FailureClass.LOST:
            again = ledger.count(Reason.PROCESS_LOST) < MAX_LOST
            return Repeat(Reason.PROCESS_LOST) if again else None
        case FailureClass.TRANSIENT | FailureClass.QUOTA:
            return _on_the_ladder(failure, ledger, now=now, jitter=jitter)
        case FailureClass.MAX_TURNS:
            if not turns.may_continue or ledger.count(Reason.MAX_TURNS) >= turns.continuations:
                return None
            return Repeat(Reason.MAX_TURNS, now + turns.delay if turns.delay else None)
        case _:
            return None


def _on_the_ladder(
    failure: Failure, ledger: Ledger, *, now: datetime, jitter: float
) -> Repeat | None:
    step = ledger.count(*_ON_THE_LADDER)
    if step >= len(LADDER):
        return None
    due_at = now + LADDER[step] * (1 - SPREAD + 2 * SPREAD * jitter)
    reason = Reason.TRANSIENT_FAILURE
    not_before = failure.retry_not_before
    if failure.failure_class is FailureClass.QUOTA:
        reason = Reason.PROVIDER_QUOTA
        not_before = not_before or now + QUOTA_PAUSE
    if not_before is not None:
        due_at = max(due_at, min(not_before, now + LONGEST_PAUSE))
    return Repeat(reason, due_at)
