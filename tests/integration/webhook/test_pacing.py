"""Moments within a hook's rate: who takes one, who waits long for it, what another rate does."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest
from tests.integration.webhook.conftest import Gateway, Hook, Stage, endpoint_of
from tests.integration.webhook.peer import FakeAutopilot
from tests.integration.webhook.test_options import BODY, options, send, states

from reveille.webhook.v1 import endpoint_service_pb2 as endpoint_pb
from reveille_testkit.waiting import eventually

PACE = """
SELECT row(next_slot_at, window_started_at, window_count, tripped_at)::text
FROM webhook.endpoints WHERE id = $1
"""


async def wish(gateway: Gateway, hook: Hook, revision: int = 2, **fields: Any) -> None:
    """Have a hook as autopilot wants it by now."""
    await gateway.endpoints().PutEndpoint(
        endpoint_pb.PutEndpointRequest(
            endpoint=endpoint_of(hook, revision=revision, options=options(**fields))
        )
    )


async def blocked(gateway: Gateway, number: int) -> None:
    """Wait until so many of the gateway's transactions wait for a lock."""

    async def waiting() -> int:
        found: int = await gateway.sql(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return found

    await eventually(waiting, f"{number} wait for a lock", until=lambda seen: seen >= number)


async def steps(gateway: Gateway) -> set[float]:
    """Give what lies between the moments of those that wait."""
    moments = sorted(
        row["available_at"] for row in await gateway.rows() if row["state"] == "queued"
    )
    return {(later - one).total_seconds() for one, later in itertools.pairwise(moments)}


async def test_copies_take_no_moment_and_count_in_no_budget(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook(options=options(rate_per_minute=2, hourly_budget=3))
    await send(gateway, hook, 3)
    await gateway.work()
    before = await gateway.sql(PACE, hook.id)
    assert await states(gateway) == ["dispatched", "dispatched", "queued"]

    # Of those that were dispatched, and of the one that waits.
    for _ in range(4):
        await send(gateway, hook, 3)
    await gateway.work()
    meanwhile = await gateway.sql(PACE, hook.id)
    gateway.database.move_clock(31)
    await gateway.work()

    assert [row["attempt_count"] for row in await gateway.rows()] == [5, 5, 5]
    assert (meanwhile, await gateway.sql(PACE, hook.id)) == (before, before)
    assert await states(gateway) == ["dispatched"] * 3
    assert len(peer.bodies) == 3


async def test_a_higher_rate_is_that_of_what_waits_already(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook(options=options(rate_per_minute=1, hourly_budget=5))
    for number in range(5):
        await gateway.post(hook, b"{}", delivery=f"d-{number}")
    await gateway.work()
    slow = await steps(gateway)

    await wish(gateway, hook, rate_per_minute=600, hourly_budget=5)
    gateway.database.move_clock(2)
    await gateway.work()

    assert slow == {60.0}
    # None was counted twice, and so none is held.
    assert await states(gateway) == ["dispatched"] * 5
    assert await gateway.sql("SELECT window_count FROM webhook.endpoints") == 5
    order = [each.headers["x-github-delivery"] for each in peer.bodies]
    assert (order[0], sorted(order[1:])) == ("d-0", ["d-1", "d-2", "d-3", "d-4"])
    # What comes now waits for nobody's old moment.
    await gateway.post(hook, BODY, delivery="late")
    await gateway.work()
    assert await states(gateway) == ["dispatched"] * 5 + ["held"]


async def test_a_lower_rate_is_that_of_what_waits_already_and_keeps_its_order(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook(options=options(rate_per_minute=2))
    for number in range(6):
        await gateway.post(hook, b"{}", delivery=f"d-{number}")
    await gateway.work()
    waiting = await gateway.rows()

    await wish(gateway, hook, rate_per_minute=1)
    await gateway.work()

    moments = {row["dedupe_key"]: row["available_at"] for row in await gateway.rows()}
    assert await states(gateway) == ["dispatched"] * 3 + ["queued"] * 3
    assert await steps(gateway) == {60.0}
    names = [row["dedupe_key"] for row in waiting if row["state"] == "queued"][1:]
    assert sorted(names, key=lambda name: moments[name]) == names


@pytest.mark.parametrize("revision", [1, 2])
async def test_without_another_rate_moments_stay(
    gateway: Gateway, peer: FakeAutopilot, revision: int
) -> None:
    hook = await gateway.hook(options=options(rate_per_minute=1))
    await send(gateway, hook, 4)
    await gateway.work()
    before = [row["available_at"] for row in await gateway.rows()]
    pace = await gateway.sql(PACE, hook.id)

    # A wish that is not newer says nothing; a newer one may be about something else.
    rate = 1 if revision == 2 else 600
    await wish(gateway, hook, revision, rate_per_minute=rate, hourly_budget=9)
    await gateway.work()

    assert [row["available_at"] for row in await gateway.rows()] == before
    assert await gateway.sql(PACE, hook.id) == pace


async def test_another_rate_moves_nothing_that_was_tried_already(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook(options=options(rate_per_minute=1))
    peer.away = grpc.StatusCode.UNAVAILABLE
    await gateway.post(hook, BODY, delivery="d-1")
    gateway.database.move_clock(3)
    for _ in range(5):
        await gateway.work()
        gateway.database.move_clock(61)
    await gateway.work()
    before = await gateway.row()

    await wish(gateway, hook, rate_per_minute=600)

    assert before["give_backs"] == 6
    assert await gateway.row() == before


@pytest.mark.parametrize("claims_first", [True, False])
async def test_of_a_claim_and_another_rate_that_meet_the_new_rate_counts(
    stage: Stage, gateway: Gateway, peer: FakeAutopilot, claims_first: bool
) -> None:
    hook = await gateway.hook(options=options(rate_per_minute=2))
    await send(gateway, hook, 6)
    await gateway.settled()
    other = await stage.database.connect("reveille_webhook_app")
    deeds: list[Callable[[], Awaitable[None]]] = [
        gateway.work,
        lambda: wish(gateway, hook, rate_per_minute=600),
    ]
    tasks = []
    async with other.transaction():
        # Whoever asks first for the hook gets it first.
        await other.execute("SELECT FROM endpoints WHERE id = $1 FOR UPDATE", hook.id)
        for number, deed in enumerate(deeds if claims_first else reversed(deeds), 1):
            tasks.append(asyncio.ensure_future(deed()))
            await blocked(gateway, number)
    await asyncio.gather(*tasks)
    gateway.database.move_clock(2)
    await gateway.work()

    assert await states(gateway) == ["dispatched"] * 6
    assert len(peer.bodies) == 6
