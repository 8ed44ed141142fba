"""When to try again: a pure schedule whose jitter is a function of the row, not of luck.

A retry that is a row (`next_attempt_at = now + delay`) gives the same time in every replica and
after every restart, and rows that failed together still come back apart.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class Backoff:
    """Growing pauses in seconds: `first`, times `factor` each attempt, never above `longest`.

    `jitter` is the share of a pause that is spread: 0.2 gives between 80 % and 100 % of it, so that
    `longest` is a bound and the schedule can be shown in advance.
    """

    first: float
    longest: float
    factor: float = 2.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        if not (0 < self.first <= self.longest and self.factor >= 1 and 0 <= self.jitter < 1):
            raise ValueError(f"not a usable backoff: {self}")

    def delay(self, attempt: int, seed: object = "") -> float:
        """Give the pause after failed attempt number `attempt` (from 1); `seed` is the row's id."""
        if attempt < 1:
            raise ValueError("attempts are counted from 1")
        pause = self.first
        for _ in range(attempt - 1):
            # Stepwise, so that a huge attempt count cannot overflow.
            if pause >= self.longest or self.factor == 1:
                break
            pause *= self.factor
        pause = min(pause, self.longest)
        return pause * (1 - self.jitter * _fraction(f"{seed}/{attempt}"))

    def next_at(
        self, now: datetime, attempt: int, seed: object = "", *, deadline: datetime | None = None
    ) -> datetime | None:
        """Give the time of the next try, or None when that would lie past the deadline."""
        moment = now + timedelta(seconds=self.delay(attempt, seed))
        return None if deadline is not None and moment > deadline else moment


def _fraction(text: str) -> float:
    """Map a text evenly onto [0, 1)."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
