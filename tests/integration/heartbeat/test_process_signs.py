"""What is written of a process while it works, and what a start that fails gives back."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from tests.integration.heartbeat.kit import ANSWER, World, marker, ran

from reveille.common.v1 import reason_pb2
from reveille.heartbeat.v1 import run_pb2, wakeup_pb2
from reveille_heartbeat.adapters.process.tree import marked_runs
from reveille_heartbeat.adapters.spool import Spool
from reveille_heartbeat.usecases.runs.agent_signs import AgentSigns
from reveille_runtime.lease import Lease
from reveille_testkit.waiting import eventually


async def test_an_agent_that_speaks_lives_and_that_is_written_down_now_and_then(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    rows: asyncpg.Connection[asyncpg.Record],
) -> None:
    """Never more often than every third of its limit of silence, and once more at the end."""
    heard, told = AgentSigns.heard, []

    async def count(self: AgentSigns, lease: Lease, seconds_ago: float) -> None:
        told.append(seconds_ago)
        await heard(self, lease, seconds_ago)

    monkeypatch.setattr(AgentSigns, "heard", count)
    agent = await world.script(
        "import threading\n"
        "for _ in range(60):\n    print('at it', flush=True)\n    threading.Event().wait(0.04)\n",
        idle_timeout={"seconds": 1},
    )
    result = await world.wake(agent)
    wakeup = await world.settled(result.wakeup_id)

    assert wakeup.state == wakeup_pb2.WAKEUP_STATE_COMPLETED
    run = await rows.fetchrow("SELECT started_at, finished_at, last_output_at FROM runs")
    assert run is not None
    took = (run["finished_at"] - run["started_at"]).total_seconds()
    assert took > 2
    assert 2 <= len(told) <= took * 3 + 2
    # The last word was not lost, although nobody was due to bring it.
    assert (run["finished_at"] - run["last_output_at"]).total_seconds() < 1


@pytest.mark.parametrize("breaks", ["payload", "spawn"])
async def test_a_start_that_fails_gives_back_exactly_what_it_had(
    breaks: str, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = await world.script(marker(tmp_path) + ANSWER, max_concurrent_runs=1)
    with monkeypatch.context() as broken:
        if breaks == "payload":
            broken.setattr(Spool, "prepare", _raise(OSError(13, "Permission denied")))
        else:
            broken.setattr(subprocess, "Popen", _raise(OSError(38, "Function not implemented")))
        made = await world.issue(agent, "manual:1")
        wakeup = await world.settled(made.wakeup.wakeup_id)
    assert wakeup.state == wakeup_pb2.WAKEUP_STATE_FAILED
    (run,) = await world.attempts(wakeup.wakeup_id)
    assert (run.state, run.reason) == (
        run_pb2.RUN_STATE_FAILED,
        reason_pb2.REASON_SETUP_FAILED,
    )
    assert "Permission denied" in run.message or "not implemented" in run.message
    # No process, no folder, no slot, no issue is held any more.
    assert UUID(run.run_id) not in marked_runs()
    assert [each.name for each in (tmp_path / "spool").iterdir()] == ["spool-id"]
    assert (await world.get_issue(made.issue.issue_id)).execution_run_id == ""
    assert ran(tmp_path) == []
    again = await world.wake(agent, "manual:2", issue_id=made.issue.issue_id)
    assert (await world.settled(again.wakeup_id)).state == wakeup_pb2.WAKEUP_STATE_COMPLETED


@pytest.mark.parametrize("full", ["payload", "processes", "identity"])
async def test_a_machine_without_room_fails_nothing_for_good(
    full: str,
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rows: asyncpg.Connection[asyncpg.Record],
) -> None:
    """A full disk would otherwise take the whole queue in a moment."""
    prepare = Spool.prepare

    def in_the_way(name: str) -> Any:
        def make(self: Spool, payload: bytes, body: bytes) -> None:
            prepare(self, payload, body)
            (self.root / name).mkdir()

        return make

    agent = await world.script(marker(tmp_path) + ANSWER, max_concurrent_runs=1)
    with monkeypatch.context() as broken:
        match full:
            case "payload":
                broken.setattr(Spool, "prepare", _raise(OSError(28, "No space left on device")))
            case "processes":
                broken.setattr(subprocess, "Popen", _raise(OSError(11, "Try again")))
            case "identity":
                # A shell cannot write to a folder, either.
                broken.setattr(Spool, "prepare", in_the_way("identity"))
        result = await world.wake(agent)

        async def attempts() -> list[run_pb2.HeartbeatRun]:
            return await world.attempts(result.wakeup_id)

        first, again = await eventually(
            attempts, "it is to be repeated", until=lambda found: len(found) == 2
        )
    assert (first.state, first.reason) == (
        run_pb2.RUN_STATE_FAILED,
        reason_pb2.REASON_SETUP_FAILED,
    )
    words = ("No space left on device", "Try again", "could not write to the spool")
    assert any(each in first.message for each in words)
    assert (again.state, again.retry_reason) == (
        run_pb2.RUN_STATE_SCHEDULED_RETRY,
        reason_pb2.REASON_TRANSIENT_FAILURE,
    )
    assert ran(tmp_path) == []
    await rows.execute("UPDATE runs SET scheduled_retry_at = clock() WHERE finished_at IS NULL")
    assert (await world.settled(result.wakeup_id)).state == wakeup_pb2.WAKEUP_STATE_COMPLETED
    assert ran(tmp_path) == [again.run_id]


async def test_a_status_that_could_not_be_written_is_told_as_such(world: World) -> None:
    agent = await world.script(
        "import os, shutil\nshutil.rmtree(os.path.dirname(os.environ['REVEILLE_RESULT_FILE']))\n"
    )
    result = await world.wake(agent)
    wakeup = await world.settled(result.wakeup_id)

    run = await world.run(wakeup.run_id)
    assert (run.attempt, run.reason) == (1, reason_pb2.REASON_ADAPTER_FAILED)
    assert "could not write to the spool how the agent ended" in run.message


def _raise(error: Exception) -> Any:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    return fail


async def test_a_setting_wins_over_what_is_inherited_and_ours_over_both(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LANG", "xx_XX")
    monkeypatch.setenv("TZ", "Inherited/Zone")
    monkeypatch.setenv("SECRET_OF_THE_SERVICE", "hush")
    path = tmp_path / "seen"
    agent = await world.script(
        "import json, os, pathlib\n"
        f"pathlib.Path({str(path)!r}).write_text(json.dumps(dict(os.environ)))",
        config={"env": {"LANG": "yy_YY", "TRACEPARENT": "made-up", "EXTRA": "more"}},
    )
    result = await world.wake(agent)
    wakeup = await world.settled(result.wakeup_id)
    seen = json.loads(path.read_text())

    assert (seen["LANG"], seen["TZ"], seen["EXTRA"]) == ("yy_YY", "Inherited/Zone", "more")
    assert "SECRET_OF_THE_SERVICE" not in seen
    assert seen["REVEILLE_RUN_ID"] == wakeup.run_id
    assert seen["TRACEPARENT"] != "made-up"
    assert seen["REVEILLE_RUN_TOKEN"].count(".") == 2
