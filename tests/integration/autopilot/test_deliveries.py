"""From a delivery's facts to its run, and from its body to the agent: once, whatever repeats."""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

import asyncpg
import grpc
from tests.integration.autopilot.conftest import (
    CREATOR,
    Service,
    admit,
    facts,
    hand_over,
    make_autopilot,
    make_webhook,
    refused,
    withdraw,
)
from tests.integration.autopilot.peers import Gate, World

from reveille.autopilot.v1 import autopilot_pb2 as rule_pb
from reveille.autopilot.v1 import autopilot_service_pb2 as pb
from reveille.autopilot.v1 import dispatch_service_pb2 as dispatch_pb
from reveille.autopilot.v1 import run_pb2
from reveille.autopilot.v1.dispatch_service_pb2_grpc import DispatchServiceStub
from reveille.common.v1 import reason_pb2
from reveille.heartbeat.v1 import wakeup_pb2

ISSUES_OPENED = rule_pb.EventFilter(event="issues", actions=["opened"])


async def test_a_delivery_becomes_a_run_that_waits_for_its_body(
    service: Service, world: World, autopilot: rule_pb.Autopilot
) -> None:
    hook = await make_webhook(service, autopilot.autopilot_id, ISSUES_OPENED)
    delivery = facts(hook.trigger)
    (admitted,) = await admit(service, delivery)

    assert admitted.outcome == dispatch_pb.ADMIT_OUTCOME_ACCEPTED
    assert admitted.autopilot_id == autopilot.autopilot_id
    run = await service.run_of(admitted.run_id)
    assert run.state == run_pb2.RUN_STATE_PENDING
    assert run.delivery_id == delivery.delivery_id
    assert run.occurrence_key == f"webhook:{delivery.delivery_id}"
    assert run.attribution_source == run_pb2.ATTRIBUTION_SOURCE_TRIGGER_OWNER
    assert (run.originator_user_id, run.accountable_user_id) == ("", CREATOR)
    # Even much later the sweep lets it wait: only the gateway has the body.
    service.move_clock(3600)
    await service.tick("sweep")
    assert not world.made

    body = b'{"action":"opened"}'
    result = await hand_over(service, delivery, admitted.run_id, body)
    assert result.outcome == dispatch_pb.DISPATCH_OUTCOME_DISPATCHED
    made = world.only()
    assert made.wakeup is not None
    assert made.wakeup.source == wakeup_pb2.WAKEUP_SOURCE_AUTOMATION
    assert made.wakeup.payload.body == body
    assert made.wakeup.payload.content_type == "application/json"
    assert made.wakeup.payload.facts["event"] == "issues"
    assert made.wakeup.payload.facts["header.x-github-event"] == "issues"
    assert (await service.run_of(admitted.run_id)).state == run_pb2.RUN_STATE_RUNNING


async def test_one_delivery_in_parallel_and_again_is_one_run(
    service: Service,
    world: World,
    autopilot: rule_pb.Autopilot,
    rows: asyncpg.Connection[asyncpg.Record],
) -> None:
    hook = await make_webhook(service, autopilot.autopilot_id)
    delivery = facts(hook.trigger)
    answers = await asyncio.gather(*(admit(service, delivery) for _ in range(20)))
    assert len({answer.run_id for (answer,) in answers}) == 1
    assert await rows.fetchval("SELECT count(*) FROM runs") == 1

    run_id = answers[0][0].run_id
    results = await asyncio.gather(*(hand_over(service, delivery, run_id) for _ in range(10)))
    assert {result.outcome for result in results} == {dispatch_pb.DISPATCH_OUTCOME_DISPATCHED}
    assert len(world.made) == 1
    (later,) = await admit(service, delivery)
    assert (later.outcome, later.run_id) == (dispatch_pb.ADMIT_OUTCOME_ACCEPTED, run_id)


async def test_of_one_call_each_delivery_is_one_run_with_one_event_however_often_it_is_named(
    service: Service, autopilot: rule_pb.Autopilot, rows: asyncpg.Connection[asyncpg.Record]
) -> None:
    hook = await make_webhook(service, autopilot.autopilot_id)
    old, new = facts(hook.trigger), facts(hook.trigger)
    (before,) = await admit(service, old)
    answers = await admit(service, new, old, new)

    assert [each.delivery_id for each in answers] == [each.delivery_id for each in (new, old, new)]
    assert answers[1].run_id == before.run_id
    assert answers[0].run_id == answers[2].run_id
    assert await told_of(rows) == sorted([before.run_id, answers[0].run_id])


async def test_runs_of_one_batch_share_what_is_their_rule_s_and_nothing_else(
    service: Service,
    world: World,
    workspace_id: UUID,
    autopilot: rule_pb.Autopilot,
    rows: asyncpg.Connection[asyncpg.Record],
) -> None:
    resting = await make_autopilot(service, world, workspace_id)
    world.refusals[resting.agent_id] = reason_pb2.REASON_RUNTIME_OFFLINE
    hooks = {
        rule.autopilot_id: (await make_webhook(service, rule.autopilot_id)).trigger
        for rule in (autopilot, resting)
    }
    deliveries = {
        each.delivery_id: (rule_id, each)
        for rule_id in [*hooks, *hooks]
        for each in [facts(hooks[rule_id])]
    }
    answers = await admit(service, *(each for _, each in deliveries.values()))

    assert [each.delivery_id for each in answers] == list(deliveries)
    assert [each.autopilot_id for each in answers] == [
        rule_id for rule_id, _ in deliveries.values()
    ]
    stored = await rows.fetch("SELECT * FROM runs ORDER BY occurrence_key")
    assert len({row["trace_carrier"]["traceparent"] for row in stored}) == len(deliveries)
    found = {
        str(row["delivery_id"]): (
            str(row["id"]),
            row["occurrence_key"],
            str(row["autopilot_id"]),
            str(row["trigger_id"]),
            str(row["agent_id"]),
            row["state"],
            row["finished_at"] is None,
        )
        for row in stored
    }
    rules = {rule.autopilot_id: rule for rule in (autopilot, resting)}
    assert found == {
        each.delivery_id: (
            each.run_id,
            f"webhook:{each.delivery_id}",
            each.autopilot_id,
            hooks[each.autopilot_id].trigger_id,
            rules[each.autopilot_id].agent_id,
            "pending" if each.autopilot_id == autopilot.autopilot_id else "skipped",
            each.autopilot_id == autopilot.autopilot_id,
        )
        for each in answers
    }


async def test_two_replicas_admit_one_delivery_once(
    service: Service,
    autopilot: rule_pb.Autopilot,
    rows: asyncpg.Connection[asyncpg.Record],
    world: World,
) -> None:
    other = await service.stage.start()
    hook = await make_webhook(service, autopilot.autopilot_id)
    delivery = facts(hook.trigger)
    own = [facts(hook.trigger) for _ in range(2)]
    # Both have looked, found nothing and asked heartbeat before either inserts.
    gate = world.after["CheckInvocable"] = Gate()
    calls = [
        asyncio.create_task(admit(each, mine, delivery))
        for each, mine in zip((service, other), own, strict=True)
    ]
    async with asyncio.timeout(10):
        while world.calls["CheckInvocable"] < 2:
            await gate.reached.wait()
            gate.reached.clear()
    gate.release.set()
    (one, first), (two, second) = await asyncio.gather(*calls)

    assert first.run_id == second.run_id
    # Of the statement that came second, only what it has made is told.
    assert await told_of(rows) == sorted([one.run_id, two.run_id, first.run_id])


async def told_of(rows: asyncpg.Connection[asyncpg.Record]) -> list[str]:
    """Give the runs that the feed says were admitted: all that there are."""
    told = await rows.fetch(
        "SELECT subject_id FROM feed WHERE type = 'autopilot.run.admitted' ORDER BY subject_id"
    )
    assert await rows.fetchval("SELECT count(*) FROM runs") == len(told)
    return [row["subject_id"] for row in told]


async def test_what_the_rule_does_not_want_is_ignored_without_a_run(
    service: Service, autopilot: rule_pb.Autopilot, rows: asyncpg.Connection[asyncpg.Record]
) -> None:
    hook = await make_webhook(service, autopilot.autopilot_id, ISSUES_OPENED)
    disabled = await service.as_user(CREATOR).CreateTrigger(
        pb.CreateTriggerRequest(
            autopilot_id=autopilot.autopilot_id,
            webhook=rule_pb.WebhookTrigger(provider="github"),
            disabled=True,
        )
    )
    answers = await admit(
        service,
        facts(hook.trigger, event="push", actions=[]),
        facts(hook.trigger, actions=["closed"]),
        facts(disabled.trigger),
    )
    assert {answer.outcome for answer in answers} == {dispatch_pb.ADMIT_OUTCOME_IGNORED}
    assert [answer.reason for answer in answers] == [
        reason_pb2.REASON_EVENT_FILTERED,
        reason_pb2.REASON_EVENT_FILTERED,
        reason_pb2.REASON_TRIGGER_DISABLED,
    ]
    await service.as_user(CREATOR).PauseAutopilot(
        pb.PauseAutopilotRequest(autopilot_id=autopilot.autopilot_id)
    )
    (paused,) = await admit(service, facts(hook.trigger))
    assert paused.outcome == dispatch_pb.ADMIT_OUTCOME_IGNORED
    assert paused.reason == reason_pb2.REASON_AUTOPILOT_PAUSED
    assert await rows.fetchval("SELECT count(*) FROM runs") == 0


async def test_a_trigger_that_is_gone_or_elsewhere_is_an_unknown_endpoint(
    service: Service, autopilot: rule_pb.Autopilot
) -> None:
    hook = await make_webhook(service, autopilot.autopilot_id)
    gone = await make_webhook(service, autopilot.autopilot_id)
    await service.as_user(CREATOR).DeleteTrigger(
        pb.DeleteTriggerRequest(trigger_id=gone.trigger.trigger_id)
    )
    deliveries = (
        facts(hook.trigger, workspace_id=str(uuid4())),
        facts(gone.trigger),
        facts(hook.trigger, endpoint_id=str(uuid4())),
    )
    answers = await admit(service, *deliveries)
    assert {answer.outcome for answer in answers} == {dispatch_pb.ADMIT_OUTCOME_UNKNOWN_ENDPOINT}
    # A paused rule is nothing that a stranger could learn of.
    await service.as_user(CREATOR).PauseAutopilot(
        pb.PauseAutopilotRequest(autopilot_id=autopilot.autopilot_id)
    )
    (answer,) = await admit(service, facts(hook.trigger, workspace_id=str(uuid4())))
    assert answer.outcome == dispatch_pb.ADMIT_OUTCOME_UNKNOWN_ENDPOINT
    assert not answer.autopilot_id


async def test_a_later_refusal_is_stored_as_a_skipped_run(
    service: Service, world: World, autopilot: rule_pb.Autopilot
) -> None:
    hook = await make_webhook(service, autopilot.autopilot_id)
    world.refusal = reason_pb2.REASON_RUNTIME_OFFLINE
    delivery = facts(hook.trigger)
    (answer,) = await admit(service, delivery)
    assert answer.outcome == dispatch_pb.ADMIT_OUTCOME_SKIPPED
    assert answer.reason == reason_pb2.REASON_RUNTIME_OFFLINE
    assert (await service.run_of(answer.run_id)).state == run_pb2.RUN_STATE_SKIPPED
    # The delivery has its answer: asking again does not judge anew.
    world.refusal = reason_pb2.REASON_UNSPECIFIED
    (again,) = await admit(service, delivery)
    assert (again.outcome, again.run_id) == (answer.outcome, answer.run_id)


async def test_an_undecidable_delivery_is_unavailable_and_decided_later(
    service: Service, world: World, autopilot: rule_pb.Autopilot
) -> None:
    hook = await make_webhook(service, autopilot.autopilot_id)
    delivery = facts(hook.trigger)
    world.away = {"heartbeat"}
    (answer,) = await admit(service, delivery)
    assert answer.outcome == dispatch_pb.ADMIT_OUTCOME_UNAVAILABLE
    assert not answer.run_id
    world.away = set()
    (answer,) = await admit(service, delivery)
    assert answer.outcome == dispatch_pb.ADMIT_OUTCOME_ACCEPTED


async def test_a_dispatch_that_cannot_be_made_now_is_made_by_the_sweep(
    service: Service, world: World, autopilot: rule_pb.Autopilot
) -> None:
    hook = await make_webhook(service, autopilot.autopilot_id)
    delivery = facts(hook.trigger)
    (answer,) = await admit(service, delivery)
    world.away = {"EnqueueWakeups"}
    result = await hand_over(service, delivery, answer.run_id, b"kept")
    assert result.outcome == dispatch_pb.DISPATCH_OUTCOME_UNAVAILABLE
    world.away = set()
    # Once admitted, a later pause never drops it.
    await service.as_user(CREATOR).PauseAutopilot(
        pb.PauseAutopilotRequest(autopilot_id=autopilot.autopilot_id)
    )
    service.move_clock(60)
    await service.tick("sweep")
    assert (await service.run_of(answer.run_id)).state == run_pb2.RUN_STATE_RUNNING
    made = world.only()
    assert made.wakeup is not None
    assert made.wakeup.payload.body == b"kept"


async def test_a_body_too_large_to_travel_is_named_by_its_delivery(
    service: Service, world: World, workspace_id: UUID
) -> None:
    autopilot = await make_autopilot(service, world, workspace_id, issue=True)
    hook = await make_webhook(service, autopilot.autopilot_id)
    delivery = facts(hook.trigger)
    (answer,) = await admit(service, delivery)
    response = await service.dispatcher().DispatchDeliveries(
        dispatch_pb.DispatchDeliveriesRequest(
            deliveries=[
                dispatch_pb.DeliveryBody(
                    delivery_id=delivery.delivery_id, run_id=answer.run_id, body_omitted=True
                )
            ]
        )
    )
    assert response.results[0].outcome == dispatch_pb.DISPATCH_OUTCOME_DISPATCHED
    made = world.only()
    assert made.issue is not None
    assert made.issue.payload.delivery_id == delivery.delivery_id
    assert not made.issue.payload.body


async def test_a_body_is_bytes_whatever_they_are(
    service: Service, world: World, autopilot: rule_pb.Autopilot
) -> None:
    hook = await make_webhook(service, autopilot.autopilot_id)
    for body in (b'{"text": "a\\u0000b"}', b"\x00\xff", b"{not json", b""):
        delivery = facts(hook.trigger, event="an event\x00", actions=["\x00"])
        (answer,) = await admit(service, delivery)
        response = await service.dispatcher().DispatchDeliveries(
            dispatch_pb.DispatchDeliveriesRequest(
                deliveries=[
                    dispatch_pb.DeliveryBody(
                        delivery_id=delivery.delivery_id,
                        run_id=answer.run_id,
                        body=body,
                        headers={"x-header": "with\x00 a NUL"},
                        event="an event\x00",
                    )
                ]
            )
        )
        assert response.results[0].outcome == dispatch_pb.DISPATCH_OUTCOME_DISPATCHED
        wakeup = world.made[f"webhook:{delivery.delivery_id}"].wakeup
        assert wakeup is not None
        assert wakeup.payload.body == body
        assert wakeup.payload.facts["header.x-header"] == "with a NUL"


async def test_a_body_for_another_deliverys_run_is_refused(
    service: Service, world: World, autopilot: rule_pb.Autopilot
) -> None:
    hook = await make_webhook(service, autopilot.autopilot_id)
    mine, other = facts(hook.trigger), facts(hook.trigger)
    answers = await admit(service, mine, other)
    result = await hand_over(service, mine, answers[1].run_id)
    assert result.outcome == dispatch_pb.DISPATCH_OUTCOME_FAILED
    unknown = await hand_over(service, mine, str(uuid4()))
    assert unknown.outcome == dispatch_pb.DISPATCH_OUTCOME_FAILED
    assert not world.made


async def test_a_purged_delivery_ends_its_run_at_once_and_frees_its_rule(
    service: Service, world: World, workspace_id: UUID
) -> None:
    rule = await make_autopilot(
        service, world, workspace_id, overlap_policy=rule_pb.OVERLAP_POLICY_SKIP
    )
    hook = await make_webhook(service, rule.autopilot_id)
    (held,) = await admit(service, facts(hook.trigger))
    (meanwhile,) = await admit(service, facts(hook.trigger))

    await withdraw(service, held.delivery_id)
    await withdraw(service, held.delivery_id)

    assert meanwhile.reason == reason_pb2.REASON_ALREADY_ACTIVE
    run = await service.run_of(held.run_id)
    assert (run.state, run.reason) == (run_pb2.RUN_STATE_CANCELLED, reason_pb2.REASON_PURGED)
    assert run.message == "its delivery was purged while the loop breaker held it"
    assert run.delivery_id == held.delivery_id
    (after,) = await admit(service, facts(hook.trigger))
    assert after.outcome == dispatch_pb.ADMIT_OUTCOME_ACCEPTED
    assert not world.made


async def test_a_withdrawn_delivery_that_is_released_after_all_gets_a_clean_run(
    service: Service, world: World, autopilot: rule_pb.Autopilot
) -> None:
    hook = await make_webhook(service, autopilot.autopilot_id)
    delivery = facts(hook.trigger)
    (first,) = await admit(service, delivery)
    await withdraw(service, first.delivery_id)

    (second,) = await admit(service, delivery)
    result = await hand_over(service, delivery, second.run_id)

    assert second.run_id != first.run_id
    assert result.outcome == dispatch_pb.DISPATCH_OUTCOME_DISPATCHED
    assert list(world.made) == [f"webhook:{delivery.delivery_id}#2"]


async def test_only_a_run_that_waits_for_its_body_is_withdrawn(
    service: Service, world: World, autopilot: rule_pb.Autopilot
) -> None:
    hook = await make_webhook(service, autopilot.autopilot_id)
    other, begun, ready = (facts(hook.trigger) for _ in range(3))
    answers = await admit(service, other, begun, ready)
    await hand_over(service, begun, answers[1].run_id)
    world.away = {"EnqueueWakeups"}
    await hand_over(service, ready, answers[2].run_id)

    await withdraw(service, begun.delivery_id, ready.delivery_id, str(uuid4()))

    states = [(await service.run_of(each.run_id)).state for each in answers]
    assert states == [
        run_pb2.RUN_STATE_PENDING,
        run_pb2.RUN_STATE_RUNNING,
        run_pb2.RUN_STATE_PENDING,
    ]


async def test_a_run_waits_for_its_body_from_when_it_was_asked_for_last(
    service: Service, world: World, autopilot: rule_pb.Autopilot
) -> None:
    hook = await make_webhook(service, autopilot.autopilot_id)
    delivery = facts(hook.trigger)
    (first,) = await admit(service, delivery)
    service.move_clock(20 * 3600)
    (again,) = await admit(service, delivery)
    service.move_clock(20 * 3600)
    await service.tick("sweep")
    result = await hand_over(service, delivery, first.run_id)

    assert (again.outcome, again.run_id) == (first.outcome, first.run_id)
    assert result.outcome == dispatch_pb.DISPATCH_OUTCOME_DISPATCHED
    assert list(world.made) == [f"webhook:{delivery.delivery_id}"]


async def test_a_run_whose_time_is_over_is_promised_to_nobody_and_followed_by_a_clean_one(
    service: Service, world: World, workspace_id: UUID
) -> None:
    rule = await make_autopilot(
        service, world, workspace_id, overlap_policy=rule_pb.OVERLAP_POLICY_SKIP
    )
    hook = await make_webhook(service, rule.autopilot_id)
    delivery = facts(hook.trigger)
    (first,) = await admit(service, delivery)
    # It cannot be given up yet.
    world.away = {"CancelWakeups"}
    service.move_clock(24 * 3600)
    (meanwhile,) = await admit(service, delivery)
    world.away = set()
    service.move_clock(120)
    await service.tick("sweep")
    (clean,) = await admit(service, delivery)
    late = await hand_over(service, delivery, first.run_id)
    result = await hand_over(service, delivery, clean.run_id)

    assert (meanwhile.outcome, meanwhile.run_id) == (dispatch_pb.ADMIT_OUTCOME_UNAVAILABLE, "")
    run = await service.run_of(first.run_id)
    assert (run.state, run.reason) == (
        run_pb2.RUN_STATE_FAILED,
        reason_pb2.REASON_DISPATCH_INCOMPLETE,
    )
    # The one that was given up stands in no way of the clean one.
    assert clean.outcome == dispatch_pb.ADMIT_OUTCOME_ACCEPTED
    assert late.outcome == dispatch_pb.DISPATCH_OUTCOME_FAILED
    assert result.outcome == dispatch_pb.DISPATCH_OUTCOME_DISPATCHED
    woken = [key for key, made in world.made.items() if made.wakeup is not None]
    assert woken == [f"webhook:{delivery.delivery_id}#2"]


async def test_only_the_gateway_may_admit(service: Service) -> None:
    for token in (service.keys.service("scheduler"), service.keys.user("op", operator=True)):
        stub = DispatchServiceStub(service.channel(token))
        async with refused(grpc.StatusCode.PERMISSION_DENIED, "CALLER_NOT_ALLOWED"):
            await stub.AdmitDeliveries(dispatch_pb.AdmitDeliveriesRequest())
