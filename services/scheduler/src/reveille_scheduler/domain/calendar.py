"""When the occurrences of one scope are due: planned instant, plus delay, plus a share of jitter.

The share is a fixed function of the scope and the instant, so every replica, the preview and a
retry after a crash agree; it never reaches the scope's next occurrence, so order is kept.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from reveille_scheduler.domain.rule import Timeline

_NONE = timedelta(0)
# Where time begins and ends: no delay moves an occurrence beyond it. The driver takes the very
# first and last microseconds for infinities, which come back without a zone.
FIRST = datetime.min.replace(microsecond=1, tzinfo=UTC)
LAST = datetime.max.replace(microsecond=999_998, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Calendar:
    """A timeline with the due times of one scope; `seed` names the scope."""

    line: Timeline
    delay: timedelta = _NONE
    jitter: timedelta = _NONE
    seed: str = ""

    def due(self, plan_time: datetime) -> datetime:
        """Say when an occurrence is handed over at the earliest."""
        if not self.jitter:
            return _later(plan_time, self.delay)
        spread = self.jitter
        following = self.line.next(plan_time)
        if following is not None:
            spread = min(spread, following - plan_time)
        return _later(plan_time, self.delay + spread * share(self.seed, plan_time))

    def newest_due(self, now: datetime) -> datetime | None:
        """Return the newest occurrence that is due, found walking backwards."""
        newest = self.line.latest_at_or_before(now - self.delay)
        if self.jitter and newest is not None and self.due(newest) > now:
            # The one before was due before this one's planned instant.
            return self.line.previous(newest)
        return newest

    def next_due(self, after: datetime) -> datetime | None:
        """Return when the first occurrence after a planned instant is due."""
        following = self.line.next(after)
        return None if following is None else self.due(following)


def _later(moment: datetime, by: timedelta) -> datetime:
    return moment + by if by < LAST - moment else LAST


def share(seed: str, plan_time: datetime) -> float:
    """Map a scope and an instant evenly onto [0, 1), the same everywhere and for ever."""
    text = f"{seed}/{int(plan_time.timestamp())}"
    digest = hashlib.blake2b(text.encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big") / 2**48


def seed_of(job_name: str, kind: str, scope_id: str) -> str:
    """Name a scope for its share of the jitter."""
    return f"{job_name}/{kind}/{scope_id}"
