"""The queue: in which order runs wait, and which of them a batch of claims takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from reveille_heartbeat.domain.states import ISSUE_TERMINAL, IssueState

NO_PRIORITY = 4


def ready_rank(status: IssueState | None, *, waits: bool = False) -> int:
    """Rank a run by its issue: in progress, ready, no issue at all, blocked.

    `waits`: other issues block it still.
    """
    if status is None:
        return 2
    if waits:
        return 3
    if status is IssueState.IN_PROGRESS:
        return 0
    return 3 if status is IssueState.BLOCKED else 1


@dataclass(frozen=True, slots=True)
class Candidate:
    """A queued run that looked claimable before the locks were had."""

    run_id: UUID
    wakeup_id: UUID
    agent_id: UUID
    issue_id: UUID | None
    ready_rank: int
    priority: int
    created_at: datetime

    @property
    def turn(self) -> tuple[int, int, datetime, UUID]:
        """The order in which runs are taken."""
        return (self.ready_rank, self.priority, self.created_at, self.run_id)


@dataclass(frozen=True, slots=True)
class Slots:
    """What is free, read after the locks."""

    # Free slots per agent; an agent that is missing has none.
    free: Mapping[UUID, int]
    busy_issues: AbstractSet[UUID]
    issue_status: Mapping[UUID, IssueState]


@dataclass(frozen=True, slots=True)
class Selection:
    """What a batch does: runs to claim, and runs whose issue has ended meanwhile."""

    claimed: tuple[Candidate, ...]
    closed: tuple[Candidate, ...]


def select(candidates: Sequence[Candidate], slots: Slots, limit: int) -> Selection:
    """Take runs in their order while slots last, one per issue."""
    free = dict(slots.free)
    taken_issues: set[UUID] = set()
    claimed: list[Candidate] = []
    closed: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda each: each.turn):
        issue_id = candidate.issue_id
        if issue_id is not None:
            if slots.issue_status.get(issue_id) in ISSUE_TERMINAL:
                closed.append(candidate)
                continue
            if issue_id in slots.busy_issues or issue_id in taken_issues:
                continue
        if free.get(candidate.agent_id, 0) <= 0 or len(claimed) >= limit:
            continue
        free[candidate.agent_id] -= 1
        if issue_id is not None:
            taken_issues.add(issue_id)
        claimed.append(candidate)
    return Selection(tuple(claimed), tuple(closed))
