"""Which occurrences of a past range may still be executed, and which are left alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from reveille_scheduler.domain.states import ExecutionState

# Occurrences one backfill may look at.
MOST = 1000


@dataclass(frozen=True, slots=True)
class Recorded:
    """An occurrence of the range that the ledger knows."""

    id: UUID
    state: ExecutionState
    reason: str
    promised: bool


@dataclass(frozen=True, slots=True)
class Backfill:
    """The verdict on a range, each list oldest first."""

    missed: tuple[datetime, ...]
    too_late: tuple[UUID, ...]
    done: int
    refused: int


def judge(
    plan_times: Sequence[datetime],
    recorded: Mapping[datetime, Recorded],
    *,
    planned_until: datetime,
) -> Backfill:
    """Judge a range: `plan_times` are its occurrences by the present rule, oldest first.

    Up to `planned_until` planning has passed; later occurrences are left to it. What the ledger
    holds is judged too when the present rule does not name it.
    """
    missed: list[datetime] = []
    too_late: list[UUID] = []
    done = refused = 0
    for plan_time in sorted({*plan_times, *recorded}):
        known = recorded.get(plan_time)
        if known is None:
            if plan_time > planned_until:
                refused += 1
            else:
                missed.append(plan_time)
        elif known.state is not ExecutionState.SKIPPED or known.promised:
            done += 1
        elif known.reason == "too_late":
            too_late.append(known.id)
        else:
            refused += 1
    return Backfill(tuple(missed), tuple(too_late), done, refused)
