"""Executors stop, die, freeze and come back; agents run once, or again with a record of why."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import asyncpg
import pytest
from tests.integration.heartbeat.conftest import Stage
from tests.integration.heartbeat.kit import ANSWER, World, marker, ran
from tests.integration.heartbeat.ledger import Ledger
from tests.integration.heartbeat.replica import Replicas
from tests.integration.heartbeat.test_processes import linger, process_in

from reveille.common.v1 import reason_pb2
from reveille.heartbeat.v1 import agent_pb2, run_pb2, wakeup_pb2
from reveille_heartbeat.adapters.process.identity import is_alive, send
from reveille_heartbeat.adapters.process.tree import marked_runs
from reveille_heartbeat.domain.values import ProcessIdentity
from reveille_heartbeat.usecases.runs.held_run import HeldRun
from reveille_runtime.lease import Lease
from reveille_testkit.waiting import eventually

# Waits for the word `go` (a file) before it answers.
WAITING = """
import os, pathlib, threading
print("waiting", flush=True)
while not pathlib.Path({go!r}).exists():
    threading.Event().wait(0.02)
"""


async def prepared(stage: Stage, folder: Path) -> tuple[World, agent_pb2.Agent]:
    """Make an agent that runs until it is told to go on, through a replica of another place."""
    quiet = await stage.start(
        engine_concurrency=0,
        recovery_interval=3600,
        sweep_interval=3600,
        spool_dir=folder / "elsewhere",
    )
    world = World(quiet.client, folder)
    await world.put()
    code = marker(folder) + WAITING.format(go=str(folder / "go")) + ANSWER
    return world, await world.script(code)


async def alive(run_id: str) -> list[ProcessIdentity]:
    """List the living processes that carry a run's mark."""
    return marked_runs().get(UUID(run_id), [])


async def at_work(world: World, wakeup_id: str, folder: Path) -> run_pb2.HeartbeatRun:
    """Wait until the agent runs."""

    async def look() -> list[str]:
        return ran(folder)

    await eventually(look, "the agent runs")
    return (await world.attempts(wakeup_id))[-1]


async def test_a_stop_leaves_the_agent_at_work_and_the_next_start_finds_it(
    replicas: Replicas, stage: Stage, tmp_path: Path
) -> None:
    world, agent = await prepared(stage, tmp_path)
    result = await world.wake(agent, "manual:1")
    first = await replicas.start()
    run = await at_work(world, result.wakeup_id, tmp_path)

    first.send(signal.SIGTERM)
    assert await first.ended() == 0
    second = await replicas.start()
    adopted = await eventually(
        lambda: world.run(run.run_id),
        "the run has a new executor",
        until=lambda now: f"/{second.pid}/" in now.executor_id,
    )
    assert adopted.attempt == 1
    (tmp_path / "go").touch()
    wakeup = await world.settled(result.wakeup_id)

    assert wakeup.state == wakeup_pb2.WAKEUP_STATE_COMPLETED
    assert ran(tmp_path) == [run.run_id]
    assert len(await world.attempts(result.wakeup_id)) == 1
    # No byte of its output is missing or doubled over the change.
    assert await world.log(run.run_id) == "waiting\nwoken by autopilot_run\n"


async def test_a_process_that_ended_while_nobody_looked_keeps_its_true_result(
    replicas: Replicas, stage: Stage, tmp_path: Path
) -> None:
    world, agent = await prepared(stage, tmp_path)
    result = await world.wake(agent, "manual:1")
    first = await replicas.start()
    run = await at_work(world, result.wakeup_id, tmp_path)
    first.send(signal.SIGKILL)
    await first.ended()

    (tmp_path / "go").touch()
    ending = tmp_path / "spool" / run.run_id / "exit"

    async def look() -> bool:
        return ending.exists()

    await eventually(look, "the agent has ended")
    await replicas.start()
    wakeup = await world.settled(result.wakeup_id)

    assert wakeup.state == wakeup_pb2.WAKEUP_STATE_COMPLETED
    assert (await world.run(run.run_id)).summary == "done: Look at it"
    assert ran(tmp_path) == [run.run_id]


async def test_an_agent_that_ends_its_own_supervisor_has_failed_and_is_not_repeated(
    world: World, tmp_path: Path
) -> None:
    """The wrapper is killed with it, and its executor lives: no host was lost."""
    agent = await world.script(
        marker(tmp_path) + "import os, signal\nos.killpg(os.getpgrp(), signal.SIGKILL)\n"
    )
    result = await world.wake(agent, "manual:1")
    wakeup = await world.settled(result.wakeup_id)

    assert wakeup.state == wakeup_pb2.WAKEUP_STATE_FAILED
    assert wakeup.reason == reason_pb2.REASON_ADAPTER_FAILED
    (run,) = await world.attempts(result.wakeup_id)
    assert "its supervisor was killed while this executor looked on" in run.message
    assert ran(tmp_path) == [run.run_id]


async def test_a_process_that_vanished_with_its_executor_is_lost_and_its_group_ended(
    replicas: Replicas, stage: Stage, tmp_path: Path, rows: asyncpg.Connection[asyncpg.Record]
) -> None:
    """Executor and wrapper are killed, the agent lives on: ended first, then repeated on record."""
    world, agent = await prepared(stage, tmp_path)
    result = await world.wake(agent, "manual:1")
    first = await replicas.start()
    run = await at_work(world, result.wakeup_id, tmp_path)
    first.send(signal.SIGKILL)
    await first.ended()
    wrapper = await rows.fetchval("SELECT process_pid FROM runs WHERE run_id = $1", run.run_id)
    os.kill(wrapper, signal.SIGKILL)
    assert await alive(run.run_id)

    await replicas.start()
    lost, repeat = await eventually(
        lambda: world.attempts(result.wakeup_id), "it is repeated", until=lambda all_: len(all_) > 1
    )
    assert (lost.state, lost.reason) == (run_pb2.RUN_STATE_FAILED, reason_pb2.REASON_PROCESS_LOST)
    assert repeat.retry_of_run_id == lost.run_id
    assert await alive(run.run_id) == []
    (tmp_path / "go").touch()
    wakeup = await world.settled(result.wakeup_id)
    assert wakeup.state == wakeup_pb2.WAKEUP_STATE_COMPLETED
    assert ran(tmp_path) == [lost.run_id, repeat.run_id]


async def test_an_in_process_run_is_lost_with_its_executor_and_repeated(
    stage: Stage, tmp_path: Path, rows: asyncpg.Connection[asyncpg.Record]
) -> None:
    quiet = await stage.start(engine_concurrency=0, recovery_interval=3600)
    world = World(quiet.client, tmp_path)
    await world.put()
    agent = await world.agent()
    result = await world.wake(agent)
    # What a killed executor leaves: a claimed run, held by a process that is no more.
    await rows.execute(
        "UPDATE runs SET state = 'running', occupied = true, started_at = clock(),"
        " lease_token = gen_random_uuid(), lease_expires_at = clock() - interval '1 s',"
        " executor_id = 'elsewhere/1/1/x', place = 'another/2/place'"
    )
    await rows.execute("UPDATE wakeup_requests SET state = 'claimed', claimed_at = clock()")

    await stage.start()
    wakeup = await world.settled(result.wakeup_id)

    assert wakeup.state == wakeup_pb2.WAKEUP_STATE_COMPLETED
    lost, repeat = await world.attempts(result.wakeup_id)
    assert (lost.state, lost.reason) == (
        run_pb2.RUN_STATE_FAILED,
        reason_pb2.REASON_PROCESS_LOST,
    )
    assert repeat.retry_of_run_id == lost.run_id


async def test_a_frozen_executor_loses_its_run_to_another_which_goes_on_with_the_process(
    replicas: Replicas, stage: Stage, tmp_path: Path
) -> None:
    world, agent = await prepared(stage, tmp_path)
    result = await world.wake(agent, "manual:1")
    first = await replicas.start()
    run = await at_work(world, result.wakeup_id, tmp_path)
    second = await replicas.start()
    await second.listening()

    first.send(signal.SIGSTOP)
    await eventually(
        lambda: world.run(run.run_id),
        "the other one holds the run",
        until=lambda now: f"/{second.pid}/" in now.executor_id,
    )
    first.send(signal.SIGCONT)
    (tmp_path / "go").touch()
    wakeup = await world.settled(result.wakeup_id)

    assert wakeup.state == wakeup_pb2.WAKEUP_STATE_COMPLETED
    assert ran(tmp_path) == [run.run_id]
    assert len(await world.attempts(result.wakeup_id)) == 1


async def test_a_run_that_was_cancelled_while_its_executor_was_away_ends_its_process(
    replicas: Replicas, stage: Stage, tmp_path: Path
) -> None:
    world, _ = await prepared(stage, tmp_path)
    agent = await world.script(linger(tmp_path / "pid"), "lingering")
    result = await world.wake(agent, "manual:1")
    first = await replicas.start()
    process = await process_in(tmp_path / "pid")
    first.send(signal.SIGKILL)
    await first.ended()

    answer = await world.cancel("manual:1")
    assert answer.state == wakeup_pb2.WAKEUP_STATE_CANCELLED
    assert is_alive(process)
    assert (await world.wakeup(result.wakeup_id)).state == wakeup_pb2.WAKEUP_STATE_CLAIMED
    await replicas.start()
    wakeup = await world.settled(result.wakeup_id)

    assert wakeup.state == wakeup_pb2.WAKEUP_STATE_CANCELLED
    assert not is_alive(process)


async def test_a_number_that_became_another_process_is_neither_adopted_nor_signalled(
    replicas: Replicas, stage: Stage, tmp_path: Path, rows: asyncpg.Connection[asyncpg.Record]
) -> None:
    world, _ = await prepared(stage, tmp_path)
    agent = await world.script(linger(tmp_path / "pid"), "lingering")
    bystander = await world.script(linger(tmp_path / "other"), "bystander")
    result = await world.wake(agent, "manual:1")
    first = await replicas.start()
    process = await process_in(tmp_path / "pid")
    other = await world.wake(bystander, "manual:2")
    stranger = await process_in(tmp_path / "other")
    first.send(signal.SIGKILL)
    await first.ended()
    send(process, signal.SIGKILL)
    # As if the wrapper's number had been given to a process that began at another time.
    await rows.execute(
        "UPDATE runs SET process_pid = $1, process_start_ticks = 1 WHERE run_id = $2",
        stranger.pid,
        (await world.attempts(result.wakeup_id))[0].run_id,
    )
    await replicas.start()
    attempts = await eventually(
        lambda: world.attempts(result.wakeup_id),
        "the attempt is over",
        until=lambda all_of_them: not all_of_them[0].occupied,
    )

    assert attempts[0].state == run_pb2.RUN_STATE_FAILED
    assert is_alive(stranger)
    await world.cancel("manual:1")
    await world.cancel("manual:2")
    await world.settled(other.wakeup_id)
    await world.settled(result.wakeup_id)


async def test_the_wrapper_keeps_the_time_limit_while_the_service_is_down(
    replicas: Replicas, stage: Stage, tmp_path: Path
) -> None:
    world, _ = await prepared(stage, tmp_path)
    agent = await world.script(
        linger(tmp_path / "pid"), "slow", run_timeout={"seconds": 1}, idle_timeout={"seconds": 0}
    )
    first = await replicas.start(sweep_interval=3600)
    await first.listening()
    result = await world.wake(agent, "manual:1")
    process = await process_in(tmp_path / "pid")
    first.send(signal.SIGKILL)
    await first.ended()

    async def look() -> bool:
        return is_alive(process)

    await eventually(look, "the agent was ended", until=lambda alive: not alive)
    await replicas.start(sweep_interval=3600)
    wakeup = await world.settled(result.wakeup_id)
    assert wakeup.reason == reason_pb2.REASON_RUN_TIMEOUT


async def test_a_clock_that_jumps_does_not_look_like_everybodys_death(
    stage: Stage, tmp_path: Path
) -> None:
    """The lease of a live executor is expired at one look, and renewed before the next counts."""
    first = await stage.start()
    second = await stage.start(engine_concurrency=0)
    world = World(first.client, tmp_path)
    await world.put()
    agent = await world.script(
        linger(tmp_path / "pid"), run_timeout={"seconds": 0}, idle_timeout={"seconds": 0}
    )
    result = await world.wake(agent, "manual:1")
    await process_in(tmp_path / "pid")
    (before,) = await world.attempts(result.wakeup_id)

    for _ in range(5):
        first.move_clock(3600)
        second.move_clock(3600)
        await second.tick("recovery")
        await second.tick("recovery")
    (after,) = await world.attempts(result.wakeup_id)
    assert (after.state, after.executor_id) == (run_pb2.RUN_STATE_RUNNING, before.executor_id)
    await world.cancel("manual:1")
    await world.settled(result.wakeup_id)


async def test_a_handed_over_run_is_adopted_at_once_in_its_place_and_elsewhere_only_when_expired(
    stage: Stage, tmp_path: Path
) -> None:
    elsewhere = await stage.start(
        engine_concurrency=0, recovery_interval=3600, spool_dir=tmp_path / "elsewhere"
    )
    world = World(elsewhere.client, tmp_path)
    await world.put()
    code = marker(tmp_path) + WAITING.format(go=str(tmp_path / "go")) + ANSWER
    first = await stage.start(recovery_interval=3600)
    result = await world.wake(await world.script(code), "manual:1")
    run = await at_work(world, result.wakeup_id, tmp_path)

    await first.stop()
    left = await world.run(run.run_id)
    assert (left.state, left.executor_id) == (run_pb2.RUN_STATE_RUNNING, "")
    await elsewhere.tick("recovery")
    await elsewhere.tick("recovery")
    assert (await world.run(run.run_id)).executor_id == ""
    # Its first look, at its start, is enough.
    await stage.start(recovery_interval=3600)
    await eventually(
        lambda: world.run(run.run_id), "it is adopted", until=lambda now: now.executor_id != ""
    )
    (tmp_path / "go").touch()
    wakeup = await world.settled(result.wakeup_id)

    assert wakeup.state == wakeup_pb2.WAKEUP_STATE_COMPLETED
    assert ran(tmp_path) == [run.run_id]
    assert [each.attempt for each in await world.attempts(result.wakeup_id)] == [1]
    assert await world.log(run.run_id) == "waiting\nwoken by autopilot_run\n"


async def test_an_agent_that_may_be_silent_for_ever_still_may_after_a_take_over(
    stage: Stage, tmp_path: Path, rows: asyncpg.Connection[asyncpg.Record]
) -> None:
    first = await stage.start(recovery_interval=3600)
    world = World(first.client, tmp_path)
    await world.put()
    code = marker(tmp_path) + WAITING.format(go=str(tmp_path / "go")) + ANSWER
    agent = await world.script(code, run_timeout={"seconds": 0}, idle_timeout={"seconds": 0})
    result = await world.wake(agent, "manual:1")
    run = await at_work(world, result.wakeup_id, tmp_path)
    await first.stop()

    second = await stage.start(recovery_interval=3600, sweep_interval=3600)
    world = World(second.client, tmp_path)
    await eventually(
        lambda: world.run(run.run_id), "it is adopted", until=lambda now: now.executor_id != ""
    )
    assert await rows.fetchval("SELECT idle_deadline_at FROM runs") is None
    # What a version before wrote harms it neither.
    await rows.execute("UPDATE runs SET idle_deadline_at = clock() - interval '1 h'")
    for _ in range(3):
        await second.tick("sweep")
    assert (await world.run(run.run_id)).state == run_pb2.RUN_STATE_RUNNING
    (tmp_path / "go").touch()
    assert (await world.settled(result.wakeup_id)).state == wakeup_pb2.WAKEUP_STATE_COMPLETED


@pytest.mark.parametrize("silent", [False, True])
async def test_silence_is_judged_by_the_files_and_not_by_our_absence(
    silent: bool,
    replicas: Replicas,
    stage: Stage,
    tmp_path: Path,
    rows: asyncpg.Connection[asyncpg.Record],
) -> None:
    world, agent = await prepared(stage, tmp_path)
    looking = await stage.start(
        engine_concurrency=0, recovery_interval=3600, spool_dir=tmp_path / "elsewhere"
    )
    result = await world.wake(agent, "manual:1")
    first = await replicas.start(sweep_interval=3600)
    run = await at_work(world, result.wakeup_id, tmp_path)
    first.send(signal.SIGKILL)
    await first.ended()
    await rows.execute(
        "UPDATE runs SET idle_deadline_at = clock() - interval '1 h', lease_expires_at = clock()"
    )
    if silent:
        long_ago = time.time() - 1000
        for file in (tmp_path / "spool" / run.run_id).iterdir():
            os.utime(file, (long_ago, long_ago))
    # Nobody can tell of the agent now, so nobody calls it silent.
    for _ in range(8):
        await looking.tick("sweep")
    assert (await world.run(run.run_id)).state == run_pb2.RUN_STATE_RUNNING

    await replicas.start()

    async def deadline() -> timedelta:
        left: timedelta = await rows.fetchval("SELECT idle_deadline_at - clock() FROM runs")
        return left

    if silent:
        assert (await world.settled(result.wakeup_id)).reason == reason_pb2.REASON_IDLE_TIMEOUT
        return
    await eventually(deadline, "it was heard of", until=lambda left: left > timedelta(minutes=10))
    for _ in range(8):
        await looking.tick("sweep")
    (tmp_path / "go").touch()
    wakeup = await world.settled(result.wakeup_id)
    assert wakeup.state == wakeup_pb2.WAKEUP_STATE_COMPLETED
    assert ran(tmp_path) == [run.run_id]


async def test_after_a_pause_of_the_database_everybody_lives(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No lease was renewed in time, also not the looker's: its looks before do not count."""
    renew, away, tried = HeldRun.renew, asyncio.Event(), asyncio.Event()

    async def renew_unless_away(self: HeldRun, leases: Sequence[Lease]) -> set[UUID]:
        if not away.is_set():
            return await renew(self, leases)
        tried.set()
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(HeldRun, "renew", renew_unless_away)
    holder = await stage.start(recovery_interval=3600)
    looker = await stage.start(
        engine_concurrency=0, recovery_interval=3600, spool_dir=tmp_path / "elsewhere"
    )
    world = World(holder.client, tmp_path)
    await world.put()
    code = marker(tmp_path) + WAITING.format(go=str(tmp_path / "go")) + ANSWER
    agent = await world.script(code, run_timeout={"seconds": 0}, idle_timeout={"seconds": 0})
    result = await world.wake(agent, "manual:1")
    run = await at_work(world, result.wakeup_id, tmp_path)
    away.set()
    await asyncio.wait_for(tried.wait(), 10)
    for service in (holder, looker):
        service.move_clock(3600)
    for _ in range(8):
        await looker.tick("recovery")
        tried.clear()
        await asyncio.wait_for(tried.wait(), 10)
    (paused,) = await world.attempts(result.wakeup_id)
    assert (paused.state, paused.executor_id) == (run_pb2.RUN_STATE_RUNNING, run.executor_id)

    away.clear()
    (tmp_path / "go").touch()
    wakeup = await world.settled(result.wakeup_id)
    assert wakeup.state == wakeup_pb2.WAKEUP_STATE_COMPLETED
    assert ran(tmp_path) == [run.run_id]
    assert [each.attempt for each in await world.attempts(result.wakeup_id)] == [1]


async def test_a_kill_and_a_freeze_under_load_break_no_rule(
    replicas: Replicas, stage: Stage, tmp_path: Path, rows: asyncpg.Connection[asyncpg.Record]
) -> None:
    """The soak's twin: one of each, while agents of every kind are at work."""
    desk = await stage.start(
        engine_concurrency=0, recovery_interval=3600, spool_dir=tmp_path / "elsewhere"
    )
    # Who is frozen amid a claim holds the queue until the database ends its transaction.
    admin = await stage.database.admin()
    await admin.execute(
        f'ALTER ROLE reveille_heartbeat_app IN DATABASE "{stage.database.name}"'
        " SET idle_in_transaction_session_timeout = '3s'"
    )
    world = World(desk.client, tmp_path)
    await world.put()
    ledger = Ledger(tmp_path / "ledger")
    agents = [
        await ledger.agent(world, "slow", "work", 1.0),
        await ledger.agent(world, "leaver", "leaver", 0.2),
        await ledger.agent(world, "failing", "failing"),
        await ledger.agent(world, "stubborn", "stubborn", run_timeout={"seconds": 1}),
    ]
    first, second = await replicas.start(), await replicas.start()
    await world.enqueue(*(world.wish(each, f"manual:{each.name}") for each in agents))
    await world.enqueue(*(world.wish(each, f"api:{each.name}") for each in agents))

    async def starts() -> int:
        return len(ledger.starts())

    await eventually(starts, "agents are at work", until=lambda count: count >= 3)
    first.send(signal.SIGKILL)
    second.send(signal.SIGSTOP)
    await first.ended()
    third = await replicas.start()
    await third.listening()
    await eventually(starts, "others are at work", until=lambda count: count >= 5)
    second.send(signal.SIGCONT)

    runs = await ledger.judge(rows, sweep=timedelta(seconds=4), patience=30)
    assert {run["state"] for run in runs} >= {"succeeded", "failed", "timed_out"}
