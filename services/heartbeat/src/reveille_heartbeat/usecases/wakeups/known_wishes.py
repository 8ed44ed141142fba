"""Wishes that were made before: by an occurrence's key, by their caller's key, or by this call."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from reveille_heartbeat.domain.states import WakeupState
from reveille_heartbeat.domain.values import Wakeup, Wish
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_wakeup
from reveille_runtime.db import Tx

# A wish is known by the occurrence's key, by its caller's key, or not at all.
Key = tuple[UUID, str, str]


@dataclass(frozen=True, slots=True)
class Enqueued:
    """What became of a wish."""

    wakeup_id: UUID
    state: WakeupState
    reason: str
    message: str
    existed: bool = False

    @classmethod
    def of(cls, wakeup: Wakeup, *, existed: bool = True) -> Enqueued:
        """Answer with what is there already."""
        return cls(wakeup.wakeup_id, wakeup.state, wakeup.reason, wakeup.message, existed)


Answers = dict[UUID, Enqueued]


def key_of(wish: Wish) -> Key | None:
    """Say by what a repeat of this wish would be recognised."""
    if wish.origin.occurrence_key is not None:
        return (wish.workspace_id, "", wish.origin.occurrence_key)
    if wish.idempotency_key is not None:
        return (wish.workspace_id, wish.caller, wish.idempotency_key)
    return None


def without_repeats(wishes: Sequence[Wish]) -> tuple[list[Wish], list[tuple[Wish, Wish]]]:
    """Split off wishes that repeat an earlier one of the same batch."""
    first: dict[Key, Wish] = {}
    kept: list[Wish] = []
    repeats: list[tuple[Wish, Wish]] = []
    for wish in wishes:
        key = key_of(wish)
        if key is not None and key in first:
            repeats.append((wish, first[key]))
            continue
        if key is not None:
            first[key] = wish
        kept.append(wish)
    return kept, repeats


async def made_by_this_call(tx: Tx, wishes: Sequence[Wish]) -> Answers:
    """Answer wishes whose rows an earlier try of this very call has written."""
    found = await _wakeups(tx, [wish.wakeup_id for wish in wishes])
    return {wakeup_id: Enqueued.of(wakeup, existed=False) for wakeup_id, wakeup in found.items()}


async def made_by_caller_key(tx: Tx, wishes: Sequence[Wish]) -> Answers:
    """Answer wishes that their caller has sent before; the other keys are ours from now on."""
    keyed = [wish for wish in wishes if wish.idempotency_key is not None]
    if not keyed:
        return {}
    names = {f"{wish.workspace_id}/{wish.caller}/{wish.idempotency_key}" for wish in keyed}
    await tx.execute(Q["take_idempotency_keys"], sorted(names))
    rows = await tx.fetch(
        Q["find_by_idempotency_key"],
        [wish.workspace_id for wish in keyed],
        [wish.caller for wish in keyed],
        [wish.idempotency_key for wish in keyed],
    )
    by_key = {
        (row["workspace_id"], row["caller"], row["idempotency_key"]): row["wakeup_id"]
        for row in rows
    }
    wakeups = await _wakeups(tx, by_key.values())
    answers: Answers = {}
    for wish in keyed:
        found = by_key.get((wish.workspace_id, wish.caller, wish.idempotency_key))
        if found is not None:
            answers[wish.wakeup_id] = Enqueued.of(wakeups[found])
    return answers


async def made_by_occurrence(tx: Tx, wishes: Sequence[Wish]) -> tuple[Answers, dict[UUID, Wish]]:
    """Take the keys; answer those that were taken, and give those that were cancelled before."""
    keyed = [wish for wish in wishes if wish.origin.occurrence_key is not None]
    if not keyed:
        return {}, {}
    taken = await tx.fetch(
        Q["take_occurrences"],
        [wish.workspace_id for wish in keyed],
        [wish.origin.occurrence_key for wish in keyed],
        [wish.wakeup_id for wish in keyed],
        [None for _ in keyed],
    )
    ours = {(row["workspace_id"], row["occurrence_key"]) for row in taken}
    others = {
        (wish.workspace_id, wish.origin.occurrence_key or ""): wish
        for wish in keyed
        if (wish.workspace_id, wish.origin.occurrence_key) not in ours
    }
    answers, late = await _existing(tx, others)
    if not late:
        return answers, {}
    linked = await tx.fetch(
        Q["link_cancelled_occurrences"],
        [space for space, _ in late],
        [key for _, key in late],
        [wish.wakeup_id for wish in late.values()],
    )
    first = {(row["workspace_id"], row["occurrence_key"]) for row in linked}
    again, _ = await _existing(tx, {key: each for key, each in late.items() if key not in first})
    return answers | again, {each.wakeup_id: each for key, each in late.items() if key in first}


async def _existing(
    tx: Tx, wishes: Mapping[tuple[UUID, str], Wish]
) -> tuple[Answers, dict[tuple[UUID, str], Wish]]:
    """Answer with what the keys have made; give those whose key made nothing."""
    if not wishes:
        return {}, {}
    rows = await tx.fetch(
        Q["find_occurrences"], [space for space, _ in wishes], [key for _, key in wishes]
    )
    made = {
        (row["workspace_id"], row["occurrence_key"]): row["wakeup_id"]
        for row in rows
        if row["wakeup_id"] is not None
    }
    wakeups = await _wakeups(tx, made.values())
    answers = {
        wishes[key].wakeup_id: Enqueued.of(wakeups[wakeup_id]) for key, wakeup_id in made.items()
    }
    return answers, {key: wish for key, wish in wishes.items() if key not in made}


async def _wakeups(tx: Tx, ids: Collection[UUID]) -> dict[UUID, Wakeup]:
    if not ids:
        return {}
    rows = await tx.fetch(Q["find_wakeups"], list(ids))
    return {row["wakeup_id"]: to_wakeup(row) for row in rows}
