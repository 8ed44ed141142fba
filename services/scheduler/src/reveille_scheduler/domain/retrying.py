"""Whether and when a failed occurrence is tried again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

# What was given back costs no attempt, but must not spin either.
_GIVE_BACK_FIRST = timedelta(seconds=5)
_GIVE_BACK_LONGEST = timedelta(minutes=1)


def next_retry(
    *,
    now: datetime,
    plan_time: datetime,
    attempt: int,
    max_attempts: int,
    backoff: Sequence[timedelta],
    deadline: timedelta,
) -> datetime | None:
    """Give the time of the attempt after a failed one, None when that was the last.

    `attempt` counts from 1. The wait after attempt n is the n-th of `backoff`, whose last repeats;
    an empty one means at once. A retry never fires later than `deadline` after the planned time.
    """
    if attempt >= max_attempts:
        return None
    wait = backoff[min(attempt, len(backoff)) - 1] if backoff else timedelta(0)
    return _within(now + wait, plan_time + deadline)


def next_after_give_back(
    *, now: datetime, plan_time: datetime, give_backs: int, deadline: timedelta
) -> datetime | None:
    """Give the time to try again what could not be decided; `give_backs` counts this one."""
    wait = min(_GIVE_BACK_FIRST * 2 ** min(give_backs - 1, 10), _GIVE_BACK_LONGEST)
    return _within(now + wait, plan_time + deadline)


def _within(moment: datetime, limit: datetime) -> datetime | None:
    return moment if moment <= limit else None
