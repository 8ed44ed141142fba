"""The worker: what it hands over, when it tries again, when it gives up; it blocks nobody."""

from __future__ import annotations

import asyncio
import hashlib
from datetime import timedelta
from typing import Any
from uuid import UUID

import grpc
import pytest
from tests.integration.webhook.conftest import Gateway, Hook, Stage
from tests.integration.webhook.peer import FakeAutopilot, dispatched, run_of

from reveille.autopilot.v1 import dispatch_service_pb2 as pb
from reveille.common.v1 import reason_pb2
from reveille.webhook.v1 import delivery_service_pb2 as delivery_pb
from reveille_runtime.telemetry import Telemetry
from reveille_webhook.domain.delivery import Ending
from reveille_webhook.domain.states import DeliveryState
from reveille_webhook.store import queue
from reveille_webhook.store.queue import Settlement
from reveille_webhook.usecases.claim import ClaimDeliveries
from reveille_webhook.usecases.measure_queue import MeasureQueue
from reveille_webhook.usecases.trace import Tracing

BODY = b'{"action":"opened"}'
MEGABYTE = 1 << 20


async def arrive(gateway: Gateway, count: int = 1, size: int = 0) -> Hook:
    """Have deliveries come in and be admitted."""
    hook = await gateway.hook(max_body_bytes=8 * MEGABYTE)
    body = BODY if not size else b'{"x":"' + b"y" * (size - 8) + b'"}'
    for number in range(count):
        answer = await gateway.post(hook, body, delivery=f"d-{number}")
        assert answer.json["status"] == "accepted"
    return hook


async def test_what_cannot_be_done_now_is_tried_again_and_costs_no_attempt(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    await arrive(gateway)
    peer.dispatches = lambda each: pb.DispatchResult(
        delivery_id=each.delivery_id,
        outcome=pb.DISPATCH_OUTCOME_UNAVAILABLE,
        message="heartbeat is away",
    )
    for _ in range(7):
        await gateway.work()
        gateway.database.move_clock(61)

    row = await gateway.row()
    assert (row["state"], row["message"]) == ("queued", "heartbeat is away")
    assert (row["dispatch_attempts"], row["give_backs"]) == (0, 7)
    peer.dispatches = dispatched
    await gateway.work()
    row = await gateway.row()
    assert (row["state"], row["dispatch_attempts"], row["message"]) == ("dispatched", 1, "")


async def test_pauses_grow_and_are_kept(gateway: Gateway, peer: FakeAutopilot) -> None:
    await arrive(gateway)
    peer.away = grpc.StatusCode.UNAVAILABLE
    pauses = []
    for _ in range(4):
        await gateway.work()
        pauses.append(
            float(
                await gateway.sql(
                    "SELECT extract(epoch FROM available_at - $1) FROM webhook.deliveries",
                    await gateway.database.now(),
                )
            )
        )
        await gateway.work()
        gateway.database.move_clock(pauses[-1] + 0.01)

    assert [row["give_backs"] for row in await gateway.rows()] == [4]
    assert pauses == sorted(pauses)
    assert 0 < pauses[0] <= 1
    assert 5 < pauses[3] <= 8


async def test_a_day_without_success_ends_it(gateway: Gateway, peer: FakeAutopilot) -> None:
    await arrive(gateway)
    peer.away = grpc.StatusCode.UNAVAILABLE
    await gateway.work()
    gateway.database.move_clock(24 * 3600)

    await gateway.work()

    row = await gateway.row()
    assert (row["state"], row["reason"]) == ("failed", "dispatch_deadline")
    assert "away" in row["message"]
    assert row["run_id"] is not None


async def test_a_refusal_is_repeated_five_times_and_blocks_nobody(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    """A batch that is refused as a whole is halved until the culprit stands alone."""
    await arrive(gateway, 7)
    poison = str((await gateway.rows())[3]["id"])

    def refuse(request: pb.DispatchDeliveriesRequest) -> bool:
        return any(each.delivery_id == poison for each in request.deliveries)

    async def picky(
        request: pb.DispatchDeliveriesRequest, context: Any
    ) -> pb.DispatchDeliveriesResponse:
        if refuse(request):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "this one again")
        return await peer.dispatch(request, context)

    peer.answer_dispatch = picky
    await gateway.work()
    after_one = [row["state"] for row in await gateway.rows()]
    for _ in range(4):
        gateway.database.move_clock(61)
        await gateway.work()

    assert sorted(after_one) == ["dispatched"] * 6 + ["queued"]
    failed = next(row for row in await gateway.rows() if str(row["id"]) == poison)
    assert (failed["state"], failed["reason"]) == ("failed", "dispatch_failed")
    assert (failed["message"], failed["dispatch_attempts"]) == ("this one again", 5)
    assert len(peer.bodies) == 6


async def test_an_autopilot_that_is_away_is_not_asked_again_by_halves(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    await arrive(gateway, 7)
    asked: set[tuple[str, ...]] = set()

    async def away(request: pb.DispatchDeliveriesRequest, context: Any) -> Any:
        # The same call may be repeated.
        asked.add(tuple(each.delivery_id for each in request.deliveries))
        await context.abort(grpc.StatusCode.UNAVAILABLE, "away")

    peer.answer_dispatch = away
    await gateway.work()

    # A batch is halved to find a culprit, and here is none.
    assert sum(map(len, asked)) == 7
    assert {row["give_backs"] for row in await gateway.rows()} == {1}


async def test_a_fault_of_ours_costs_an_attempt_and_ends_after_five(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise KeyError("a bug")

    await arrive(gateway)
    monkeypatch.setattr(queue, "bodies", broken)
    for _ in range(5):
        await gateway.work()
        gateway.database.move_clock(61)

    row = await gateway.row()
    assert (row["state"], row["reason"], row["message"]) == (
        "failed",
        "dispatch_failed",
        "KeyError",
    )
    assert (row["dispatch_attempts"], row["give_backs"]) == (5, 0)


async def test_a_run_that_failed_for_good_fails_its_delivery(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    await arrive(gateway)
    peer.dispatches = lambda each: pb.DispatchResult(
        delivery_id=each.delivery_id,
        outcome=pb.DISPATCH_OUTCOME_FAILED,
        reason=reason_pb2.REASON_DISPATCH_FAILED,
        message="refused downstream",
    )

    await gateway.work()

    row = await gateway.row()
    assert (row["state"], row["reason"], row["message"]) == (
        "failed",
        "dispatch_failed",
        "refused downstream",
    )


async def test_an_answer_that_does_not_mention_it_is_no_success(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    await arrive(gateway)
    peer.dispatches = lambda _: pb.DispatchResult(delivery_id="another")

    await gateway.work()

    row = await gateway.row()
    assert (row["state"], row["dispatch_attempts"]) == ("queued", 1)
    assert "does not mention" in row["message"]


@pytest.mark.parametrize(
    ("outcome", "state", "reason"),
    [
        (pb.ADMIT_OUTCOME_IGNORED, "ignored", "autopilot_paused"),
        (pb.ADMIT_OUTCOME_SKIPPED, "dispatched", "autopilot_paused"),
        (pb.ADMIT_OUTCOME_UNKNOWN_ENDPOINT, "failed", "autopilot_paused"),
        (pb.ADMIT_OUTCOME_UNAVAILABLE, "queued", ""),
    ],
)
async def test_what_nobody_judged_is_judged_by_the_worker(
    gateway: Gateway,
    peer: FakeAutopilot,
    outcome: pb.AdmitOutcome.ValueType,
    state: str,
    reason: str,
) -> None:
    hook = await gateway.hook()
    peer.away = grpc.StatusCode.UNAVAILABLE
    await gateway.post(hook, BODY)
    peer.away = None
    peer.admits = lambda facts: pb.AdmitResult(
        delivery_id=facts.delivery_id,
        outcome=outcome,
        reason=reason_pb2.REASON_AUTOPILOT_PAUSED,
        run_id=run_of(facts.delivery_id) if outcome == pb.ADMIT_OUTCOME_SKIPPED else "",
    )
    gateway.database.move_clock(3)

    await gateway.work()

    row = await gateway.row()
    assert (row["state"], row["reason"], row["lease_token"]) == (state, reason, None)
    assert peer.bodies == []


async def test_once_admitted_it_is_not_judged_again(gateway: Gateway, peer: FakeAutopilot) -> None:
    await arrive(gateway)
    peer.admits = lambda facts: pb.AdmitResult(
        delivery_id=facts.delivery_id, outcome=pb.ADMIT_OUTCOME_IGNORED
    )

    await gateway.work()

    assert (await gateway.row())["state"] == "dispatched"
    assert len(peer.admitted) == 1


async def test_bodies_travel_in_bounded_batches_and_large_ones_are_fetched(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    await arrive(gateway, 5, size=MEGABYTE)
    await arrive(gateway, 1, size=3 * MEGABYTE + 5)
    sizes: list[int] = []

    async def measured(
        request: pb.DispatchDeliveriesRequest, context: Any
    ) -> pb.DispatchDeliveriesResponse:
        sizes.append(sum(len(each.body) for each in request.deliveries))
        return await peer.dispatch(request, context)

    peer.answer_dispatch = measured
    await gateway.work()

    assert {row["state"] for row in await gateway.rows()} == {"dispatched"}
    assert max(sizes) <= 3 * MEGABYTE
    (large,) = (each for each in peer.bodies if each.body_omitted)
    assert large.body == b""
    stub = gateway.deliveries()
    request = delivery_pb.GetDeliveryBodyRequest(delivery_id=large.delivery_id)
    chunks = [each.chunk async for each in stub.GetDeliveryBody(request)]
    row = next(row for row in await gateway.rows() if str(row["id"]) == large.delivery_id)
    assert max(len(chunk) for chunk in chunks) == 256 * 1024
    assert hashlib.sha256(b"".join(chunks)).digest() == row["body_sha256"]
    assert sum(len(chunk) for chunk in chunks) == 3 * MEGABYTE + 5


async def test_two_replicas_share_the_queue_and_none_is_taken_twice(
    stage: Stage, gateway: Gateway, peer: FakeAutopilot
) -> None:
    await arrive(gateway, 30)

    async with stage.gateway() as other:
        await asyncio.gather(gateway.work(), other.work())

    taken = [each.delivery_id for each in peer.bodies]
    assert len(taken) == 30
    assert len(set(taken)) == 30


async def test_a_claim_reads_on_and_leaves_nothing_behind_it(gateway: Gateway) -> None:
    await arrive(gateway, 4)
    close_behind, first, far_behind, next_one = [row["id"] for row in await gateway.rows()]
    now = await gateway.database.now()
    # No time passes, so that it looks at everything for no other reason.
    claim = ClaimDeliveries(
        gateway.database, 60.0, 0, 0, Tracing(Telemetry.off()), clock=lambda: 0.0
    )

    async def due(delivery_id: UUID, seconds_ago: int) -> None:
        await gateway.sql(
            "UPDATE webhook.deliveries SET available_at = $1 WHERE id = $2",
            now - timedelta(seconds=seconds_ago),
            delivery_id,
        )

    async def taken(limit: int) -> set[UUID]:
        return {each.id for each in (await claim(limit)).claims}

    for delivery_id, seconds_ago in (
        (close_behind, -3600),
        (first, 60),
        (far_behind, -3600),
        (next_one, 50),
    ):
        await due(delivery_id, seconds_ago)
    assert await taken(1) == {first}
    # It was not judged yet, or not visible, when others were taken.
    await due(close_behind, 61)
    assert await taken(10) == {close_behind, next_one}
    await due(far_behind, 1000)
    assert await taken(10) == {far_behind}


async def test_a_vanished_worker_s_delivery_is_freed_after_two_looks_and_no_sooner(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    await arrive(gateway)
    await steal(gateway, attempts=4)

    await gateway.step("take over")
    first = await gateway.row()
    before = await gateway.database.now()
    await confirm(gateway)
    freed = await gateway.row()
    gateway.database.move_clock(61)
    await gateway.work()

    assert first["lease_token"] is not None
    assert (freed["state"], freed["lease_token"], freed["dispatch_attempts"]) == (
        "queued",
        None,
        4,
    )
    # It waits as after any failure: what harms its workers shall not take the others along.
    assert freed["available_at"] > before + timedelta(seconds=2)
    assert (await gateway.row())["state"] == "dispatched"
    assert len(peer.bodies) == 1


async def test_a_look_that_found_as_many_as_it_may_is_followed_by_another(
    gateway: Gateway,
) -> None:
    await arrive(gateway, 2)
    await steal(gateway, attempts=1)
    take_over: Any = gateway.app.loops["take over"]._step
    take_over._batch = 1

    await gateway.step("take over")
    soon = await confirm(gateway)
    later = await take_over()

    assert (soon, later) == (0, None)


async def test_a_lease_that_moved_between_the_look_and_the_taking_over_is_kept(
    gateway: Gateway,
) -> None:
    await arrive(gateway, 3)
    await steal(gateway, attempts=1)
    async with gateway.database.session() as tx:
        renewed, changed, gone = await queue.expired(tx, 10)
    await gateway.sql(
        "UPDATE webhook.deliveries SET lease_expires_at = clock_timestamp() + interval '1 min'"
        " WHERE id = $1",
        renewed.lease.id,
    )
    other = UUID("22222222-2222-4222-8222-222222222222")
    await gateway.sql(
        "UPDATE webhook.deliveries SET lease_token = $1 WHERE id = $2", other, changed.lease.id
    )

    ending = Ending(DeliveryState.QUEUED)
    async with gateway.database.session() as tx:
        freed = await queue.take_over(
            tx, [Settlement(each.lease, ending, each.now) for each in (renewed, changed, gone)]
        )

    assert list(freed) == [gone.lease.id]
    held = {row["id"]: row["lease_token"] for row in await gateway.rows()}
    assert held == {
        renewed.lease.id: renewed.lease.token,
        changed.lease.id: other,
        gone.lease.id: None,
    }


async def test_a_judgement_that_comes_late_leaves_what_the_worker_holds_alone(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook()
    peer.may_admit.clear()
    answer = asyncio.ensure_future(gateway.post(hook, BODY))
    await peer.until(lambda peer: bool(peer.admitted))
    await steal(gateway, attempts=1)
    held = await gateway.row()
    peer.may_admit.set()

    assert (await answer).json["status"] == "accepted"
    assert dict(await gateway.row()) == dict(held)


async def test_what_five_workers_did_not_outlive_fails(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    await arrive(gateway)
    await steal(gateway, attempts=5)

    await gateway.step("take over")
    await confirm(gateway)

    row = await gateway.row()
    assert (row["state"], row["reason"]) == ("failed", "dispatch_failed")
    assert peer.bodies == []


async def steal(gateway: Gateway, attempts: int) -> None:
    """Make it look as if another worker had claimed everything and vanished."""
    await gateway.sql(
        "UPDATE webhook.deliveries SET lease_token = gen_random_uuid(), dispatch_attempts = $1,"
        " lease_expires_at = clock_timestamp() - interval '1 s'",
        attempts,
    )


async def confirm(gateway: Gateway) -> float | None:
    """Look again, a renewal later, with our own renewals succeeding in between."""
    assert gateway.app.keeper is not None
    take_over: Any = gateway.app.loops["take over"]._step
    witness = take_over._witness
    await gateway.app.keeper.tick()
    witness._first_seen = {
        lease: seen - witness.interval for lease, seen in witness._first_seen.items()
    }
    wait: float | None = await take_over()
    return wait


async def test_a_lease_that_changed_hands_overwrites_nothing(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    await arrive(gateway)
    peer.may_dispatch.clear()
    await gateway.claim()
    other = UUID("22222222-2222-4222-8222-222222222222")
    await gateway.sql("UPDATE webhook.deliveries SET lease_token = $1", other)
    peer.may_dispatch.set()
    await gateway.idle()

    row = await gateway.row()
    assert (row["state"], row["lease_token"]) == ("queued", other)


async def test_a_lease_that_changed_hands_is_not_renewed(gateway: Gateway) -> None:
    await arrive(gateway, 2)
    await steal(gateway, attempts=1)
    async with gateway.database.session() as tx:
        ours, changed = await queue.expired(tx, 10)
    other = UUID("22222222-2222-4222-8222-222222222222")
    await gateway.sql(
        "UPDATE webhook.deliveries SET lease_token = $1 WHERE id = $2", other, changed.lease.id
    )
    before = {row["id"]: row["lease_expires_at"] for row in await gateway.rows()}

    async with gateway.database.session() as tx:
        kept = await queue.renew(tx, [ours.lease, changed.lease], timedelta(minutes=1))

    after = {row["id"]: row["lease_expires_at"] for row in await gateway.rows()}
    assert list(kept) == [ours.lease.id]
    assert [each for each in after if after[each] != before[each]] == [ours.lease.id]


async def test_a_stopping_gateway_gives_back_what_it_holds(
    stage: Stage, peer: FakeAutopilot
) -> None:
    peer.may_dispatch.clear()
    async with stage.gateway(drain_grace=0.2) as gateway:
        await arrive(gateway)
        await gateway.claim()
        held = await gateway.row()
        await gateway.app.stop()
        given_back = await gateway.row()
    peer.may_dispatch.set()

    assert held["lease_token"] is not None
    assert (given_back["state"], given_back["lease_token"]) == ("queued", None)
    assert (given_back["dispatch_attempts"], given_back["give_backs"]) == (0, 1)
    async with stage.gateway() as successor:
        successor.database.move_clock(61)
        await successor.work()
        assert (await successor.row())["state"] == "dispatched"


async def test_what_waits_is_measured(gateway: Gateway) -> None:
    hook = await gateway.hook()
    for number in range(2):
        await gateway.post(hook, BODY, delivery=f"d-{number}")
    await gateway.sql("UPDATE webhook.deliveries SET state = 'held' WHERE dedupe_key = 'd-1'")
    gateway.database.move_clock(30)
    measure = MeasureQueue(gateway.database, Telemetry.off())

    await measure()

    seen = measure._seen
    assert (seen.due, seen.held) == (1, 1)
    assert 29 <= seen.oldest < 40
