"""CancelRun: one path for every state; the record first, then the agent, wherever it runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from tests.integration.heartbeat.conftest import Stage
from tests.integration.heartbeat.kit import MEMBER, World
from tests.integration.heartbeat.test_processes import gone, linger, process_in

from reveille.common.v1 import reason_pb2
from reveille.heartbeat.v1 import run_pb2, wakeup_pb2
from reveille.heartbeat.v1.run_pb2_grpc import RunServiceStub
from reveille.heartbeat.v1.wakeup_pb2_grpc import WakeupServiceStub
from reveille_runtime.errors import NotFound, PermissionDenied
from reveille_runtime.rpc_errors import as_domain_errors
from reveille_testkit.waiting import eventually


@pytest.fixture
async def idle(stage: Stage, tmp_path: Path) -> World:
    """A workspace whose queue nobody serves."""
    service = await stage.start(engine_concurrency=0, sweep_interval=3600)
    world = World(service.client, tmp_path)
    await world.put()
    return world


def member(world: World) -> Any:
    return RunServiceStub(world.client.user(MEMBER, world.workspace_id))


async def cancel(world: World, run_id: str) -> run_pb2.HeartbeatRun:
    with as_domain_errors():
        answer = await member(world).CancelRun(run_pb2.CancelRunRequest(run_id=run_id))
    run: run_pb2.HeartbeatRun = answer.run
    return run


async def only_run(world: World, wakeup_id: str) -> run_pb2.HeartbeatRun:
    (run,) = await world.attempts(wakeup_id)
    return run


@pytest.mark.parametrize("waits", ["queued", "scheduled_retry"])
async def test_an_attempt_that_waits_ends_with_its_wakeup_and_the_next_wake_gets_its_turn(
    waits: str, idle: World, rows: asyncpg.Connection[asyncpg.Record]
) -> None:
    agent, other = await idle.agent(), await idle.agent("other")
    made = await idle.issue(agent)
    run = await only_run(idle, made.wakeup.wakeup_id)
    behind = await idle.wake(other, issue_id=made.issue.issue_id)
    assert behind.state == wakeup_pb2.WAKEUP_STATE_DEFERRED
    if waits == "scheduled_retry":
        await rows.execute(
            "UPDATE runs SET state = 'scheduled_retry', scheduled_retry_at = clock() + '1 hour'"
        )

    ended = await cancel(idle, run.run_id)

    assert ended.state == run_pb2.RUN_STATE_CANCELLED
    assert ended.reason == reason_pb2.REASON_CANCELLED
    assert ended.message == f"cancelled by {MEMBER}"
    wakeup = await idle.wakeup(made.wakeup.wakeup_id)
    assert wakeup.state == wakeup_pb2.WAKEUP_STATE_CANCELLED
    assert (await idle.wakeup(behind.wakeup_id)).state == wakeup_pb2.WAKEUP_STATE_QUEUED
    assert (await only_run(idle, behind.wakeup_id)).state == run_pb2.RUN_STATE_QUEUED
    # Again, it is answered as it stands, and nothing else comes of it.
    assert await cancel(idle, run.run_id) == ended
    assert await rows.fetchval("SELECT count(*) FROM run_events") == 1


async def test_another_replica_ends_the_agent(stage: Stage, tmp_path: Path) -> None:
    executing = await stage.start()
    asked = await stage.start(engine_concurrency=0)
    world = World(executing.client, tmp_path)
    await world.put()
    woken = await world.wake(await world.script(linger(tmp_path / "pid")))
    process = await process_in(tmp_path / "pid")
    run = await only_run(world, woken.wakeup_id)

    there = World(asked.client, tmp_path, world.workspace_id)
    ended = await cancel(there, run.run_id)

    assert (ended.state, ended.occupied) == (run_pb2.RUN_STATE_CANCELLED, True)
    await gone(process)
    wakeup = await world.settled(woken.wakeup_id)
    assert wakeup.state == wakeup_pb2.WAKEUP_STATE_CANCELLED
    assert not (await world.run(run.run_id)).occupied


async def test_an_end_that_came_first_stays(
    idle: World, rows: asyncpg.Connection[asyncpg.Record]
) -> None:
    woken = await idle.wake(await idle.agent())
    run = await only_run(idle, woken.wakeup_id)
    async with rows.transaction():
        await rows.execute("SELECT FROM wakeup_requests FOR UPDATE")
        cancelling = asyncio.create_task(cancel(idle, run.run_id))

        async def blocked() -> int:
            count: int = await rows.fetchval(
                "SELECT count(*) FROM pg_locks"
                " WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"
            )
            return count

        await eventually(blocked, "the cancellation waits for the lock")
        await rows.execute(
            "UPDATE runs SET state = 'succeeded', started_at = clock(), finished_at = clock(),"
            " follow_up_done_at = clock()"
        )
    assert (await cancelling).state == run_pb2.RUN_STATE_SUCCEEDED
    wakeup = await rows.fetchrow("SELECT state, cancel_requested_at FROM wakeup_requests")
    assert wakeup is not None
    assert (wakeup["state"], wakeup["cancel_requested_at"]) == ("queued", None)
    assert await rows.fetchval("SELECT state FROM runs WHERE run_id = $1", UUID(run.run_id)) == (
        "succeeded"
    )


async def test_what_is_called_off_leaves_the_wake_that_it_had_joined(
    idle: World, rows: asyncpg.Connection[asyncpg.Record]
) -> None:
    agent = await idle.agent()

    async def wake(words: str) -> str:
        payload = wakeup_pb2.Payload(body=words.encode(), facts={"für": words})
        answer = await idle.wake(agent, prompt=words, payload=payload)
        return str(answer.wakeup_id)

    async def told() -> tuple[int, int]:
        query = "SELECT coalesced_count, told_bytes FROM wakeup_requests WHERE wakeup_id = $1"
        return tuple(await rows.fetchrow(query, UUID(target)))  # type: ignore[arg-type]  # there is the row

    target = await wake("do it")
    alone = await told()
    stays = await wake("and this")
    both = await told()
    goes = await wake("größer, and this, too")
    cancel: Any = WakeupServiceStub(idle.client.user(MEMBER, idle.workspace_id)).CancelWakeup
    # Once it is gone it has nothing to leave.
    for _ in range(2):
        await cancel(wakeup_pb2.CancelWakeupRequest(wakeup_id=goes))
        assert (await told(), alone[0], both[0]) == (both, 0, 1)
    await cancel(wakeup_pb2.CancelWakeupRequest(wakeup_id=stays))
    assert await told() == alone


async def test_who_may_cancel(idle: World) -> None:
    woken = await idle.wake(await idle.agent())
    run = await only_run(idle, woken.wakeup_id)
    request = run_pb2.CancelRunRequest(run_id=run.run_id)
    stranger: Any = RunServiceStub(idle.client.user("eve", uuid4()))
    with pytest.raises(NotFound), as_domain_errors():
        await stranger.CancelRun(request)
    with pytest.raises(PermissionDenied), as_domain_errors():
        await idle.runs.CancelRun(request)
    assert (await only_run(idle, woken.wakeup_id)).state == run_pb2.RUN_STATE_QUEUED
