"""Overlap: what becomes of an occurrence while an earlier run of its rule has no outcome yet."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeAlias
from uuid import UUID

import asyncpg
import pytest
from tests.integration.autopilot.conftest import (
    CREATOR,
    Service,
    Stage,
    admit,
    blocked,
    edit_rule,
    facts,
    hand_over,
    make_autopilot,
    make_webhook,
    run_now,
    until,
)
from tests.integration.autopilot.peers import World

from reveille.autopilot.v1 import autopilot_pb2 as rule_pb
from reveille.autopilot.v1 import autopilot_service_pb2 as pb
from reveille.autopilot.v1 import dispatch_service_pb2 as dispatch_pb
from reveille.autopilot.v1 import run_pb2
from reveille.common.v1 import reason_pb2
from reveille.heartbeat.v1 import wakeup_pb2
from reveille_testkit.database import TestDatabase

Rows: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


@pytest.fixture
async def holder(database: TestDatabase) -> Rows:
    """A connection that holds a rule's lock as long as a test wants."""
    return await database.connect("reveille_autopilot_app")


@asynccontextmanager
async def rule_locked(holder: Rows, autopilot_id: str) -> AsyncIterator[None]:
    """Hold a rule, so that whoever needs its lock piles up behind."""
    async with holder.transaction():
        await holder.execute("SELECT FROM autopilots WHERE id = $1 FOR UPDATE", UUID(autopilot_id))
        yield


async def begun(world: World, run: run_pb2.AutopilotRun) -> None:
    await until(lambda: run.occurrence_key in world.made, "it begins")


async def states(rows: Rows) -> Counter[str]:
    found = await rows.fetch("SELECT state, reason FROM runs")
    return Counter(f"{row['state']} {row['reason'] or ''}".strip() for row in found)


async def test_of_fifty_at_once_one_runs_and_forty_nine_are_already_active(
    service: Service, stage: Stage, world: World, workspace_id: UUID, rows: Rows, holder: Rows
) -> None:
    other = await stage.start()
    rule = await make_autopilot(
        service, world, workspace_id, overlap_policy=rule_pb.OVERLAP_POLICY_SKIP
    )
    async with rule_locked(holder, rule.autopilot_id):
        running = [
            asyncio.ensure_future(
                run_now((service, other)[number % 2], rule.autopilot_id, request_id=str(number))
            )
            for number in range(50)
        ]
        # Both replicas have judged everything but the count when the lock is let go.
        await blocked(rows, 2)
    found = await asyncio.gather(*running)

    assert Counter(run.state for run in found) == {
        run_pb2.RUN_STATE_RUNNING: 1,
        run_pb2.RUN_STATE_SKIPPED: 49,
    }
    assert {run.reason for run in found if run.state == run_pb2.RUN_STATE_SKIPPED} == {
        reason_pb2.REASON_ALREADY_ACTIVE
    }
    assert len(world.made) == 1


async def test_one_waits_and_begins_when_the_run_before_it_ends(
    service: Service, world: World, workspace_id: UUID, rows: Rows
) -> None:
    rule = await make_autopilot(
        service, world, workspace_id, overlap_policy=rule_pb.OVERLAP_POLICY_BUFFER_ONE
    )
    first, second, third = [
        await run_now(service, rule.autopilot_id, request_id=str(number)) for number in range(3)
    ]
    assert [run.state for run in (first, second, third)] == [
        run_pb2.RUN_STATE_RUNNING,
        run_pb2.RUN_STATE_BUFFERED,
        run_pb2.RUN_STATE_SKIPPED,
    ]
    assert third.reason == reason_pb2.REASON_ALREADY_ACTIVE
    made = world.only()
    await world.emit(world.settled(made, wakeup_pb2.WAKEUP_STATE_COMPLETED))
    await until(lambda: len(world.made) == 2, "the waiting run begins")
    later = world.made[second.occurrence_key]
    await world.emit(world.settled(later, wakeup_pb2.WAKEUP_STATE_COMPLETED))
    assert (await service.ended(second.run_id)).state == run_pb2.RUN_STATE_COMPLETED
    assert await states(rows) == {"completed": 2, "skipped already_active": 1}


async def test_a_run_that_is_put_behind_another_just_as_that_ends_begins_all_the_same(
    service: Service, stage: Stage, world: World, workspace_id: UUID, rows: Rows, holder: Rows
) -> None:
    rule = await make_autopilot(
        service, world, workspace_id, overlap_policy=rule_pb.OVERLAP_POLICY_BUFFER_ONE
    )
    first = await run_now(service, rule.autopilot_id, request_id="1")
    for inserted_first in (True, False):
        async with rule_locked(holder, rule.autopilot_id):
            ending = world.settled(
                world.made[first.occurrence_key], wakeup_pb2.WAKEUP_STATE_COMPLETED
            )
            running = None
            if inserted_first:
                running = asyncio.ensure_future(run_now(service, rule.autopilot_id))
                await blocked(rows, 1)
            await world.emit(ending)
            await blocked(rows, 2 if inserted_first else 1)
            if running is None:
                running = asyncio.ensure_future(run_now(service, rule.autopilot_id))
                await blocked(rows, 2)
        second = await running
        assert second.state in {run_pb2.RUN_STATE_BUFFERED, run_pb2.RUN_STATE_RUNNING}
        await service.ended(first.run_id)
        await begun(world, second)
        first = second
    assert not await rows.fetchval("SELECT count(*) FROM runs WHERE state = 'buffered'")


async def test_the_sweep_lets_a_run_begin_of_which_nobody_was_told(
    service: Service, world: World, workspace_id: UUID, rows: Rows
) -> None:
    rule = await make_autopilot(
        service, world, workspace_id, overlap_policy=rule_pb.OVERLAP_POLICY_BUFFER_ONE
    )
    await run_now(service, rule.autopilot_id, request_id="1")
    waiting = await run_now(service, rule.autopilot_id, request_id="2")
    # As if the end had been written by a release that did not know of waiting runs.
    await rows.execute(
        "UPDATE runs SET state = 'completed', finished_at = clock(), next_attempt_at = NULL"
        " WHERE state = 'running'"
    )
    service.move_clock(60)
    await service.tick("sweep")
    await until(lambda: waiting.occurrence_key in world.made, "it begins")


async def test_the_newest_run_replaces_the_others_and_one_is_left(
    service: Service, stage: Stage, world: World, workspace_id: UUID, rows: Rows, holder: Rows
) -> None:
    other = await stage.start()
    rule = await make_autopilot(
        service, world, workspace_id, overlap_policy=rule_pb.OVERLAP_POLICY_CANCEL_OTHER
    )
    before = await run_now(service, rule.autopilot_id)
    assert before.state == run_pb2.RUN_STATE_RUNNING
    async with rule_locked(holder, rule.autopilot_id):
        running = [
            asyncio.ensure_future(run_now(replica, rule.autopilot_id, request_id=str(number)))
            for number in range(5)
            for replica in (service, other)
        ]
        await blocked(rows, 2)
    await asyncio.gather(*running)

    async def one_left() -> bool:
        count: int = await rows.fetchval("SELECT count(*) FROM runs WHERE finished_at IS NULL")
        return count == 1

    await until(one_left, "one is left")
    left = await rows.fetchrow("SELECT occurrence_key FROM runs WHERE finished_at IS NULL")
    assert left is not None
    assert world.made[left["occurrence_key"]].state == wakeup_pb2.WAKEUP_STATE_QUEUED
    gone = await service.run_of(before.run_id)
    assert (gone.state, gone.reason) == (
        run_pb2.RUN_STATE_CANCELLED,
        reason_pb2.REASON_REPLACED,
    )
    # Nothing that was replaced is at work any more.
    await until(
        lambda: sum(m.state == wakeup_pb2.WAKEUP_STATE_QUEUED for m in world.made.values()) == 1,
        "only one is at work",
    )


async def test_a_waiting_run_can_be_cancelled_and_makes_nothing(
    service: Service, world: World, workspace_id: UUID
) -> None:
    rule = await make_autopilot(
        service, world, workspace_id, overlap_policy=rule_pb.OVERLAP_POLICY_BUFFER_ONE
    )
    await run_now(service, rule.autopilot_id)
    waiting = await run_now(service, rule.autopilot_id)
    answer = await service.as_user(CREATOR).CancelRun(pb.CancelRunRequest(run_id=waiting.run_id))
    assert answer.run.state == run_pb2.RUN_STATE_CANCELLED
    assert world.made[waiting.occurrence_key].wakeup_id == ""


async def test_a_waiting_delivery_keeps_its_body_and_a_changed_policy_holds_nobody_back(
    service: Service, world: World, workspace_id: UUID
) -> None:
    rule = await make_autopilot(
        service, world, workspace_id, overlap_policy=rule_pb.OVERLAP_POLICY_BUFFER_ONE
    )
    hook = await make_webhook(service, rule.autopilot_id)
    rule = (
        await service.as_user(CREATOR).GetAutopilot(
            pb.GetAutopilotRequest(autopilot_id=rule.autopilot_id)
        )
    ).autopilot
    first = await run_now(service, rule.autopilot_id)
    delivery = facts(hook.trigger)
    (answer,) = await admit(service, delivery)
    assert answer.outcome == dispatch_pb.ADMIT_OUTCOME_ACCEPTED
    handed = await hand_over(service, delivery, answer.run_id, b"the body")
    assert handed.outcome == dispatch_pb.DISPATCH_OUTCOME_DISPATCHED
    assert (await service.run_of(answer.run_id)).state == run_pb2.RUN_STATE_BUFFERED
    await edit_rule(service, rule, overlap_policy=rule_pb.OVERLAP_POLICY_ALLOW)
    await world.emit(
        world.settled(world.made[first.occurrence_key], wakeup_pb2.WAKEUP_STATE_FAILED)
    )
    key = f"webhook:{delivery.delivery_id}"
    await until(lambda: key in world.made, "it begins")
    wakeup = world.made[key].wakeup
    assert wakeup is not None
    assert wakeup.payload.body == b"the body"
