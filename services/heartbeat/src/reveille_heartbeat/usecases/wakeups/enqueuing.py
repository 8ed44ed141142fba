"""The pipeline of a wish inside a transaction that holds its locks: facts, decisions, rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from reveille_heartbeat.domain.enqueue import Facts
from reveille_heartbeat.domain.placing import OpenWake, Stage, Surroundings, bytes_told
from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import WakeupState
from reveille_heartbeat.domain.values import Carrier, Wish
from reveille_heartbeat.domain.wakes import APPROVAL
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.usecases.wakeups.deciding import Decider
from reveille_heartbeat.usecases.wakeups.known_wishes import (
    Answers,
    Enqueued,
    made_by_caller_key,
    without_repeats,
)
from reveille_heartbeat.usecases.wakeups.normalising import normalise
from reveille_heartbeat.usecases.wakeups.recording import Decided, array_of, record
from reveille_heartbeat.usecases.wakeups.wish_facts import (
    Scope,
    read_busy_issues,
    read_facts,
    read_open_wakes,
    scope_of,
)
from reveille_runtime.db import Tx


@dataclass(slots=True)
class _Merge:
    """What a wake becomes by those that join it."""

    comment_ids: list[UUID]
    fresh_session: bool
    context: dict[str, Any]
    joined: int = 0
    told_bytes: int = 0
    hurry: UUID | None = None

    @classmethod
    def into(cls, target: OpenWake) -> _Merge:
        return cls(list(target.comment_ids), target.fresh_session, dict(target.context or {}))

    def add(self, each: Decided, facts: Facts) -> None:
        """Comments in the order in which they came, a fresh session stays wanted, news count."""
        wish = each.wish
        self.joined += 1
        self.told_bytes += bytes_told(wish, facts, self.comment_ids)
        self.comment_ids += [one for one in wish.comment_ids if one not in self.comment_ids]
        self.fresh_session = self.fresh_session or wish.fresh_session
        decision = self.context.get(APPROVAL)
        self.context.update(wish.context)
        if decision is not None:
            # It is what the wake's own reason tells of; one that joins stays with the one it is of.
            self.context[APPROVAL] = decision
        if each.hurry and each.joined is not None:
            self.hurry = each.joined.run_id


class Enqueuing:
    """Judges wishes and writes their rows; commits nothing and tells nobody."""

    def __init__(self, decider: Decider, *, suppressed: bool = False) -> None:
        self._decider = decider
        self._suppressed = suppressed

    async def locked(
        self, tx: Tx, wishes: Sequence[Wish], carriers: Mapping[UUID, Carrier] | None = None
    ) -> list[Enqueued]:
        """Enqueue inside the caller's transaction; give one answer per wish, in order.

        The caller holds the locks of all issues concerned, and of the agents of wishes without an
        issue; an occurrence's key it has taken itself. After the commit it notifies the channels
        QUEUE and FEED.
        """
        first, repeats = without_repeats(wishes)
        answers = await made_by_caller_key(tx, first)
        new = await normalise(tx, [each for each in first if each.wakeup_id not in answers])
        answers |= await self.unknown(tx, new, carriers or {})
        for repeat, original in repeats:
            answers[repeat.wakeup_id] = replace(answers[original.wakeup_id], existed=True)
        return [answers[wish.wakeup_id] for wish in wishes]

    async def unknown(
        self,
        tx: Tx,
        wishes: Sequence[Wish],
        carriers: Mapping[UUID, Carrier],
        late: Sequence[Wish] = (),
    ) -> Answers:
        """Judge and write wishes that are normalised, and that nobody has made before.

        `late` came after their occurrence was cancelled, and leave nothing but their row.
        """
        found = await read_facts(tx, wishes, suppressed=self._suppressed)
        open_wakes = await read_open_wakes(tx, wishes)
        busy = await read_busy_issues(tx, wishes)
        decided: dict[UUID, Decided] = {}
        merges: dict[UUID, _Merge] = {}
        for wish in wishes:
            scope = scope_of(wish)
            around = Surroundings(open_wakes.get(scope, ()), wish.issue_id in busy)
            carrier = carriers.get(wish.wakeup_id, wish.origin.trace_carrier)
            facts = found.facts(wish)
            made = self._decider.decide(wish, facts, around, carrier)
            made = replace(made, told_bytes=bytes_told(made.wish, facts))
            decided[wish.wakeup_id] = made
            # The next wish of this batch meets this one.
            _meet(made, facts, scope, open_wakes)
            if made.run is not None and wish.issue_id is not None:
                busy.add(wish.issue_id)
            if made.joined is not None:
                target = made.joined
                merges.setdefault(target.wakeup_id, _Merge.into(target)).add(made, facts)
        for wish in late:
            carrier = carriers.get(wish.wakeup_id, wish.origin.trace_carrier)
            decided[wish.wakeup_id] = self._decider.cancelled(wish, carrier)
        for wakeup_id in merges.keys() & decided.keys():
            decided[wakeup_id] = _merged(decided[wakeup_id], merges.pop(wakeup_id))
        await record(tx, list(decided.values()), found.now)
        await _merge(tx, merges)
        await _note_timers(tx, decided.values())
        return {wakeup_id: _answer(each) for wakeup_id, each in decided.items()}


def _meet(
    made: Decided, facts: Facts, scope: Scope, open_wakes: dict[Scope, list[OpenWake]]
) -> None:
    wish = made.wish
    if made.joined is not None:
        open_wakes[scope] = [
            each.joined_by(wish, facts) if each.wakeup_id == made.joined.wakeup_id else each
            for each in open_wakes[scope]
        ]
        return
    stage = _JOINABLE.get(made.state)
    if stage is None or wish.origin.occurrence_key is not None:
        return
    open_wakes.setdefault(scope, []).append(
        OpenWake(
            wakeup_id=wish.wakeup_id,
            stage=stage,
            comment_ids=wish.comment_ids,
            fresh_session=wish.fresh_session,
            context=wish.context,
            told_bytes=made.told_bytes,
        )
    )


_JOINABLE = {WakeupState.QUEUED: Stage.QUEUED, WakeupState.DEFERRED: Stage.DEFERRED}


def _merged(target: Decided, merge: _Merge) -> Decided:
    """Write what joined a wish of the same batch with the wish itself."""
    wish = replace(
        target.wish,
        comment_ids=tuple(merge.comment_ids),
        fresh_session=merge.fresh_session,
        context=merge.context,
    )
    return replace(
        target,
        wish=wish,
        coalesced_count=merge.joined,
        told_bytes=target.told_bytes + merge.told_bytes,
    )


async def _merge(tx: Tx, merges: Mapping[UUID, _Merge]) -> None:
    if not merges:
        return
    # In the order in which everybody locks wakeups.
    ordered = sorted(merges)
    await tx.fetch(Q["lock_wakeups"], ordered)
    each = [merges[wakeup_id] for wakeup_id in ordered]
    await tx.execute(
        Q["merge_wakes"],
        ordered,
        [merge.joined for merge in each],
        [array_of(merge.comment_ids) for merge in each],
        [merge.fresh_session for merge in each],
        [merge.context for merge in each],
        [merge.told_bytes for merge in each],
    )
    hurried = sorted(merge.hurry for merge in each if merge.hurry is not None)
    if hurried:
        await tx.fetch(Q["lock_runs"], hurried)
        await tx.execute(Q["hurry_retries"], hurried)


async def _note_timers(tx: Tx, decided: Iterable[Decided]) -> None:
    """A timer that found no work has looked: its next look is an interval away."""
    looked = sorted(
        {each.wish.agent_id for each in decided if each.reason == Reason.NO_ACTIONABLE_WORK.value}
    )
    if looked:
        await tx.execute(Q["note_timers"], looked)


def _answer(each: Decided) -> Enqueued:
    return Enqueued(each.wish.wakeup_id, each.state, each.reason, each.message)
