"""Where an accepted wish goes: to the queue, behind the run on its issue, or into another wake."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any
from uuid import UUID

from reveille_heartbeat.domain.enqueue import Facts, from_a_person, tells
from reveille_heartbeat.domain.limits import (
    BRINGS_NOTHING_NEW,
    cooling_until,
    next_repeat,
    over_daily_cap,
)
from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.values import (
    Refusal,
    RequesterKind,
    WakeupSource,
    Wish,
)

# How much one run is told: as many wishes as an agent can heed at once, and bytes that can be read
# and written down whole, for many runs side by side. A wake that carries so much is full.
MAX_JOINED = 100
MAX_TOLD_BYTES = 4 << 20


class Stage(StrEnum):
    """How far a wake has come that another one may join, the best to join first.

    One whose agent is at work is joined no more: what it is told was fixed when it was claimed.
    """

    # An attempt of it waits in the queue: all that is added reaches the agent.
    QUEUED = "queued"
    # Its next attempt has a time of its own.
    RETRY = "retry"
    # It waits for the run on its issue.
    DEFERRED = "deferred"


@dataclass(frozen=True, slots=True)
class OpenWake:
    """A wake of the same agent and the same issue or task, that has not ended."""

    wakeup_id: UUID
    stage: Stage
    comment_ids: tuple[UUID, ...] = ()
    fresh_session: bool = False
    context: Mapping[str, Any] | None = None
    run_id: UUID | None = None
    # How many have joined it, and the bytes of its words, theirs and its comments together, as far
    # as its row says them.
    joined: int = 0
    told_bytes: int = 0

    @property
    def full(self) -> bool:
        """Whether its run would be told too much with one more; nobody joins it then."""
        return self.joined >= MAX_JOINED or self.told_bytes >= MAX_TOLD_BYTES

    def joined_by(self, wish: Wish, facts: Facts) -> OpenWake:
        """Give it as the next wish meets it."""
        new = tuple(each for each in wish.comment_ids if each not in self.comment_ids)
        return replace(
            self,
            joined=self.joined + 1,
            told_bytes=self.told_bytes + bytes_told(wish, facts, self.comment_ids),
            comment_ids=self.comment_ids + new,
        )


def bytes_told(wish: Wish, facts: Facts, heard: Collection[UUID] = ()) -> int:
    """Say how much a wish gives its agent to read beside the comments that it has `heard` of."""
    payload = wish.payload
    texts = (wish.prompt, *payload.facts, *payload.facts.values())
    said = sum(each.size for each in facts.comments if each.comment_id not in heard)
    return sum(len(text.encode()) for text in texts) + len(payload.body) + said


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What else is under way, read after the issue's or the agent's lock was had."""

    open_wakes: Sequence[OpenWake] = ()
    # A run waits for the issue in any way, or holds it.
    issue_has_run: bool = False


class PlaceKind(StrEnum):
    """Where an accepted wish goes."""

    QUEUE = "queue"
    DEFER = "defer"
    JOIN = "join"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Place:
    """The decision, with the wake to join or the reason to skip."""

    kind: PlaceKind
    joined: OpenWake | None = None
    refusal: Refusal | None = None
    # The attempt of the wake that is joined shall not wait for its time any longer.
    hurry: bool = False


Gate = Callable[[Wish, Facts], Refusal | None]


def dependencies_done(wish: Wish, facts: Facts) -> Refusal | None:
    """All that the issue waits for is done, or its agent is told something on the issue itself."""
    if not facts.blockers or tells(wish, facts):
        return None
    names = ", ".join(each.identifier for each in facts.blockers[:10])
    return Refusal(Reason.ISSUE_DEPENDENCIES_BLOCKED, f"it waits for {names}")


def repeat_is_worth_it(wish: Wish, facts: Facts) -> Refusal | None:
    """The last runs on the issue left something to be seen, or the wish brings something new."""
    if (
        facts.issue is None
        or wish.wake_reason not in BRINGS_NOTHING_NEW
        or wish.fresh_session
        or wish.comment_ids
        or _by_a_person(wish)
    ):
        return None
    allowed = next_repeat(facts.past_runs, facts.issue.last_input_at, facts.now)
    if allowed is None:
        return None
    return Refusal(
        Reason.REWAKE_THROTTLED,
        f"the last runs on {facts.issue.identifier} left nothing to be seen;"
        f" the next is worth it from {allowed.isoformat(timespec='seconds')} on",
    )


def agent_is_rested(wish: Wish, facts: Facts) -> Refusal | None:
    """The agent did not just work on the same; a person need not wait for that."""
    agent = facts.target.agent
    automatic = wish.source in (WakeupSource.AUTOMATION, WakeupSource.TIMER)
    if agent is None or not automatic or wish.requester.kind is RequesterKind.USER:
        return None
    until = cooling_until(facts.past_runs, agent.heartbeat.cooldown, facts.now)
    if until is None:
        return None
    return Refusal(
        Reason.COOLDOWN,
        f"{facts.target.words} has just worked on this, and rests until"
        f" {until.isoformat(timespec='seconds')}",
    )


def day_has_room(wish: Wish, facts: Facts) -> Refusal | None:  # noqa: ARG001 (a gate)
    """Neither the runs nor the money of the day are used up."""
    agent = facts.target.agent
    return None if agent is None else over_daily_cap(agent.heartbeat, facts.today)


# What only a run of its own has to pass: joining and waiting cost nothing.
GATES: tuple[Gate, ...] = (dependencies_done, repeat_is_worth_it, agent_is_rested, day_has_room)


def place(wish: Wish, facts: Facts, around: Surroundings) -> Place:
    """Decide between joining, deferral, the queue and a refusal.

    A wish with an occurrence key is its own scope: it neither joins another nor waits behind one.
    What finds every wake full is treated as if there was none.
    """
    if wish.origin.occurrence_key is None:
        joinable = [each for each in around.open_wakes if not each.full]
        target = min(joinable, key=lambda each: _STAGES[each.stage], default=None)
        if target is not None:
            hurry = target.stage is Stage.RETRY and from_a_person(wish, facts)
            return Place(PlaceKind.JOIN, target, hurry=hurry)
        if wish.issue_id is not None and around.issue_has_run:
            return Place(PlaceKind.DEFER)
    for gate in GATES:
        refusal = gate(wish, facts)
        if refusal is not None:
            return Place(PlaceKind.SKIP, refusal=refusal)
    return Place(PlaceKind.QUEUE)


_STAGES = {stage: at for at, stage in enumerate(Stage)}


def _by_a_person(wish: Wish) -> bool:
    return wish.source is WakeupSource.ON_DEMAND and wish.requester.kind is RequesterKind.USER
