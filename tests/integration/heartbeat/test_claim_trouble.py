"""One workspace's trouble is not the others': their runs are claimed and launched all the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID, uuid4

import asyncpg
import pytest
from tests.integration.heartbeat.conftest import Service, Stage
from tests.integration.heartbeat.kit import Client, World

from reveille.heartbeat.v1 import run_pb2, wakeup_pb2
from reveille_heartbeat.domain.queue import MAX_CLAIMED_BYTES
from reveille_heartbeat.usecases.runs.claim_runs import ClaimRuns
from reveille_heartbeat.usecases.runs.claiming import ClaimBatch, Claimed
from reveille_heartbeat.usecases.runs.loaded import Loaded
from reveille_testkit.database import TestDatabase


async def worlds_in_turn(client: Client, folder: Path, count: int) -> list[World]:
    """Make workspaces in the order in which claims go round."""
    worlds = [World(client, folder, each) for each in sorted(uuid4() for _ in range(count))]
    for number, world in enumerate(worlds):
        await world.put(prefix=f"W{number}")
    return worlds


async def queued(world: World, count: int) -> None:
    agent = await world.agent(f"many-{uuid4()}", max_concurrent_runs=50)
    for number in range(count):
        await world.wake(agent, f"{agent.name}:{number}")


@asynccontextmanager
async def held(database: TestDatabase, *worlds: World) -> AsyncIterator[None]:
    """Hold every agent of these workspaces, as a replica does that is frozen amid a transaction."""
    holder = await database.connect("reveille_heartbeat_app")
    await holder.execute("SET idle_in_transaction_session_timeout = 0")
    async with holder.transaction():
        await holder.execute(
            "SELECT agent_id FROM agents WHERE workspace_id = ANY($1::uuid[]) FOR UPDATE",
            [world.workspace_id for world in worlds],
        )
        yield


def workspaces(claimed: Sequence[Loaded]) -> list[UUID]:
    return [each.run.workspace_id for each in claimed]


async def test_runs_are_executed_once_while_another_workspace_cannot_be_claimed_from(
    idle: tuple[Service, World], stage: Stage, database: TestDatabase
) -> None:
    service, _ = idle
    well, stuck = await worlds_in_turn(service.client, stage.folder, 2)
    agent, other = await well.agent(), await stuck.agent()
    first = await well.wake(agent, "webhook:1")
    waits = await stuck.wake(other, "webhook:1")

    async with held(database, stuck):
        # Its first look finds both: the one is claimed, then the other cannot be.
        replica = await stage.start(sweep_interval=3600)
        done = await well.settled(first.wakeup_id)
        for number in range(2, 4):
            later = await well.wake(agent, f"webhook:{number}")
            assert (await well.settled(later.wakeup_id)).state == wakeup_pb2.WAKEUP_STATE_COMPLETED
        await replica.tick("recovery")
        (still,) = await stuck.attempts(waits.wakeup_id)
    assert done.state == wakeup_pb2.WAKEUP_STATE_COMPLETED
    (attempt,) = await well.attempts(first.wakeup_id)
    assert (attempt.attempt, attempt.state) == (1, run_pb2.RUN_STATE_SUCCEEDED)
    assert still.state == run_pb2.RUN_STATE_QUEUED
    assert replica.app.loops["engine.claim"].failures == 0
    # Nothing of it is lost, either.
    assert (await stuck.settled(waits.wakeup_id)).state == wakeup_pb2.WAKEUP_STATE_COMPLETED


async def test_what_is_claimed_is_handed_over_before_the_next_workspace_is_asked(
    idle: tuple[Service, World],
    stage: Stage,
    database: TestDatabase,
    claimers: list[ClaimRuns],
) -> None:
    service, _ = idle
    well, stuck = await worlds_in_turn(service.client, stage.folder, 2)
    for world in (well, stuck):
        await queued(world, 1)
    launched: list[UUID] = []
    seen = asyncio.Event()

    def launch(batch: Sequence[Loaded]) -> None:
        launched.extend(workspaces(batch))
        seen.set()

    async with held(database, stuck):
        step = asyncio.create_task(claimers[0](5, launch))
        async with asyncio.timeout(20):
            await seen.wait()
        # The end of the process, for instance.
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await step
    assert launched == [well.workspace_id]


async def test_those_after_a_workspace_in_trouble_have_their_share_and_it_has_its_turn_again(
    idle: tuple[Service, World],
    stage: Stage,
    database: TestDatabase,
    claimers: list[ClaimRuns],
) -> None:
    service, _ = idle
    first, stuck, last = await worlds_in_turn(service.client, stage.folder, 3)
    for world, count in ((first, 8), (stuck, 4), (last, 2)):
        await queued(world, count)
    claim = claimers[0]

    async with held(database, stuck):
        taken = workspaces(await claim(6))
    # What it could not take is shared by the others.
    assert taken.count(last.workspace_id) == 2
    assert taken.count(first.workspace_id) == 4
    assert not claim.more
    taken = workspaces(await claim(4))
    assert [taken.count(world.workspace_id) for world in (first, stuck)] == [2, 2]


async def test_a_claim_waits_for_no_lock_as_long_as_others_do(
    idle: tuple[Service, World],
    database: TestDatabase,
    claimers: list[ClaimRuns],
    rows: asyncpg.Connection[asyncpg.Record],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, world = idle
    await queued(world, 1)
    limits: list[str] = []
    take = ClaimBatch._lock

    async def noting(self: ClaimBatch, *args: object) -> None:
        limits.append(await self._tx.raw.fetchval("SHOW lock_timeout"))
        await take(self, *args)  # type: ignore[arg-type]  # handed on as it came

    monkeypatch.setattr(ClaimBatch, "_lock", noting)
    assert len(await claimers[0](5)) == 1
    assert limits == ["1s"]
    # The pool's connections are as they were.
    async with claimers[0]._db.session() as tx:
        assert await tx.raw.fetchval("SHOW lock_timeout") == await rows.fetchval(
            "SHOW lock_timeout"
        )


async def test_a_call_ends_after_a_few_workspaces_in_trouble_and_the_next_goes_on_after_them(
    idle: tuple[Service, World],
    stage: Stage,
    claimers: list[ClaimRuns],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service, _ = idle
    worlds = await worlds_in_turn(service.client, stage.folder, 6)
    for world in worlds:
        await queued(world, 1)
    ids = [world.workspace_id for world in worlds]
    asked: list[UUID] = []
    run = ClaimBatch.run

    async def failing(self: ClaimBatch, workspace_id: UUID, limit: int, bytes_room: int) -> Claimed:
        asked.append(workspace_id)
        if workspace_id in ids[1:5]:
            raise RuntimeError("a row that nobody can read")
        return await run(self, workspace_id, limit, bytes_room)

    monkeypatch.setattr(ClaimBatch, "run", failing)
    claim = claimers[0]
    assert workspaces(await claim(10)) == ids[:1]
    assert (asked, claim.more) == (ids[:4], True)
    assert workspaces(await claim(10)) == ids[5:]
    assert asked[4:] == [*ids[4:], *ids[1:3]]
    # With nobody left but those in trouble, nothing is worth another look at once.
    assert await claim(10) == []
    assert not claim.more


async def test_much_to_tell_in_one_workspace_keeps_nobody_elses_runs_waiting(
    idle: tuple[Service, World],
    stage: Stage,
    database: TestDatabase,
    claimers: list[ClaimRuns],
) -> None:
    service, _ = idle
    worlds = await worlds_in_turn(service.client, stage.folder, 3)
    for world in worlds:
        await queued(world, 3)
    rows = await database.connect("reveille_heartbeat_app")
    await rows.execute("UPDATE wakeup_requests SET told_bytes = $1", MAX_CLAIMED_BYTES)

    # Room for one at a time, and a turn for each.
    for _ in range(3):
        for world in worlds:
            assert workspaces(await claimers[0](50)) == [world.workspace_id]
            assert claimers[0].more
    assert await claimers[0](50) == []
