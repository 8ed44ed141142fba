"""The queue: in which order runs wait, and which of them a batch of claims takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import IssueState
from reveille_heartbeat.domain.values import Refusal

NO_PRIORITY = 4
# How much the runs that are claimed in one go are told, all together, the last of them aside: that
# much is read into memory at once.
MAX_CLAIMED_BYTES = 32 << 20
TODAY_IS_OVER = "its agent has begun as many runs today as it may"


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
    retry_of_run_id: UUID | None = None
    retry_reason: str = ""

    @property
    def turn(self) -> tuple[int, int, datetime, UUID]:
        """The order in which runs are taken."""
        return (self.ready_rank, self.priority, self.created_at, self.run_id)


@dataclass(frozen=True, slots=True)
class Slots:
    """What is free, read after the locks."""

    # How many runs the batch may take, by the limits of the executor and of all workspaces.
    room: int
    # Free slots per agent; an agent that is missing has none.
    free: Mapping[UUID, int]
    # Runs that an agent may still begin today; one that is missing may begin any number.
    today: Mapping[UUID, int]
    busy_issues: AbstractSet[UUID]
    # How much each wakeup's run is told, and after how much no further run is taken.
    told_bytes: Mapping[UUID, int] = field(default_factory=dict)
    bytes_room: int = MAX_CLAIMED_BYTES


@dataclass(frozen=True, slots=True)
class Selection:
    """What a batch does: runs to claim, and runs that must not begin any more, with the reason."""

    claimed: tuple[Candidate, ...]
    refused: tuple[tuple[Candidate, Refusal], ...]


def select(
    candidates: Sequence[Candidate], slots: Slots, refusals: Mapping[UUID, Refusal]
) -> Selection:
    """Take runs in their order while slots last, one per issue; `refusals` are those of the gates.

    A run that is not taken hides none behind it, and no worse run of an agent goes before it. The
    one exception is the room for what they are told: when it is used up the rest waits, in its
    order, and the first is taken however much it is told.
    """
    free, today = dict(slots.free), dict(slots.today)
    taken_issues: set[UUID] = set()
    claimed: list[Candidate] = []
    refused: list[tuple[Candidate, Refusal]] = []
    told = 0
    for candidate in sorted(candidates, key=lambda each: each.turn):
        refusal = refusals.get(candidate.run_id)
        if refusal is not None:
            refused.append((candidate, refusal))
            continue
        issue_id, agent_id = candidate.issue_id, candidate.agent_id
        if issue_id is not None and (issue_id in slots.busy_issues or issue_id in taken_issues):
            continue
        if free.get(agent_id, 0) <= 0 or len(claimed) >= slots.room or told >= slots.bytes_room:
            continue
        if today.get(agent_id, 1) <= 0:
            refused.append((candidate, Refusal(Reason.DAILY_RUN_LIMIT, TODAY_IS_OVER)))
            continue
        free[agent_id] -= 1
        if agent_id in today:
            today[agent_id] -= 1
        if issue_id is not None:
            taken_issues.add(issue_id)
        told += slots.told_bytes.get(candidate.wakeup_id, 0)
        claimed.append(candidate)
    return Selection(tuple(claimed), tuple(refused))
