"""Store deliveries by the batch, and find the originals of those that came before.

The unique index decides which of several copies is the delivery. The others are counted in a second
statement, which sees what the first one had to give way to.

That a hook's breaker was open is known from before its request was read, and whoever closed it
since let go what was held. So what came as held is stored under the lock of the hook, as it is now.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from reveille_runtime.batcher import Batcher
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx
from reveille_runtime.errors import Unavailable
from reveille_webhook import crash_points
from reveille_webhook.domain.delivery import Facts, Known, NewDelivery
from reveille_webhook.domain.states import DeliveryState
from reveille_webhook.store import deliveries, endpoints
from reveille_webhook.store.deliveries import Copies, Stored
from reveille_webhook.usecases.contents import Contents

STORE_PATIENCE = 5.0
# What a request passes through in batches costs more per batch than per item; something slow, a
# large body for instance, holds the others up for no longer than this.
GATHER_SECONDS = 0.05
# Half of the senders that wait are served while the other half's answers are on their way: batches
# that take all there is would leave everybody else idle in turn.
MOST_TOGETHER = 32
_ROUNDS = 5
_Key = tuple[UUID, str]


@dataclass(frozen=True, slots=True)
class _Sorted:
    """A batch in the order of its conflict keys, with each key's copies apart from its first."""

    firsts: Sequence[NewDelivery]
    copies: Mapping[_Key, Sequence[NewDelivery]]


class StoreDelivery:
    """Puts requests into rows; what it gave is durable."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._contents = Contents()
        self._batcher: Batcher[NewDelivery, Known] = Batcher(
            "deliveries",
            self._store,
            max_items=MOST_TOGETHER,
            max_in_flight=2,
            gather=GATHER_SECONDS,
            size=lambda each: len(each.body),
        )

    async def __call__(self, delivery: NewDelivery, timeout: float) -> Known:
        """Store one; gives it, or the live delivery that it is a copy of.

        Raises:
            Exception: the database did not take it. It may be stored all the same: its sender will
                send it again, and that will be a copy.
        """
        return await self._batcher.submit(delivery, timeout=timeout)

    async def _store(self, batch: Sequence[NewDelivery]) -> list[Known | Exception]:
        groups = _sorted(batch)
        crash_point(crash_points.BEFORE_STORE)
        known = await self._insert(groups)
        crash_point(crash_points.AFTER_STORE)
        return [known.get(each.id, _contended()) for each in batch]

    async def _insert(self, groups: _Sorted) -> dict[UUID, Known]:
        """Store what is new and find what the others are copies of.

        Each step commits by itself: what a death leaves uncounted is sent again.
        """
        known: dict[UUID, Known] = {}
        remaining, later = _by_content(groups.firsts)
        copies = {key: list(each) for key, each in groups.copies.items()}
        for _ in range(_ROUNDS):
            if remaining:
                stored = await self._put(remaining)
                known |= {
                    each.id: _new(each, stored[each.id]) for each in remaining if each.id in stored
                }
                for each in remaining:
                    if each.id not in stored and each.conflict_key is not None:
                        copies.setdefault(each.conflict_key, []).append(each)
                remaining = [
                    each
                    for each in remaining
                    if each.id not in stored and each.conflict_key is None
                ]
            lost = [*remaining, *itertools.chain(*copies.values())]
            if not lost and not later:
                break
            if lost:
                async with self._database.session() as tx:
                    known |= await _counted(tx, copies)
                    known |= await _refused(tx, [each for each in lost if each.id not in known])
            remaining = [each for each in remaining if each.id not in known]
            copies = {
                key: left
                for key, each in copies.items()
                if (left := [copy for copy in each if copy.id not in known])
            }
            # What stood in the way has come to nothing since: its id is free for the first copy.
            remaining += [copies[key].pop(0) for key in sorted(copies)]
            copies = {key: each for key, each in copies.items() if each}
            remaining, later = [*later, *remaining], []
        return known

    async def _put(self, rows: Sequence[NewDelivery]) -> dict[UUID, Stored]:
        """Insert rows; gives those that are there by now, those of an earlier try included."""
        contents = {each.content_key for each in rows if each.content_key and not each.content_once}
        async with self._contents.storing(contents):
            return await self._inserted(rows)

    async def _inserted(self, rows: Sequence[NewDelivery]) -> dict[UUID, Stored]:
        held = {each.endpoint_id for each in rows if each.state is DeliveryState.HELD}
        if not held:
            async with self._database.session() as tx:
                return await _stored(tx, rows)
        # Whoever closes a breaker changes the row that is held here: either these are committed
        # before and are found, or they are what comes in where it is closed.
        async with self._database.transaction() as tx:
            tripped = await endpoints.hold_breakers(tx, held)
            return await _stored(
                tx, [each if each.endpoint_id in tripped else each.let_go() for each in rows]
            )


async def _stored(tx: Tx, rows: Sequence[NewDelivery]) -> dict[UUID, Stored]:
    stored = await deliveries.insert(tx, rows)
    if len(stored) < len(rows):
        stored |= await deliveries.find_own(tx, [each.id for each in rows if each.id not in stored])
    return stored


async def _counted(tx: Tx, copies: Mapping[_Key, Sequence[NewDelivery]]) -> dict[UUID, Known]:
    """Count copies with their originals, where those are live."""
    if not copies:
        return {}
    originals = await deliveries.count_copies(
        tx,
        {
            key: Copies(len(copies[key]), max(each.retries for each in copies[key]))
            for key in sorted(copies)
        },
    )
    return {each.id: original for key, original in originals.items() for each in copies[key]}


async def _refused(tx: Tx, lost: Sequence[NewDelivery]) -> dict[UUID, Known]:
    """Find those that are kept out by their content, which lives under another id."""
    once = {each.id: each.content_key for each in lost if each.content_once}
    if not once:
        return {}
    originals = await deliveries.originals_of_content(
        tx, [key for key in once.values() if key is not None]
    )
    return {
        each: originals[key] for each, key in once.items() if key is not None and key in originals
    }


def _sorted(batch: Sequence[NewDelivery]) -> _Sorted:
    """Put a batch in one order for everybody, so that two batches cannot wait for each other."""
    firsts: list[NewDelivery] = []
    copies: dict[_Key, list[NewDelivery]] = {}
    seen: set[_Key] = set()
    for each in sorted(batch, key=lambda each: (each.endpoint_id, each.dedupe_key or "")):
        key = each.conflict_key
        if key is not None and key in seen:
            copies.setdefault(key, []).append(each)
            continue
        if key is not None:
            seen.add(key)
        firsts.append(each)
    return _Sorted(firsts, copies)


def _by_content(batch: Sequence[NewDelivery]) -> tuple[list[NewDelivery], list[NewDelivery]]:
    """Put those apart whose content another one has: a statement does not see what it stores.

    Where content may come once, the index decides.
    """
    firsts: list[NewDelivery] = []
    later: list[NewDelivery] = []
    seen: set[bytes] = set()
    for each in batch:
        key = None if each.content_once else each.content_key
        (later if key in seen else firsts).append(each)
        if key is not None:
            seen.add(key)
    return firsts, later


def _new(delivery: NewDelivery, stored: Stored) -> Known:
    facts = Facts(
        delivery_id=delivery.id,
        endpoint_id=delivery.endpoint_id,
        workspace_id=delivery.workspace_id,
        event=delivery.event,
        actions=delivery.actions,
        body_bytes=len(delivery.body),
        body_sha256=delivery.body_sha256,
        received_at=stored.received_at,
        carrier=delivery.carrier,
    )
    return Known(facts, is_copy=False, judged=False, held=stored.held)


def _contended() -> Unavailable:
    return Unavailable("OVERLOADED", "the delivery's id changed hands too often", retry_after=1.0)
