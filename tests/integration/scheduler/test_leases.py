"""Who may write: vanished executors are replaced, slow ones are not, late ones change nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.integration.scheduler.conftest import JOB, Owner, Replica, start_at, wish

from reveille_runtime.batcher import Batcher
from reveille_runtime.lease import Lease
from reveille_scheduler.domain.states import ExecutionState
from reveille_scheduler.usecases.hand_over import HandOver
from reveille_scheduler.usecases.jobs import Jobs
from reveille_scheduler.usecases.settle import Ended, Settle
from reveille_scheduler.workers.executor import Executor
from reveille_testkit.database import TestDatabase
from reveille_testkit.rpc import RpcRig

NOON = datetime(2030, 6, 1, 12, tzinfo=UTC)
STALE = JOB.stale_timeout + timedelta(seconds=30)


@pytest.fixture
async def claimed(replica: Replica) -> Replica:
    """A replica that claimed an occurrence and then vanished."""
    await replica.scopes.put([wish()])
    await start_at(replica, NOON + timedelta(seconds=1))
    (claim,) = await replica.plan()
    assert claim.attempt == 1
    return replica


async def test_a_vanished_executors_occurrence_is_tried_again(
    claimed: Replica, database: TestDatabase, rig: RpcRig, owner: Owner
) -> None:
    survivor = Replica(await database.open("scheduler"), rig, "survivor")
    await start_at(survivor, NOON + STALE)
    await survivor.look_for_the_dead()
    given_up = await survivor.one()
    assert (given_up.state, given_up.reason) == (ExecutionState.FAILED, "lease_expired")

    await survivor.run()

    execution = await survivor.one()
    assert len(owner.plans) == 1
    assert execution.state is ExecutionState.SUCCESS
    assert execution.attempt == 2
    assert execution.runner_id == "survivor"


async def test_a_lease_shorter_than_this_scheduler_keeps_by_itself_is_kept(
    replica: Replica,
) -> None:
    """A replica that renews more often let the job in; this one executes it as well."""
    short = replace(
        JOB,
        run_timeout=timedelta(seconds=4),
        heartbeat_interval=timedelta(seconds=2),
        stale_timeout=timedelta(seconds=6),
    )
    await Jobs(replica.database, {"owner"}, timedelta(seconds=2)).register(short)
    await replica.scopes.put([wish()])
    await start_at(replica, NOON + timedelta(seconds=1))
    await replica.run()

    execution = await replica.one()
    assert (execution.state, execution.attempt) == (ExecutionState.SUCCESS, 1)


async def test_one_look_at_an_expired_lease_is_not_enough(
    claimed: Replica, database: TestDatabase, rig: RpcRig
) -> None:
    survivor = Replica(await database.open("scheduler"), rig, "survivor")
    await start_at(survivor, NOON + STALE)
    await survivor.keeper.tick()
    await survivor.take_over()

    assert (await survivor.one()).state is ExecutionState.RUNNING


async def test_a_paused_database_kills_nobody(
    claimed: Replica, database: TestDatabase, rig: RpcRig, owner: Owner
) -> None:
    """Both replicas lose the database for longer than a lease; the holder is back first."""
    survivor = Replica(await database.open("scheduler"), rig, "survivor")
    held = (await claimed.ledger())[0]
    assert held.state is ExecutionState.RUNNING
    await start_at(survivor, NOON + STALE)
    # The survivor's first look after the outage: its own renewals had failed until now.
    await survivor.take_over()
    survivor.elapsed += 10.0
    await survivor.take_over()
    assert (await survivor.one()).state is ExecutionState.RUNNING

    # The holder renews, and the next looks find nothing expired.
    admin = await database.admin()
    token = await admin.fetchval("SELECT lease_token FROM scheduler.executions")
    await start_at(claimed, NOON + STALE)
    async with claimed.keeper.hold(Lease(held.id, token)):
        await claimed.keeper.tick()
    await survivor.look_for_the_dead()

    assert (await survivor.one()).state is ExecutionState.RUNNING


async def test_a_late_answer_after_a_take_over_changes_nothing(
    replica: Replica, database: TestDatabase, rig: RpcRig, owner: Owner
) -> None:
    owner.may_answer.clear()
    await replica.scopes.put([wish()])
    await start_at(replica, NOON + timedelta(seconds=1))
    (claim,) = await replica.plan()
    slow = asyncio.ensure_future(replica.hand_over(claim))
    await owner.called.wait()

    survivor = Replica(await database.open("scheduler"), rig, "survivor")
    await start_at(survivor, NOON + STALE)
    await survivor.look_for_the_dead()
    retries = await survivor.claim_retries("tidy", 10)
    before = await survivor.one()
    owner.may_answer.set()
    await slow

    after = await survivor.one()
    assert len(retries.claims) == 1
    assert after == before
    assert after.state is ExecutionState.RUNNING


async def test_a_lost_lease_ends_the_wait_for_that_plan_alone(
    replica: Replica, database: TestDatabase, owner: Owner
) -> None:
    owner.may_answer.clear()
    await replica.scopes.put([wish("lost"), wish("kept")])
    await start_at(replica, NOON + timedelta(seconds=1))
    claims = {claim.scope_id: claim for claim in await replica.plan()}
    work = {name: asyncio.ensure_future(replica.hand_over(claim)) for name, claim in claims.items()}
    await owner.called.wait()
    admin = await database.admin()
    await admin.execute(
        "UPDATE scheduler.executions SET lease_token = gen_random_uuid() WHERE scope_id = 'lost'"
    )
    await replica.keeper.tick()
    await asyncio.wait_for(work["lost"], 5)
    assert not work["kept"].done()

    owner.may_answer.set()
    await work["kept"]
    states = {execution.scope_id: execution.state for execution in await replica.ledger()}
    assert states == {"lost": ExecutionState.RUNNING, "kept": ExecutionState.SUCCESS}


async def test_a_stop_gives_attempts_back(replica: Replica, owner: Owner) -> None:
    owner.may_answer.clear()
    await replica.scopes.put([wish()])
    await start_at(replica, NOON + timedelta(seconds=1))
    replica.executor.start(await replica.plan())
    await owner.called.wait()
    await replica.executor.stop()

    execution = await replica.one()
    assert execution.state is ExecutionState.FAILED
    assert execution.attempt == 0
    assert execution.next_retry_at is not None
    owner.may_answer.set()


async def test_a_handler_that_is_away_costs_no_attempt(replica: Replica, rig: RpcRig) -> None:
    await replica.scopes.put([wish()])
    await start_at(replica, NOON + timedelta(seconds=1))
    await rig.server.stop(0)
    with contextlib.suppress(TimeoutError):
        await replica.run()

    execution = await replica.one()
    assert execution.state is ExecutionState.FAILED
    assert execution.attempt == 0
    assert execution.next_retry_at is not None


async def test_an_answer_survives_the_loss_of_every_connection(
    replica: Replica, database: TestDatabase, owner: Owner
) -> None:
    """The database restarts while a handler works: the end is told all the same, once."""
    owner.may_answer.clear()
    await replica.scopes.put([wish()])
    await start_at(replica, NOON + timedelta(seconds=1))
    (claim,) = await replica.plan()
    work = asyncio.ensure_future(replica.hand_over(claim))
    await owner.called.wait()
    admin = await database.admin()
    await admin.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    owner.may_answer.set()
    await asyncio.wait_for(work, 20)

    execution = await replica.one()
    assert (execution.state, execution.attempt) == (ExecutionState.SUCCESS, 1)


async def test_a_holder_whose_renewals_fail_stops_before_its_lease_ends(
    replica: Replica, database: TestDatabase, owner: Owner
) -> None:
    """Two thirds of a lease without a renewal: the work is dropped, the row is left alone."""
    owner.may_answer.clear()
    await replica.scopes.put([wish()])
    await start_at(replica, NOON + timedelta(seconds=1))
    (claim,) = await replica.plan()
    work = asyncio.ensure_future(replica.hand_over(claim))
    await owner.called.wait()
    replica.elapsed += JOB.stale_timeout.total_seconds() * 2 / 3
    await replica.keeper.tick()
    await asyncio.wait_for(work, 5)

    assert (await replica.one()).state is ExecutionState.RUNNING
    owner.may_answer.set()


async def test_a_stop_waits_until_an_end_is_written(replica: Replica) -> None:
    """The handler has answered and the write is on its way when the service stops."""
    writing, may_write = asyncio.Event(), asyncio.Event()
    settle = Settle(replica.database, replica.tracing)

    async def slow(batch: Sequence[Ended]) -> Sequence[bool | Exception]:
        writing.set()
        await may_write.wait()
        return await settle(batch)

    writes: Batcher[Ended, bool] = Batcher("settle", slow)
    hand_over = HandOver({"owner": replica.handler}, writes, replica.keeper, replica.tracing)
    executor = Executor(hand_over, capacity=1, grace=0.0)
    await replica.scopes.put([wish()])
    await start_at(replica, NOON + timedelta(seconds=1))
    executor.start(await replica.plan())
    await writing.wait()
    stopping = asyncio.ensure_future(executor.stop())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not stopping.done()
    may_write.set()
    await stopping

    execution = await replica.one()
    assert (execution.state, execution.attempt) == (ExecutionState.SUCCESS, 1)
