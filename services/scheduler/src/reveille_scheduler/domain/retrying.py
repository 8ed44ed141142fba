"""Whether and when an occurrence that did not succeed is tried again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

# What was given back costs no attempt, but must not spin either.
_GIVE_BACK_FIRST = timedelta(seconds=5)
_GIVE_BACK_LONGEST = timedelta(minutes=1)
# A retry promised in time is kept although a tick finds it a little later.
PROMPT = timedelta(minutes=1)


def next_retry(
    *,
    now: datetime,
    attempt: int,
    max_attempts: int,
    backoff: Sequence[timedelta],
    until: datetime,
) -> datetime | None:
    """Give the time of the attempt after a failed one, None when that was the last.

    `attempt` counts from 1. The wait after attempt n is the n-th of `backoff`, whose last repeats;
    an empty one means at once. No attempt begins after `until`.
    """
    if attempt >= max_attempts:
        return None
    wait = backoff[min(attempt, len(backoff)) - 1] if backoff else timedelta(0)
    return _within(now + wait, until)


def next_after_give_back(
    *, now: datetime, give_backs: int, until: datetime, at_once: bool = False
) -> datetime | None:
    """Give the time to try again what could not be decided; `give_backs` counts this one.

    `at_once` is for an executor that stops: another can begin immediately.
    """
    wait = min(_GIVE_BACK_FIRST * 2 ** min(give_backs - 1, 10), _GIVE_BACK_LONGEST)
    return _within(now if at_once else now + wait, until)


def is_overdue(now: datetime, until: datetime) -> bool:
    """Tell whether a promised retry comes too late to be kept: nobody was there to make it."""
    return now > until + PROMPT


def _within(moment: datetime, limit: datetime) -> datetime | None:
    return moment if moment <= limit else None
