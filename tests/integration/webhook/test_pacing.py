"""Moments within a hook's rate: who takes one, who waits long for it, what another rate does."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import grpc
import pytest
from tests.integration.webhook.conftest import Gateway, Hook, Stage, endpoint_of
from tests.integration.webhook.peer import FakeAutopilot
from tests.integration.webhook.test_options import BODY, options, send, states

from reveille.autopilot.v1 import dispatch_service_pb2 as autopilot_pb
from reveille.common.v1 import reason_pb2
from reveille.webhook.v1 import endpoint_service_pb2 as endpoint_pb
from reveille_testkit.waiting import eventually
from reveille_webhook.store import endpoints

HOUR = 3600.0
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


async def behind(gateway: Gateway, hook: Hook, hours: float) -> None:
    """Have the hook's moments for so long be those of others."""
    await gateway.sql(
        "UPDATE webhook.endpoints SET next_slot_at = now() + $2 * interval '1 h' WHERE id = $1"
        " RETURNING 1",
        hook.id,
        hours,
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


def outlived(first: str, clean: str) -> Callable[[autopilot_pb.DeliveryBody], Any]:
    """Answer as autopilot does where it gave up the run that the delivery was admitted as."""

    def answer(body: autopilot_pb.DeliveryBody) -> autopilot_pb.DispatchResult:
        if body.run_id == clean:
            return autopilot_pb.DispatchResult(
                delivery_id=body.delivery_id, outcome=autopilot_pb.DISPATCH_OUTCOME_DISPATCHED
            )
        assert body.run_id == first
        return autopilot_pb.DispatchResult(
            delivery_id=body.delivery_id,
            outcome=autopilot_pb.DISPATCH_OUTCOME_FAILED,
            reason=reason_pb2.REASON_DISPATCH_INCOMPLETE,
        )

    return answer


def admitted_as(run_id: str) -> Callable[[autopilot_pb.DeliveryFacts], autopilot_pb.AdmitResult]:
    return lambda facts: autopilot_pb.AdmitResult(
        delivery_id=facts.delivery_id,
        outcome=autopilot_pb.ADMIT_OUTCOME_ACCEPTED,
        run_id=run_id,
    )


async def test_what_waits_longer_than_its_run_is_judged_anew_at_its_moment(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook(options=options(rate_per_minute=1))
    await behind(gateway, hook, 30)
    first = (await gateway.post(hook, BODY, delivery="d-1")).json["run_id"]
    await gateway.work()
    waiting = await gateway.row()
    # Its copy hears the same; that makes no judgement of today one of tomorrow.
    copy = (await gateway.post(hook, BODY, delivery="d-1")).json
    told = await gateway.row()
    clean = str(uuid4())
    peer.admits = admitted_as(clean)
    peer.dispatches = outlived(first, clean)

    gateway.database.move_clock(30 * HOUR + 60)
    await gateway.work()

    for each in (waiting, told):
        assert (each["state"], each["admission"], str(each["run_id"])) == ("queued", None, first)
    assert (copy["status"], copy["run_id"]) == ("duplicate", first)
    row = await gateway.row()
    assert (row["state"], str(row["run_id"]), row["dispatch_attempts"]) == ("dispatched", clean, 1)
    assert [each.run_id for each in peer.bodies] == [clean]


async def test_a_run_that_was_given_up_between_two_attempts_is_followed_by_a_clean_one(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook(options=options(rate_per_minute=1))
    await behind(gateway, hook, 20)
    first = (await gateway.post(hook, BODY, delivery="d-1")).json["run_id"]
    await gateway.work()
    gateway.database.move_clock(20 * HOUR + 60)
    peer.away = grpc.StatusCode.UNAVAILABLE
    await gateway.work()
    clean = str(uuid4())
    peer.away = None
    peer.admits = admitted_as(clean)
    peer.dispatches = outlived(first, clean)

    # Its day begins with its moment, not with its arrival.
    gateway.database.move_clock(23 * HOUR)
    await gateway.work()

    row = await gateway.row()
    assert (row["state"], str(row["run_id"])) == ("dispatched", clean)


async def test_a_day_without_success_is_counted_from_a_moment_that_was_far_off(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook(options=options(rate_per_minute=1))
    await behind(gateway, hook, 30)
    await gateway.post(hook, BODY, delivery="d-1")
    await gateway.work()
    peer.away = grpc.StatusCode.UNAVAILABLE
    gateway.database.move_clock(30 * HOUR + 1)
    await gateway.work()
    gateway.database.move_clock(23 * HOUR)
    await gateway.work()
    late = await gateway.row()
    gateway.database.move_clock(HOUR)
    await gateway.work()
    row = await gateway.row()

    assert (late["state"], late["give_backs"]) == ("queued", 2)
    assert (row["state"], row["reason"]) == ("failed", "dispatch_deadline")


async def test_what_waits_a_little_is_judged_once(gateway: Gateway, peer: FakeAutopilot) -> None:
    hook = await gateway.hook(options=options(rate_per_minute=1))
    await send(gateway, hook, 4)
    await gateway.work()
    gateway.database.move_clock(HOUR)
    await gateway.work()

    assert await states(gateway) == ["dispatched"] * 4
    assert len(peer.admitted) == 4


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


async def test_of_a_quiet_minute_its_share_is_there_under_another_rate(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook(options=options(rate_per_minute=6))
    await gateway.post(hook, b"{}")
    await gateway.work()
    gateway.database.move_clock(600)

    await wish(gateway, hook, rate_per_minute=5)
    for _ in range(5):
        await gateway.post(hook, b"{}")
    await gateway.work()

    assert await states(gateway) == ["dispatched"] * 6


async def test_of_very_many_the_nearest_take_another_rate(
    gateway: Gateway, peer: FakeAutopilot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoints, "PACED_ANEW", 2)
    hook = await gateway.hook(options=options(rate_per_minute=1))
    for number in range(5):
        await gateway.post(hook, b"{}", delivery=f"d-{number}")
    await gateway.work()

    await wish(gateway, hook, rate_per_minute=600)
    gateway.database.move_clock(2)
    await gateway.work()

    waiting = [row["dedupe_key"] for row in await gateway.rows() if row["state"] == "queued"]
    assert waiting == ["d-3", "d-4"]


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
