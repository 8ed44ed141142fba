"""The worker's step: how much it claims, since when, and how soon it looks again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from reveille_webhook.store.queue import Taken
from reveille_webhook.workers.dispatcher import Dispatcher

NOTHING = Taken([], 0, [], None)


class Rig:
    """A dispatcher whose claim takes a second, and whose deliveries end when they may."""

    def __init__(self, taken: Taken, capacity: int) -> None:
        self.taken = taken
        self.moment = 100.0
        self.limits: list[int] = []
        self.since: list[float] = []
        self.may_end = asyncio.Event()
        keeper: Any = SimpleNamespace(now=lambda: self.moment)
        claim: Any = self._claim
        deliver: Any = self._deliver
        self.dispatcher = Dispatcher(claim, deliver, keeper, capacity, grace=1.0)

    async def _claim(self, limit: int) -> Taken:
        self.limits.append(limit)
        self.moment += 1
        return self.taken

    async def _deliver(self, _claim: object, since: float) -> None:
        self.since.append(since)
        await self.may_end.wait()


def claims(number: int) -> Taken:
    each: Any = [SimpleNamespace(id=uuid4()) for _ in range(number)]
    return Taken(each, 0, [], None)


async def test_a_lease_is_counted_from_before_its_claim_and_no_more_are_claimed_than_fit() -> None:
    rig = Rig(claims(2), capacity=3)

    first = await rig.dispatcher.step()
    rig.taken = claims(1)
    second = await rig.dispatcher.step()
    full = await rig.dispatcher.step()
    rig.may_end.set()
    await rig.dispatcher.stop()

    assert rig.since == [100.0, 100.0, 101.0]
    assert rig.limits == [3, 1]
    assert (first, second) == (0, 0)
    assert full is not None
    assert full > 0


@pytest.mark.parametrize(
    ("taken", "wait"),
    [
        (NOTHING, None),
        (Taken([], 1, [], None), 0),
        (Taken([], 0, [uuid4()], None), 0),
    ],
    ids=["nothing", "put off", "held"],
)
async def test_as_long_as_a_look_finds_anything_another_follows(
    taken: Taken, wait: float | None
) -> None:
    rig = Rig(taken, capacity=1000)

    assert await rig.dispatcher.step() == wait
    assert rig.limits == [200]
