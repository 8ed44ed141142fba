"""The relay: what differs is sent until it is there, in order, past rows the receiver refuses."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from reveille_runtime.desired import Pushed, Relay
from reveille_runtime.errors import InvalidArgument, ResourceExhausted, Unavailable


@dataclass(frozen=True)
class Row:
    id: UUID
    revision: int


class World:
    """The sender's table and the receiver, each as it behaves when asked."""

    def __init__(self) -> None:
        self.revisions: dict[UUID, int] = {}
        self.synced: dict[UUID, int] = {}
        self.received: list[Row] = []
        self.refused: set[UUID] = set()
        self.cause = "no"
        self.noted: list[tuple[UUID, int, str]] = []
        self.now = 0.0
        self.away: Exception | None = None
        self.gate: asyncio.Event | None = None
        self.pushing = asyncio.Event()
        self.overlapping: set[UUID] = set()
        self._under_way: set[UUID] = set()

    def change(self, number: int) -> UUID:
        row_id = UUID(int=number)
        self.revisions[row_id] = self.revisions.get(row_id, 0) + 1
        return row_id

    def differing(self) -> list[Row]:
        return [
            Row(row_id, revision)
            for row_id, revision in sorted(self.revisions.items())
            if self.synced.get(row_id) != revision
        ]

    async def pending(self, after: UUID, limit: int) -> list[Row]:
        return [row for row in self.differing() if row.id > after][:limit]

    async def load(self, ids: Sequence[UUID]) -> list[Row]:
        return [row for row in self.differing() if row.id in ids]

    async def push(self, rows: Sequence[Row]) -> Pushed:
        ids = {row.id for row in rows}
        self.overlapping |= ids & self._under_way
        self._under_way |= ids
        self.pushing.set()
        try:
            if self.gate is not None:
                await self.gate.wait()
            if self.away is not None:
                raise self.away
            self.received += rows
            refused = ids & self.refused
            return Pushed(ids - refused, dict.fromkeys(refused, self.cause))
        finally:
            self._under_way -= ids

    async def mark(self, ids: Sequence[UUID], revisions: Sequence[int]) -> None:
        for row_id, revision in zip(ids, revisions, strict=True):
            if self.revisions[row_id] == revision:
                self.synced[row_id] = revision

    async def note(
        self, ids: Sequence[UUID], revisions: Sequence[int], causes: Sequence[str]
    ) -> None:
        self.noted += zip(ids, revisions, causes, strict=True)

    def relay(self, batch: int = 200) -> Relay[Row]:
        return Relay(
            "test",
            pending=self.pending,
            load=self.load,
            push=self.push,
            mark=self.mark,
            note=self.note,
            batch=batch,
            monotonic=lambda: self.now,
        )


@pytest.fixture
def world() -> World:
    return World()


async def test_all_that_differs_is_sent_in_batches_and_then_nothing(world: World) -> None:
    for number in range(1, 6):
        world.change(number)
    relay = world.relay(batch=2)
    assert [await relay.step() for _ in range(3)] == [0.0, 0.0, None]
    assert world.differing() == []
    assert len(world.received) == 5

    assert await relay.step() is None
    assert len(world.received) == 5


async def test_a_change_while_its_row_is_sent_is_sent_again(world: World) -> None:
    row_id = world.change(1)
    relay = world.relay()
    world.gate = asyncio.Event()
    step = asyncio.create_task(relay.step())
    await world.pushing.wait()
    world.change(1)
    world.gate.set()
    await step
    assert world.differing() == [Row(row_id, 2)]

    await relay.step()
    assert world.received == [Row(row_id, 1), Row(row_id, 2)]
    assert world.differing() == []


@pytest.mark.parametrize("away", [Unavailable("DOWN"), ResourceExhausted("OVERLOADED")])
async def test_an_outage_is_waited_for_with_growing_pauses(world: World, away: Exception) -> None:
    row_id = world.change(1)
    relay = world.relay()
    world.away = away
    assert await relay.push_now(row_id) is False
    pauses = [await relay.step() for _ in range(4)]
    assert all(pause is not None for pause in pauses)
    assert pauses == sorted(pauses, key=lambda pause: pause or 0.0)
    assert len(set(pauses)) == 4

    world.away = None
    assert await relay.step() is None
    assert world.differing() == []


async def test_a_refused_row_does_not_stand_in_the_way(world: World) -> None:
    for number in range(1, 8):
        world.change(number)
    world.refused = {UUID(int=1), UUID(int=2), UUID(int=3)}
    relay = world.relay(batch=3)
    while await relay.step() is not None:
        pass
    assert {row.id for row in world.differing()} == world.refused

    # A later round comes to them again.
    world.refused = set()
    world.now += 5
    while await relay.step() is not None:
        pass
    assert world.differing() == []


async def test_a_refused_state_rests_longer_each_time_and_is_told_once(
    world: World,
) -> None:
    refused, good = world.change(1), world.change(2)
    world.refused = {refused}
    relay = world.relay()
    offered = []
    with capture_logs() as logged:
        for _ in range(2000):
            await relay.step()
            if any(row.id == refused for row in world.received):
                offered.append(world.now)
            world.received.clear()
            world.now += 1

    assert world.synced == {good: 1}
    pauses = [later - earlier for earlier, later in itertools.pairwise(offered)]
    assert pauses[0] <= 5
    assert 200 <= max(pauses) <= 300
    assert len(offered) < 18
    assert world.noted == [(refused, 1, "no")]
    assert [(each["action"], each["log_level"]) for each in logged] == [("relay.refused", "error")]

    world.cause = "never"
    world.now += 300
    await relay.step()
    assert world.noted[1:] == [(refused, 1, "never")]


async def test_a_change_of_a_refused_row_is_sent_at_once(world: World) -> None:
    row_id = world.change(1)
    world.refused = {row_id}
    relay = world.relay()
    await relay.step()
    world.change(1)
    await relay.step()
    assert world.noted == [(row_id, 1, "no"), (row_id, 2, "no")]
    # Whoever waits for the row asks anew, however often it was refused.
    world.refused = set()
    assert await relay.push_now(row_id) is True


async def test_a_refusal_is_forgotten_once_its_row_differs_no_more(world: World) -> None:
    first, second = world.change(1), world.change(2)
    world.refused = {first, second}
    relay = world.relay(batch=1)
    while await relay.step() is not None:
        pass
    # Another replica got the first one through; a restored database has it differ again.
    world.synced[first] = 1
    while await relay.step() is not None:
        pass
    world.synced[first] = 0
    world.refused = set()
    while await relay.step() is not None:
        pass
    assert [row.id for row in world.differing()] == [second]


async def test_an_error_that_is_no_outage_is_raised_and_passed_over(world: World) -> None:
    for number in range(1, 4):
        world.change(number)
    relay = world.relay(batch=2)
    world.away = InvalidArgument(message="bad row")
    with pytest.raises(InvalidArgument):
        await relay.step()
    world.away = None
    await relay.step()
    assert world.received == [Row(UUID(int=3), 1)]


async def test_push_now_answers_whether_the_receiver_has_it(world: World) -> None:
    relay = world.relay()
    assert await relay.push_now(world.change(1)) is True
    assert world.differing() == []
    # Nothing differs: it is there.
    assert await relay.push_now(UUID(int=1)) is True
    world.refused = {UUID(int=2)}
    assert await relay.push_now(world.change(2)) is False


async def test_push_now_gives_up_in_time_and_the_relay_goes_on(world: World) -> None:
    relay = world.relay()
    world.gate = asyncio.Event()
    row_id = world.change(1)
    assert await relay.push_now(row_id, timeout=0.01) is False
    world.away = Unavailable("DOWN")
    world.gate = None
    assert await relay.push_now(row_id) is False
    world.away = None
    await relay.step()
    assert world.differing() == []


async def test_a_row_is_never_under_way_twice_and_the_later_push_sends_the_later_state(
    world: World,
) -> None:
    row_id = world.change(1)
    other = world.change(2)
    relay = world.relay()
    world.gate = asyncio.Event()
    step = asyncio.create_task(relay.step())
    await world.pushing.wait()
    world.change(1)
    now = asyncio.create_task(relay.push_now(row_id))
    another_step = asyncio.create_task(relay.step())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not now.done()
    world.gate.set()

    assert await now is True
    await step
    await another_step
    assert world.overlapping == set()
    assert world.received == [Row(row_id, 1), Row(other, 1), Row(row_id, 2)]
    assert world.differing() == []


async def test_a_cancelled_push_leaves_nothing_reserved(world: World) -> None:
    row_id = world.change(1)
    relay = world.relay()
    world.gate = asyncio.Event()
    now = asyncio.create_task(relay.push_now(row_id))
    await world.pushing.wait()
    now.cancel()
    with pytest.raises(asyncio.CancelledError):
        await now
    world.gate = None

    await relay.step()
    assert world.differing() == []
