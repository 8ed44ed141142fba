"""An agent that meddles with its files, or an adapter in trouble, harms its own attempt only."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import asyncpg
import pytest
from tests.integration.heartbeat.conftest import Stage
from tests.integration.heartbeat.kit import ANSWER, World
from tests.integration.heartbeat.test_processes import linger, outcome, process_in

from reveille.common.v1 import reason_pb2
from reveille.heartbeat.v1 import run_pb2, wakeup_pb2
from reveille_heartbeat.adapters.contract import AdapterResult, AgentContext, Reporter
from reveille_heartbeat.adapters.echo import EchoAdapter
from reveille_heartbeat.adapters.process.tree import Family, ProcessTrees
from reveille_heartbeat.domain.values import ProcessIdentity
from reveille_heartbeat.usecases.runs.agent_signs import AgentSigns
from reveille_runtime.lease import Lease
from reveille_testkit.waiting import eventually

FILES = """
import os, pathlib
result = pathlib.Path(os.environ["REVEILLE_RESULT_FILE"])
spool = result.parent
"""


@pytest.mark.parametrize(
    "deed",
    [
        "os.mkfifo(result)",
        "result.mkdir()",
        "result.symlink_to(spool / 'payload.json')",
        "import socket; os.chdir(spool); socket.socket(socket.AF_UNIX).bind(result.name)",
    ],
    ids=["fifo", "folder", "link", "socket"],
)
async def test_a_result_that_is_no_file_fails_the_run_and_says_so(world: World, deed: str) -> None:
    run = await outcome(world, FILES + deed)

    assert run.state == run_pb2.RUN_STATE_FAILED
    assert run.reason == reason_pb2.REASON_ADAPTER_FAILED
    assert run.message == "the result file is not a regular file"
    assert run.attempt == 1


async def test_a_number_that_cannot_be_written_again_fails_the_run_and_says_so(
    world: World,
) -> None:
    run = await outcome(world, FILES + "result.write_text('{\"result\": 1e999}')")

    assert run.state == run_pb2.RUN_STATE_FAILED
    assert run.reason == reason_pb2.REASON_ADAPTER_FAILED
    assert run.message == "the result file is not JSON: the number 1e999 is out of range"
    assert (run.attempt, run.occupied) == (1, False)


async def test_a_status_that_no_process_has_is_none(world: World) -> None:
    forge = "(spool / 'exit').write_text('9999999999\\n')\n"
    run = await outcome(
        world, FILES + forge + "import signal\nos.killpg(os.getpgrp(), signal.SIGKILL)\n"
    )

    assert run.state == run_pb2.RUN_STATE_FAILED
    assert run.reason == reason_pb2.REASON_ADAPTER_FAILED
    assert (run.attempt, run.occupied, run.HasField("exit_code")) == (1, False, False)


async def members(run_id: str) -> list[ProcessIdentity]:
    trees = ProcessTrees()
    try:
        return await trees.members(Family(UUID(run_id), None))
    finally:
        await trees.close()


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_output_that_was_replaced_by_a_pipe_ends_the_agent(
    world: World, stream: str, tmp_path: Path
) -> None:
    swap = f"(spool / {stream!r}).unlink()\nos.mkfifo(spool / {stream!r})\n"
    agent = await world.script(FILES + swap + linger(tmp_path / "pid"))
    result = await world.wake(agent)
    wakeup = await world.settled(result.wakeup_id)

    run = await world.run(wakeup.run_id)
    assert run.reason == reason_pb2.REASON_ADAPTER_FAILED
    assert run.message == f"the file of {stream} is not a regular file"
    assert await members(run.run_id) == []


@pytest.mark.parametrize("deed", ["os.mkfifo(spool / 'exit')", "(spool / 'exit').mkdir()"])
async def test_what_lies_in_the_place_of_the_status_does_not_hide_it(
    world: World, deed: str
) -> None:
    run = await outcome(world, FILES + deed + ANSWER)

    assert run.state == run_pb2.RUN_STATE_SUCCEEDED


async def test_an_adapter_without_its_connection_is_not_a_database_that_is_away(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(self: EchoAdapter, context: AgentContext, reporter: Reporter) -> AdapterResult:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(EchoAdapter, "execute", refuse)
    result = await world.wake(await world.agent())
    wakeup = await world.settled(result.wakeup_id)

    run = await world.run(wakeup.run_id)
    assert (run.reason, run.attempt) == (reason_pb2.REASON_ADAPTER_FAILED, 1)
    assert "Connection refused" in run.message


async def test_a_database_that_is_away_is_not_a_command_that_cannot_be_started(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    true_record = AgentSigns.process
    refused = False

    async def refuse_once(self: AgentSigns, lease: Lease, process: ProcessIdentity) -> None:
        nonlocal refused
        if refused:
            return await true_record(self, lease, process)
        refused = True
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(AgentSigns, "process", refuse_once)
    result = await world.wake(await world.script(ANSWER))
    wakeup = await world.settled(result.wakeup_id)

    assert wakeup.state == wakeup_pb2.WAKEUP_STATE_COMPLETED
    first, second = await world.attempts(result.wakeup_id)
    assert first.reason == reason_pb2.REASON_PROCESS_LOST
    assert second.state == run_pb2.RUN_STATE_SUCCEEDED


async def test_silence_counts_although_the_run_changes_hands_again_and_again(
    stage: Stage, rows: asyncpg.Connection[asyncpg.Record], tmp_path: Path
) -> None:
    service = await stage.start(sweep_interval=3600)
    world = World(service.client, tmp_path)
    await world.put()
    agent = await world.script(linger(tmp_path / "pid"))
    result = await world.wake(agent)
    await process_in(tmp_path / "pid")
    (run,) = await world.attempts(result.wakeup_id)
    for file in (tmp_path / "spool" / run.run_id).iterdir():
        os.utime(file, (time.time() - 901, time.time() - 901))

    async def deadline() -> timedelta:
        left: timedelta = await rows.fetchval("SELECT idle_deadline_at - clock() FROM runs")
        return left

    for _ in range(3):
        # Whoever takes it up tells by the files how long it has been silent.
        await rows.execute(
            "UPDATE runs SET lease_token = gen_random_uuid(), idle_deadline_at = clock() + '1 h'"
        )
        await eventually(deadline, "it is taken up", until=lambda left: left < timedelta())

    async def swept() -> run_pb2.HeartbeatRun:
        await service.tick("sweep")
        return await world.run(run.run_id)

    run = await eventually(
        swept, "the run is ended", until=lambda run: run.state != run_pb2.RUN_STATE_RUNNING
    )
    assert run.reason == reason_pb2.REASON_IDLE_TIMEOUT
    await world.settled(result.wakeup_id)
