"""Every run comes to one outcome, in whatever order answers, events and wishes arrive."""

from __future__ import annotations

import asyncio
import json
from typing import TypeAlias
from uuid import UUID, uuid4

import asyncpg
import grpc
import pytest
from tests.integration.autopilot.conftest import (
    ADMIN,
    CREATOR,
    MEMBER,
    STRANGER,
    Service,
    make_autopilot,
    refused,
    run_now,
)
from tests.integration.autopilot.peers import Gate, World

from reveille.autopilot.v1 import autopilot_pb2 as rule_pb
from reveille.autopilot.v1 import autopilot_service_pb2 as pb
from reveille.autopilot.v1 import run_pb2
from reveille.common.v1 import reason_pb2
from reveille.events.v1 import event_service_pb2 as event_pb
from reveille.heartbeat.v1 import issue_pb2, wakeup_pb2

Rows: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


async def handled(service: Service, world: World) -> None:
    """Wait until everything in the feed so far has been handled: a marker run comes after it."""
    known = set(world.made)
    agent = world.add_agent(world.only().workspace_id if len(known) == 1 else _any(world))
    response = await service.as_user(CREATOR).CreateAutopilot(
        pb.CreateAutopilotRequest(
            workspace_id=_any(world),
            title="Marker",
            agent_id=str(agent),
            execution_mode=rule_pb.EXECUTION_MODE_RUN_ONLY,
        )
    )
    marker = await run_now(service, response.autopilot.autopilot_id)
    made = world.made.pop(marker.occurrence_key)
    await world.emit(world.settled(made, wakeup_pb2.WAKEUP_STATE_COMPLETED))
    await service.ended(marker.run_id)


def _any(world: World) -> str:
    return next(iter(world.made.values())).workspace_id


async def test_an_outcome_that_arrives_before_the_link_stands(
    service: Service, world: World, autopilot: rule_pb.Autopilot, rows: Rows
) -> None:
    gate = world.after["EnqueueWakeups"] = Gate()
    calling = asyncio.create_task(run_now(service, autopilot.autopilot_id))
    await gate.reached.wait()
    run_id = str(await rows.fetchval("SELECT id FROM runs"))
    await world.emit(
        world.settled(world.only(), wakeup_pb2.WAKEUP_STATE_COMPLETED, result={"summary": "quick"})
    )
    ended = await service.ended(run_id)
    assert ended.state == run_pb2.RUN_STATE_COMPLETED
    assert ended.wakeup_id == world.only().wakeup_id

    gate.release.set()
    answered = await calling
    assert answered.state == run_pb2.RUN_STATE_COMPLETED
    assert (await service.run_of(run_id)).finish_time == ended.finish_time


async def test_a_cancellation_that_overtakes_the_enqueue_wins(
    service: Service, world: World, autopilot: rule_pb.Autopilot, rows: Rows
) -> None:
    gate = world.before["EnqueueWakeups"] = Gate()
    calling = asyncio.create_task(run_now(service, autopilot.autopilot_id))
    await gate.reached.wait()
    run_id = str(await rows.fetchval("SELECT id FROM runs"))
    cancelled = await service.as_user(CREATOR).CancelRun(pb.CancelRunRequest(run_id=run_id))
    assert cancelled.run.state == run_pb2.RUN_STATE_CANCELLED
    assert cancelled.run.reason == reason_pb2.REASON_CANCELLED
    gate.release.set()
    assert (await calling).state == run_pb2.RUN_STATE_CANCELLED
    # The late enqueue found the recorded key: no agent was woken.
    assert world.only().wakeup is None


async def test_a_cancellation_between_enqueue_and_link_wins(
    service: Service, world: World, autopilot: rule_pb.Autopilot, rows: Rows
) -> None:
    gate = world.after["EnqueueWakeups"] = Gate()
    calling = asyncio.create_task(run_now(service, autopilot.autopilot_id))
    await gate.reached.wait()
    run_id = str(await rows.fetchval("SELECT id FROM runs"))
    await service.as_user(CREATOR).CancelRun(pb.CancelRunRequest(run_id=run_id))
    gate.release.set()
    assert (await calling).state == run_pb2.RUN_STATE_CANCELLED
    assert world.only().state == wakeup_pb2.WAKEUP_STATE_CANCELLED


async def test_a_cancellation_is_repeated_until_the_wakeup_settles(
    service: Service, world: World, autopilot: rule_pb.Autopilot
) -> None:
    run = await run_now(service, autopilot.autopilot_id)
    made = world.only()
    # Its process is being killed: heartbeat answers claimed until that is proven.
    made.state = wakeup_pb2.WAKEUP_STATE_CLAIMED
    asked = await service.as_user(CREATOR).CancelRun(pb.CancelRunRequest(run_id=run.run_id))
    assert asked.run.state == run_pb2.RUN_STATE_RUNNING
    assert asked.run.HasField("cancel_request_time")
    before = world.calls["CancelWakeups"]
    service.move_clock(5)
    await service.tick("sweep")
    assert world.calls["CancelWakeups"] == before + 1
    await world.emit(
        world.settled(made, wakeup_pb2.WAKEUP_STATE_CANCELLED, reason="cancelled", message="killed")
    )
    ended = await service.ended(run.run_id)
    assert (ended.state, ended.message) == (run_pb2.RUN_STATE_CANCELLED, "cancelled on request")
    again = await service.as_user(CREATOR).CancelRun(pb.CancelRunRequest(run_id=run.run_id))
    assert again.run.finish_time == ended.finish_time


@pytest.mark.parametrize("state", ["COMPLETED", "FAILED"])
async def test_a_cancelled_run_whose_wakeup_ended_unheard_takes_that_outcome(
    state: str, service: Service, world: World, autopilot: rule_pb.Autopilot
) -> None:
    run = await run_now(service, autopilot.autopilot_id)
    made = world.only()
    made.state = wakeup_pb2.WAKEUP_STATE_CLAIMED
    await service.as_user(CREATOR).CancelRun(pb.CancelRunRequest(run_id=run.run_id))
    # The agent was done before it could be stopped, and the event of it never comes.
    world.settled(made, wakeup_pb2.WakeupState.Value(f"WAKEUP_STATE_{state}"), result={"at": "end"})
    world.away = {"GetWakeup"}
    service.move_clock(5)
    await service.tick("sweep")
    assert (await service.run_of(run.run_id)).state == run_pb2.RUN_STATE_RUNNING

    # What could not be compared is tried again as soon as any cancellation.
    world.away = set()
    service.move_clock(5)
    await service.tick("sweep")
    ended = await service.run_of(run.run_id)
    assert ended.state == run_pb2.RunState.Value(f"RUN_STATE_{state}")
    assert json.loads(ended.result)["at"] == "end"
    before = world.calls["CancelWakeups"]
    service.move_clock(5)
    await service.tick("sweep")
    assert world.calls["CancelWakeups"] == before


async def test_a_cancelled_run_with_an_issue_ends_with_it_although_its_wakeup_had_ended(
    service: Service, world: World, workspace_id: UUID
) -> None:
    autopilot = await make_autopilot(service, world, workspace_id, issue=True)
    open_yet, done = [await run_now(service, autopilot.autopilot_id) for _ in range(2)]
    for run in (open_yet, done):
        world.settled(world.made[run.occurrence_key], wakeup_pb2.WAKEUP_STATE_COMPLETED)
    world.moved(world.made[done.occurrence_key], issue_pb2.ISSUE_STATUS_DONE)
    for run in (open_yet, done):
        await service.as_user(CREATOR).CancelRun(pb.CancelRunRequest(run_id=run.run_id))
    service.move_clock(5)
    await service.tick("sweep")
    ended = [await service.run_of(run.run_id) for run in (open_yet, done)]
    assert [run.state for run in ended] == [
        run_pb2.RUN_STATE_CANCELLED,
        run_pb2.RUN_STATE_COMPLETED,
    ]
    assert ended[0].message == "cancelled on request"


async def test_a_cancelled_run_whose_wakeup_is_not_on_record_any_more_is_cancelled(
    service: Service, world: World, autopilot: rule_pb.Autopilot, rows: Rows
) -> None:
    run = await run_now(service, autopilot.autopilot_id)
    made = world.only()
    made.state = wakeup_pb2.WAKEUP_STATE_CLAIMED
    await service.as_user(CREATOR).CancelRun(pb.CancelRunRequest(run_id=run.run_id))
    world.settled(made, wakeup_pb2.WAKEUP_STATE_COMPLETED)
    gate = world.before["GetWakeup"] = Gate()
    service.move_clock(5)
    sweeping = asyncio.create_task(service.tick("sweep"))
    await gate.reached.wait()
    # Heartbeat forgets it between its answer to the cancellation and the look.
    del world.made[made.key]
    gate.release.set()
    await sweeping
    service.move_clock(5)
    await service.tick("sweep")
    ended = await service.run_of(run.run_id)
    assert (ended.state, ended.reason) == (
        run_pb2.RUN_STATE_CANCELLED,
        reason_pb2.REASON_CANCELLED,
    )
    assert await rows.fetchval("SELECT given_up_at FROM runs") is None


async def test_a_cancellation_survives_an_outage_of_heartbeat(
    service: Service, world: World, autopilot: rule_pb.Autopilot
) -> None:
    run = await run_now(service, autopilot.autopilot_id)
    world.away = {"CancelWakeups"}
    await service.as_user(CREATOR).CancelRun(pb.CancelRunRequest(run_id=run.run_id))
    world.away = set()
    service.move_clock(5)
    await service.tick("sweep")
    assert (await service.run_of(run.run_id)).state == run_pb2.RUN_STATE_CANCELLED


async def test_who_may_cancel_a_run(
    service: Service, world: World, autopilot: rule_pb.Autopilot
) -> None:
    run = await run_now(service, autopilot.autopilot_id)
    request = pb.CancelRunRequest(run_id=run.run_id)
    async with refused(grpc.StatusCode.PERMISSION_DENIED, "ROLE_TOO_WEAK"):
        await service.as_user(MEMBER).CancelRun(request)
    async with refused(grpc.StatusCode.NOT_FOUND, "NOT_FOUND"):
        await service.as_user(STRANGER).CancelRun(request)
    async with refused(grpc.StatusCode.NOT_FOUND, "NOT_FOUND"):
        await service.as_user(CREATOR).CancelRun(pb.CancelRunRequest(run_id=str(uuid4())))
    cancelled = await service.as_user(ADMIN).CancelRun(request)
    assert cancelled.run.state == run_pb2.RUN_STATE_CANCELLED
    assert world.only().state == wakeup_pb2.WAKEUP_STATE_CANCELLED


@pytest.mark.parametrize("order", ["as_written", "reversed", "doubled", "replayed"])
async def test_repeated_and_reordered_events_end_in_the_same_outcome(
    order: str, service: Service, world: World, workspace_id: UUID
) -> None:
    autopilot = await make_autopilot(service, world, workspace_id, issue=True)
    run = await run_now(service, autopilot.autopilot_id)
    made = world.only()
    events = [
        world.moved(made, issue_pb2.ISSUE_STATUS_IN_PROGRESS),
        world.moved(made, issue_pb2.ISSUE_STATUS_DONE),
        world.settled(made, wakeup_pb2.WAKEUP_STATE_COMPLETED, result={"summary": "ok"}),
    ]
    arrivals: dict[str, list[event_pb.Event]] = {
        "as_written": events,
        "reversed": events[::-1],
        "doubled": [event for event in events for _ in range(2)],
        "replayed": events + events,
    }
    await world.emit(*arrivals[order])
    await handled(service, world)
    ended = await service.run_of(run.run_id)
    assert ended.state == run_pb2.RUN_STATE_COMPLETED
    assert json.loads(ended.result) == {"summary": "ok"}


async def test_events_of_others_and_broken_ones_stop_nothing(
    service: Service, world: World, autopilot: rule_pb.Autopilot
) -> None:
    run = await run_now(service, autopilot.autopilot_id)
    made = world.only()
    foreign = world.settled(made, wakeup_pb2.WAKEUP_STATE_FAILED)
    foreign.workspace_id = str(uuid4())
    unknown = world.settled(made, wakeup_pb2.WAKEUP_STATE_FAILED)
    unknown.occurrence_key = "webhook:unknown"
    await world.emit(foreign, unknown, world.settled(made, wakeup_pb2.WAKEUP_STATE_COMPLETED))
    assert (await service.ended(run.run_id)).state == run_pb2.RUN_STATE_COMPLETED


async def test_a_lost_cursor_leads_to_a_reconcile_of_every_open_run(
    service: Service, world: World, workspace_id: UUID, rows: Rows
) -> None:
    only_wakes = await make_autopilot(service, world, workspace_id)
    makes_issues = await make_autopilot(service, world, workspace_id, issue=True)
    ids = only_wakes.autopilot_id, makes_issues.autopilot_id
    runs = [
        await run_now(service, rule_id)
        for rule_id in (ids[0], ids[0], ids[0], ids[1], ids[1], ids[0], ids[1])
    ]
    # Two of them shall be cancelled, which heartbeat cannot do at once.
    for run in runs[5:]:
        world.made[run.occurrence_key].state = wakeup_pb2.WAKEUP_STATE_CLAIMED
        await service.as_user(CREATOR).CancelRun(pb.CancelRunRequest(run_id=run.run_id))
    await service.close()

    # Everything ends while nobody follows, and the feed forgets it.
    made = [world.made[run.occurrence_key] for run in runs]
    world.settled(made[0], wakeup_pb2.WAKEUP_STATE_COMPLETED, result={"summary": "kept"})
    world.settled(made[1], wakeup_pb2.WAKEUP_STATE_FAILED)
    del world.made[made[2].key]
    world.moved(made[3], issue_pb2.ISSUE_STATUS_CANCELLED)
    del world.made[made[4].key]
    world.settled(made[5], wakeup_pb2.WAKEUP_STATE_COMPLETED)
    world.settled(made[6], wakeup_pb2.WAKEUP_STATE_FAILED)
    world.feed_floor = 10**9

    later = await service.stage.start()
    ended = [await later.ended(run.run_id) for run in runs]
    assert [run.state for run in ended] == [
        run_pb2.RUN_STATE_COMPLETED,
        run_pb2.RUN_STATE_FAILED,
        run_pb2.RUN_STATE_FAILED,
        run_pb2.RUN_STATE_CANCELLED,
        run_pb2.RUN_STATE_FAILED,
        run_pb2.RUN_STATE_COMPLETED,
        run_pb2.RUN_STATE_CANCELLED,
    ]
    assert json.loads(ended[0].result)["summary"] == "kept"
    assert ended[2].reason == reason_pb2.REASON_DISPATCH_INCOMPLETE
    assert ended[4].reason == reason_pb2.REASON_ISSUE_NOT_FOUND


async def test_an_outcome_that_the_feed_never_brings_is_found_by_a_look(
    service: Service, world: World, autopilot: rule_pb.Autopilot
) -> None:
    run = await run_now(service, autopilot.autopilot_id)
    world.settled(world.only(), wakeup_pb2.WAKEUP_STATE_SKIPPED)
    service.move_clock(1000)
    await service.tick("sweep")
    assert (await service.run_of(run.run_id)).state == run_pb2.RUN_STATE_SKIPPED


async def test_an_open_run_is_looked_at_again_and_again_until_it_ends(
    service: Service, world: World, workspace_id: UUID, rows: Rows
) -> None:
    autopilot = await make_autopilot(service, world, workspace_id, issue=True)
    run = await run_now(service, autopilot.autopilot_id)
    for away in ({"GetIssue"}, set[str]()):
        world.away = away
        service.move_clock(1000)
        await service.tick("sweep")
        assert (await service.run_of(run.run_id)).state == run_pb2.RUN_STATE_ISSUE_CREATED
        due = await rows.fetchval("SELECT next_attempt_at > clock() FROM runs")
        assert due


async def test_a_run_that_heartbeat_refuses_to_take_fails_alone(
    service: Service, world: World, workspace_id: UUID
) -> None:
    good = await make_autopilot(service, world, workspace_id)
    run = await run_now(service, good.autopilot_id)
    assert run.state == run_pb2.RUN_STATE_RUNNING
    world.refuse_titles = {"Bad"}
    response = await service.as_user(CREATOR).CreateAutopilot(
        pb.CreateAutopilotRequest(
            workspace_id=str(workspace_id),
            title="Bad",
            agent_id=str(world.add_agent(workspace_id)),
            execution_mode=rule_pb.EXECUTION_MODE_RUN_ONLY,
        )
    )
    gate = world.before["EnqueueWakeups"] = Gate()
    ids = [good.autopilot_id] * 3 + [response.autopilot.autopilot_id] + [good.autopilot_id] * 3
    calls = [asyncio.create_task(run_now(service, each)) for each in ids]
    await gate.reached.wait()
    gate.release.set()
    runs = await asyncio.gather(*calls)
    states = [each.state for each in runs]
    assert states.count(run_pb2.RUN_STATE_RUNNING) == 6
    assert states[3] == run_pb2.RUN_STATE_FAILED
    assert runs[3].reason == reason_pb2.REASON_DISPATCH_FAILED
