"""Autopilot killed at every durable boundary: one run, one downstream object, one outcome."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from uuid import uuid4

import pytest

from reveille.autopilot.v1 import autopilot_pb2, run_pb2
from reveille.autopilot.v1 import autopilot_service_pb2 as autopilot
from reveille.common.v1 import reason_pb2
from reveille.heartbeat.v1 import run_pb2 as agent_run_pb2
from reveille_autopilot.crash_points import CRASH_POINTS
from reveille_testkit.waiting import eventually

from .crashing import Crasher, Rule, Sender, crossings, scheduled, unless_it_died
from .harness import CREATE_ISSUE, RUN_ONLY, SECRET, Hook, World, marks_in

AUTOPILOT = "autopilot"
Way = Callable[[Crasher, str], Awaitable[None]]


async def posted(crash: Crasher, point: str, *, issue: bool) -> None:
    """A webhook, whose sender never repeats it."""
    rule = await Rule.make(crash.world, CREATE_ISSUE if issue else RUN_ONLY)
    sender = await Sender.of(rule)
    await crash.arm(AUTOPILOT, point)
    answer = await sender.post()
    await crash.met(AUTOPILOT)
    await crash.recover(AUTOPILOT)
    # The gateway lives: it has the delivery, whatever autopilot could say of it.
    assert answer is not None
    assert answer.json["status"] in {"accepted", "queued"}
    run = await rule.the_run(sender.hook.trigger_id)
    (attempt,) = await rule.completed_once(run.run_id)
    assert attempt.attempt == 1
    await sender.check(run)


async def a_webhook(crash: Crasher, point: str) -> None:
    """A webhook that wakes an agent."""
    await posted(crash, point, issue=False)


async def an_issue(crash: Crasher, point: str) -> None:
    """A webhook that makes an issue."""
    await posted(crash, point, issue=True)


async def a_click(crash: Crasher, point: str) -> None:
    """A person who runs a rule, gets no answer and clicks again."""
    rule = await Rule.make(crash.world, RUN_ONLY)
    await crash.arm(AUTOPILOT, point)
    await crash.provoke(AUTOPILOT, lambda: crash.world.run_now(rule.rule_id, request_id="click"))
    await crash.recover(AUTOPILOT)
    again = await rule.run_now("click")
    assert (await rule.the_run()).run_id == again.run_id
    await rule.completed_once(again.run_id)


async def a_minute(crash: Crasher, point: str) -> None:
    """A schedule."""
    if crash.run_ahead("scheduler", AUTOPILOT, 60):
        await crash.recover("scheduler")
    rule = await Rule.make(crash.world, RUN_ONLY)
    await crash.arm(AUTOPILOT, point)
    async with scheduled(rule) as trigger_id:
        await crash.met(AUTOPILOT)
        await crash.recover(AUTOPILOT)
        # Past the pause before the scheduler hands over again what it was given back.
        await crash.later("scheduler", 30)
        run = await rule.first_run(trigger_id)
    await rule.completed_once(run.run_id)


async def a_cancellation(crash: Crasher, point: str) -> None:
    """A person who calls a run off while its agent is at work."""
    rule = await Rule.make(crash.world, RUN_ONLY, gated=True)
    await crash.arm(AUTOPILOT, point)
    run = await rule.run_now()
    await rule.agent_at_work()
    await unless_it_died(
        crash.world.client.autopilots.CancelRun(autopilot.CancelRunRequest(run_id=run.run_id))
    )
    await crash.met(AUTOPILOT)
    await crash.recover(AUTOPILOT)
    (attempt,) = await rule.check(
        await crash.world.outcome(run.run_id), run_pb2.RUN_STATE_CANCELLED
    )
    assert attempt.state == agent_run_pb2.RUN_STATE_CANCELLED
    assert len(marks_in(rule.marks)) == 1


async def a_give_up(crash: Crasher, point: str) -> None:
    """A run that was not dispatched for a day, because everything was down."""
    rule = await Rule.make(crash.world, RUN_ONLY)
    # It may die of a run of somebody else's before it has heard of this one.
    while await crash.world.count("autopilot.runs", "autopilot_id = $1::uuid", rule.rule_id) == 0:
        await crash.arm(AUTOPILOT, "autopilot.dispatch.before_call")
        await crash.provoke(
            AUTOPILOT, lambda: crash.world.run_now(rule.rule_id, request_id="click")
        )
    crash.pass_time(AUTOPILOT, timedelta(hours=25).total_seconds())
    await crash.arm(AUTOPILOT, point, at_once=True)
    await crash.met(AUTOPILOT)
    await crash.recover(AUTOPILOT)

    run = await rule.the_run()
    run = await crash.world.outcome(run.run_id)
    assert run.state == run_pb2.RUN_STATE_FAILED
    assert run.reason == reason_pb2.REASON_DISPATCH_INCOMPLETE
    world, key = crash.world, run.occurrence_key
    assert await world.count("autopilot.runs", "autopilot_id = $1::uuid", rule.rule_id) == 1
    assert await world.count("heartbeat.wakeup_requests", "occurrence_key = $1", key) == 0
    # A call that comes too late finds that the occurrence was called off.
    cancelled = "occurrence_key = $1 AND cancelled_at IS NOT NULL"
    assert await world.count("heartbeat.occurrences", cancelled, key) == 1
    assert marks_in(rule.marks) == []


async def a_publication(crash: Crasher, point: str) -> None:
    """Somebody who makes a hook, gets no answer and asks again."""
    world = crash.world
    rule = await Rule.make(world, RUN_ONLY)
    await eventually(
        lambda: world.count("autopilot.triggers", "revision <> synced_revision"),
        "nothing else is to be told",
        until=lambda count: count == 0,
    )
    request = autopilot.CreateTriggerRequest(
        autopilot_id=rule.rule_id,
        webhook=autopilot_pb2.WebhookTrigger(provider="github"),
        request_id=str(uuid4()),
    )
    await crash.arm(AUTOPILOT, point)
    assert await unless_it_died(world.client.autopilots.CreateTrigger(request)) is None
    await crash.met(AUTOPILOT)
    await crash.recover(AUTOPILOT, 0)

    first = await world.client.autopilots.CreateTrigger(request)
    second = await world.client.autopilots.CreateTrigger(request)
    assert first.hook_path == second.hook_path
    trigger_id = first.trigger.trigger_id
    assert await world.count("autopilot.triggers", "autopilot_id = $1::uuid", rule.rule_id) == 1
    await world.synced(trigger_id)
    assert await endpoints(world, trigger_id) == 1
    await world.client.autopilots.AddSigningSecret(
        autopilot.AddSigningSecretRequest(trigger_id=trigger_id, secret=SECRET.encode())
    )
    sender = Sender(world, Hook(trigger_id, first.hook_path, SECRET), str(uuid4()))
    assert await sender.post() is not None
    run = await rule.the_run(trigger_id)
    await rule.completed_once(run.run_id)
    await sender.check(run)


async def endpoints(world: World, trigger_id: str) -> int:
    return await world.count("webhook.endpoints", "id = $1::uuid", trigger_id)


# Which ways cross a point, by the part of its name between the dots.
WAYS: dict[str, tuple[Way, ...]] = {
    "admit": (a_webhook, a_click, a_minute),
    "payload": (a_webhook,),
    "dispatch": (a_webhook, an_issue),
    "link": (a_webhook, an_issue),
    "complete": (a_webhook, an_issue),
    "cancel": (a_cancellation,),
    "give_up": (a_give_up,),
    "publish": (a_publication,),
    "relay": (a_publication,),
}


def ways_of(point: str) -> tuple[Way | None, ...]:
    """Name the ways that cross a point; a new kind of point has none, and fails."""
    return WAYS.get(point.split(".")[1], (None,))


# No run's way: the service's own tests die there.
OFF_THE_WAY = {
    "autopilot.retention.after_stretch",
    "autopilot.secret.before_call",
    "autopilot.secret.before_record",
}
CASES = crossings(
    [(point, way) for point in CRASH_POINTS if point not in OFF_THE_WAY for way in ways_of(point)]
)


@pytest.mark.parametrize(
    ("point", "way"),
    CASES,
    ids=[f"{point}-{way.__name__ if way else 'unknown'}" for point, way in CASES],
)
async def test_a_death_of_autopilot_loses_and_doubles_nothing(
    crash: Crasher, point: str, way: Way | None
) -> None:
    assert way is not None, f"no test crosses {point}"
    await way(crash, point)
