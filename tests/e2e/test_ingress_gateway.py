"""The gateway killed at every durable boundary: one delivery, one run, one outcome."""

from __future__ import annotations

import pytest

from reveille.autopilot.v1 import run_pb2
from reveille.webhook.v1 import delivery_service_pb2 as deliveries
from reveille_webhook import crash_points as points

from .crashing import Crasher, Rule, Sender
from .harness import CREATE_ISSUE, RUN_ONLY

GATEWAY = "webhook-gateway"


# What people and the scheduler ask for is not on the way of a delivery.
ON_THE_WAY = [
    each
    for each in points.CRASH_POINTS
    if each
    not in {points.AFTER_REPLAY, points.AFTER_WITHDRAWAL, points.AFTER_HELD, points.AFTER_PRUNED}
]


@pytest.mark.parametrize("point", ON_THE_WAY)
async def test_a_death_of_the_gateway_loses_and_doubles_nothing(crash: Crasher, point: str) -> None:
    # The mode is autopilot's business; one of the two is as good as the other here.
    rule = await Rule.make(crash.world, RUN_ONLY if "dispatch" in point else CREATE_ISSUE)
    sender = await Sender.of(rule)

    await crash.arm(GATEWAY, point)
    answer = await sender.post()
    await crash.met(GATEWAY)
    await crash.recover(GATEWAY)

    if not await sender.stored():
        # Nothing was kept and nothing was answered: its sender has to repeat it.
        assert answer is None
        assert point == points.BEFORE_STORE
        answer = await sender.post()
        assert answer is not None
        assert answer.json["status"] in {"accepted", "queued"}
    run = await rule.the_run(sender.hook.trigger_id)
    (attempt,) = await rule.completed_once(run.run_id)
    assert attempt.attempt == 1
    await sender.check(run)
    delivery = await crash.world.finished_delivery(run.delivery_id)
    assert delivery.state == deliveries.DELIVERY_STATE_DISPATCHED


async def test_a_repetition_after_a_death_is_the_same_delivery(crash: Crasher) -> None:
    rule = await Rule.make(crash.world, RUN_ONLY)
    sender = await Sender.of(rule)

    await crash.arm(GATEWAY, points.AFTER_STORE)
    assert await sender.post() is None
    await crash.met(GATEWAY)
    await crash.recover(GATEWAY, 0)
    answer = await sender.post()

    assert answer is not None
    assert answer.json["status"] in {"duplicate", "queued"}
    run = await rule.the_run(sender.hook.trigger_id)
    assert answer.json["delivery_id"] == run.delivery_id
    await rule.completed_once(run.run_id)
    await sender.check(run)
    assert run.source == run_pb2.RUN_SOURCE_WEBHOOK
