"""How often an agent may begin anew: the throttle of fruitless repeats, cooldown, daily caps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.values import HeartbeatPolicy, Refusal
from reveille_heartbeat.domain.wakes import WakeReason

# The reasons of wakes that bring nothing new with them: each repeats what was asked before.
BRINGS_NOTHING_NEW = frozenset({WakeReason.ISSUE_ASSIGNED})
# How many runs are looked at, how far back, and from how many fruitless ones on it waits.
SAMPLE = 8
WINDOW = timedelta(hours=6)
FRUITLESS = 2
FIRST_PAUSE = timedelta(seconds=120)
LONGEST_PAUSE = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class RunLimits:
    """How many runs may be at work at once, in a workspace and in all; None is no limit."""

    workspace: int | None = None
    everywhere: int | None = None


@dataclass(frozen=True, slots=True)
class PastRun:
    """A run that has ended, as far as it tells whether another one is worth it."""

    finished_at: datetime
    succeeded: bool
    left_progress: bool


@dataclass(frozen=True, slots=True)
class Today:
    """What an agent has had on this UTC day."""

    runs: int = 0
    cost_cents: Decimal = Decimal(0)


NOTHING_TODAY = Today()


def next_repeat(
    past: Sequence[PastRun], last_input_at: datetime | None, now: datetime
) -> datetime | None:
    """Say from when on another run on the same issue is worth it; None is now.

    Two runs in a row that ended well and left nothing to be seen make it wait, each further one
    twice as long; anything new on the issue makes it begin anew.
    """
    recent = [run for run in past[:SAMPLE] if run.finished_at > now - WINDOW]
    streak = 0
    for run in recent:
        if not run.succeeded or run.left_progress:
            break
        streak += 1
    if streak < FRUITLESS:
        return None
    newest = recent[0].finished_at
    if last_input_at is not None and last_input_at > newest:
        return None
    pause = min(FIRST_PAUSE * 2 ** (streak - FRUITLESS), LONGEST_PAUSE)
    return newest + pause if newest + pause > now else None


def cooling_until(past: Sequence[PastRun], cooldown: timedelta, now: datetime) -> datetime | None:
    """Say until when the agent rests from this work; None when it does not."""
    if not past or cooldown <= timedelta(0):
        return None
    until = past[0].finished_at + cooldown
    return until if until > now else None


def over_daily_cap(policy: HeartbeatPolicy, today: Today) -> Refusal | None:
    """Refuse what the day has no room for; a cap of 0 refuses everything, none refuses nothing."""
    runs, cost = policy.max_daily_runs, policy.max_daily_cost_cents
    if runs is not None and today.runs >= runs:
        return Refusal(
            Reason.DAILY_RUN_LIMIT, f"{today.runs} runs were started today (UTC), {runs} may be"
        )
    if cost is not None and today.cost_cents >= cost:
        return Refusal(
            Reason.DAILY_COST_LIMIT,
            f"{today.cost_cents:.2f} cents were spent today (UTC), {cost} may be",
        )
    return None


def has_daily_cap(policy: HeartbeatPolicy) -> bool:
    """Tell whether what was done today matters at all."""
    return policy.max_daily_runs is not None or policy.max_daily_cost_cents is not None
