"""Recovery's steps, each by itself: they fail alone, repeat without harm, and hide nothing."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID, uuid4

import asyncpg
import pytest
import pytest_asyncio
from tests.integration.heartbeat.conftest import Service, Stage
from tests.integration.heartbeat.kit import World
from tests.integration.heartbeat.test_processes import linger, process_in
from tests.unit.heartbeat.test_removal import dug

from reveille.common.v1 import reason_pb2
from reveille.heartbeat.v1 import run_pb2
from reveille_heartbeat.adapters.process.identity import is_alive, this_executor
from reveille_heartbeat.adapters.spool import Spool
from reveille_heartbeat.domain.values import LogStream, ProcessIdentity
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.usecases import pages
from reveille_heartbeat.usecases.issues.stale_locks import ClearStaleLocks
from reveille_heartbeat.usecases.runs.agent_signs import AgentSigns
from reveille_heartbeat.usecases.runs.enforce_deadlines import EnforceDeadlines
from reveille_heartbeat.usecases.runs.log_store import LogChunk
from reveille_heartbeat.usecases.runs.run_spans import RunSpans
from reveille_heartbeat.usecases.runs.table_log import TableLog
from reveille_heartbeat.usecases.runs.take_over import HandOver, TakeOver
from reveille_heartbeat.workers import recovery
from reveille_runtime.hints import Notifier
from reveille_runtime.ids import new_token
from reveille_runtime.lease import ExpiryWitness, Lease, LeaseLost
from reveille_runtime.telemetry import Telemetry
from reveille_testkit.waiting import eventually

Rows: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
HELD_ELSEWHERE = (
    "UPDATE runs SET state = 'running', occupied = true, started_at = clock(),"
    " lease_token = gen_random_uuid(), lease_expires_at = clock() - interval '1 s',"
    " executor_id = 'elsewhere/1/1/x', place = 'another/2/place' WHERE state = 'queued'"
)
CLAIMED = (
    "UPDATE wakeup_requests SET state = 'claimed', claimed_at = clock() WHERE state = 'queued'"
)


@pytest_asyncio.fixture
async def quiet(stage: Stage) -> Service:
    """A replica that recovers when it is told to, and claims nothing."""
    return await stage.start(engine_concurrency=0, recovery_interval=3600, sweep_interval=3600)


@pytest_asyncio.fixture
async def world(quiet: Service, tmp_path: Path) -> World:
    world = World(quiet.client, tmp_path)
    await world.put()
    return world


async def lost_runs(world: World, rows: Rows, count: int) -> list[str]:
    """Make runs whose executors, somewhere else, renew no more."""
    agent = await world.agent(max_concurrent_runs=50)
    results = await world.enqueue(*(world.wish(agent, f"manual:{n}") for n in range(count)))
    await rows.execute(HELD_ELSEWHERE)
    await rows.execute(CLAIMED)
    return [(await world.attempts(each.wakeup_id))[0].run_id for each in results]


async def recovered(service: Service, world: World, run_id: str) -> run_pb2.HeartbeatRun:
    """Look for expired leases, twice and one renewal apart, until a run is over."""

    async def look() -> run_pb2.HeartbeatRun:
        await service.tick("recovery")
        return await world.run(run_id)

    return await eventually(look, f"run {run_id} is over", until=lambda run: not run.occupied)


def an_orphan(folder: Path, run_id: str, name: str = "orphan") -> subprocess.Popen[bytes]:
    """Start a process that carries a run's mark, as one whose end nobody has seen."""
    return subprocess.Popen(
        [sys.executable, "-S", "-c", linger(folder / name)],
        env={"REVEILLE_RUN_ID": run_id},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


async def test_only_an_end_from_outside_stops_an_agent(world: World, rows: Rows) -> None:
    ends = ["cancelled", "timed_out", "succeeded", "failed", "interrupted"]
    runs = await lost_runs(world, rows, len(ends) + 1)
    for run_id, state in zip(runs, ends, strict=False):
        await rows.execute(
            "UPDATE runs SET state = $2, finished_at = clock() WHERE run_id = $1",
            UUID(run_id),
            state,
        )
    stopped = await rows.fetch(Q["stopped_runs"].sql, "elsewhere/1/1/x")
    assert {str(row["run_id"]) for row in stopped} == set(runs[:2])


@pytest.mark.parametrize(
    ("owner", "step"),
    [
        (TakeOver, "held_here"),
        (TakeOver, "expired"),
        (ClearStaleLocks, "__call__"),
        (recovery.Recovery, "_end_orphans"),
        (recovery.Recovery, "_sweep_spools"),
    ],
)
async def test_a_step_that_fails_stops_none_of_the_others(
    quiet: Service,
    world: World,
    rows: Rows,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    step: str,
) -> None:
    here, elsewhere = await lost_runs(world, rows, 2)
    await rows.execute("UPDATE runs SET place = $1 WHERE run_id = $2", str(quiet.place), UUID(here))
    # Of an earlier run: an issue that names it, a process, a folder.
    agent = await world.agent("other")
    wakeup = await world.wake(agent, "manual:over")
    await world.cancel("manual:over")
    (over,) = await world.attempts(wakeup.wakeup_id)
    issue = (await world.issue(agent, "manual:issue")).issue
    await rows.execute("UPDATE issues SET execution_run_id = $1", UUID(over.run_id))
    folder = tmp_path / "spool" / over.run_id
    folder.mkdir()
    orphan = an_orphan(tmp_path, over.run_id)
    process = await process_in(tmp_path / "orphan")

    async def fail(*_: Any) -> None:
        raise RuntimeError("injected")

    monkeypatch.setattr(owner, step, fail)
    await quiet.tick("recovery.cleaning")
    locked = await rows.fetchval(
        "SELECT execution_run_id FROM issues WHERE issue_id = $1", UUID(issue.issue_id)
    )
    left = {
        "__call__": locked is not None,
        "_end_orphans": is_alive(process),
        "_sweep_spools": folder.exists(),
    }
    assert {name for name, undone in left.items() if undone} == {step} & left.keys()
    if step != "held_here":
        assert (await recovered(quiet, world, here)).reason == reason_pb2.REASON_PROCESS_LOST
    if step != "expired":
        assert (await recovered(quiet, world, elsewhere)).reason == reason_pb2.REASON_PROCESS_LOST
    orphan.kill()
    orphan.wait()


async def test_many_runs_that_cannot_be_recovered_hide_none_behind_them(
    quiet: Service, world: World, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "PAGE", 2)
    *bad, good = sorted(await lost_runs(world, rows, 7))
    take = TakeOver.take

    async def refuse(self: TakeOver, lease: Lease, **more: Any) -> Any:
        if str(lease.id) in bad:
            raise RuntimeError("injected")
        return await take(self, lease, **more)

    monkeypatch.setattr(TakeOver, "take", refuse)
    assert (await recovered(quiet, world, good)).reason == reason_pb2.REASON_PROCESS_LOST
    assert all([(await world.run(run_id)).occupied for run_id in bad])


async def test_recovery_repeated_changes_nothing(
    quiet: Service, stage: Stage, world: World, rows: Rows, tmp_path: Path
) -> None:
    """A run at work, and one in the queue: each start, and each round, leaves them alone."""
    working = await stage.start(recovery_interval=3600)
    agent = await world.script(linger(tmp_path / "pid"))
    await world.wake(agent, "manual:1")
    process = await process_in(tmp_path / "pid")
    waiting = await world.wake(agent, "manual:2")
    columns = "run_id, state, executor_id, lease_token, attempt, event_seq"
    before = await rows.fetch(f"SELECT {columns} FROM runs ORDER BY run_id")

    for service in (quiet, working, await stage.start(engine_concurrency=0)):
        for _ in range(2):
            await service.tick("recovery")
            await service.tick("recovery.cleaning")
    assert await rows.fetch(f"SELECT {columns} FROM runs ORDER BY run_id") == before
    assert is_alive(process)
    (queued,) = await world.attempts(waiting.wakeup_id)
    assert queued.state == run_pb2.RUN_STATE_QUEUED
    for key in ("manual:1", "manual:2"):
        await world.cancel(key)
    await eventually(
        lambda: world.attempts(waiting.wakeup_id),
        "all ended",
        until=lambda all_: not all_[0].occupied,
    )


async def test_a_lock_counts_only_while_its_run_holds_something(
    world: World, rows: Rows, stage: Stage
) -> None:
    agent = await world.agent("other")
    wakeup = await world.wake(agent, "manual:over")
    await world.cancel("manual:over")
    (over,) = await world.attempts(wakeup.wakeup_id)
    issue_id = UUID((await world.issue(agent, "manual:1")).issue.issue_id)
    await rows.execute("UPDATE issues SET execution_run_id = $1", UUID(over.run_id))

    # Judged when it is read, before any sweep.
    assert (await world.get_issue(str(issue_id))).execution_run_id == ""
    database = await stage.database.open("heartbeat")
    clear = ClearStaleLocks(database)
    assert await clear() == 1
    assert await clear() == 0


@pytest.mark.parametrize("lock", ["execution_run_id", "checkout_run_id"])
async def test_a_lock_is_cleared_only_as_it_was_seen(
    world: World, rows: Rows, stage: Stage, monkeypatch: pytest.MonkeyPatch, lock: str
) -> None:
    """Between the look and the write another run has taken the issue."""
    agent = await world.agent("other")
    issue_id = UUID((await world.issue(agent, "manual:1")).issue.issue_id)
    await rows.execute("UPDATE issues SET execution_run_id = $1", uuid4())
    database = await stage.database.open("heartbeat")
    clear, newer, look = ClearStaleLocks(database), uuid4(), pages.pages

    async def look_and_lose(*arguments: Any) -> Any:
        async for page in look(*arguments):
            await rows.execute(f"UPDATE issues SET {lock} = $1", newer)
            yield page

    monkeypatch.setattr("reveille_heartbeat.usecases.issues.stale_locks.pages", look_and_lose)
    assert await clear() == 0
    assert await rows.fetchval(f"SELECT {lock} FROM issues") == newer
    monkeypatch.undo()
    # Live: it holds the issue, or waits for its next attempt.
    run_id = await rows.fetchval("SELECT run_id FROM runs WHERE issue_id = $1", issue_id)
    await rows.execute("UPDATE issues SET execution_run_id = NULL, checkout_run_id = $1", run_id)
    assert await clear() == 0
    await rows.execute("UPDATE runs SET state = 'scheduled_retry', scheduled_retry_at = clock()")
    assert await clear() == 0


async def test_a_run_is_taken_over_once_and_only_as_it_was_seen(
    world: World, rows: Rows, stage: Stage
) -> None:
    """A renewal after the look keeps it; of several one gets it, and the fence moves."""
    await lost_runs(world, rows, 1)
    database = await stage.database.open("heartbeat")
    take = TakeOver(database, this_executor("elsewhere"), timedelta(seconds=30), new_token)
    (seen,) = await take.expired()

    await rows.execute("UPDATE runs SET lease_expires_at = clock() + interval '30 s'")
    assert await take.take(seen, only_expired=True, why="expired") is None
    took = await asyncio.gather(
        *(take.take(seen, only_expired=False, why="gone") for _ in range(3))
    )
    (run,) = (each for each in took if each is not None)
    assert run.lease_token != seen.token
    # Who has lost it neither renews it nor gives it away, nor says another word.
    signs = AgentSigns(database)
    await signs.heard(seen, 0)
    with pytest.raises(LeaseLost):
        await signs.process(seen, ProcessIdentity(1, 1))
    await signs.close()
    output = LogChunk(seen, LogStream.STDOUT, 0, b"late")
    assert await TableLog(database).append([output]) == [False]
    assert await rows.fetchval("SELECT count(*) FROM run_log_chunks") == 0
    assert await rows.fetchval("SELECT last_output_at FROM runs") is None
    async with database.session() as tx:
        assert await tx.fetch(Q["renew_leases"], [seen.id], [seen.token], timedelta(1)) == []
    await HandOver(database, Notifier(database, enabled=False))(seen)
    now = await rows.fetchrow("SELECT lease_token, executor_id, lease_expires_at FROM runs")
    assert now is not None
    assert tuple(now) == (run.lease_token, run.executor_id, run.lease_expires_at)


@pytest.mark.parametrize(
    "meanwhile",
    [
        "UPDATE runs SET idle_deadline_at = clock() + interval '1 min'",
        "UPDATE runs SET lease_expires_at = clock() - interval '1 s'",
    ],
    ids=["it was heard of", "nobody can tell any more"],
)
async def test_a_silence_is_judged_once_more_under_the_lock(
    world: World, rows: Rows, stage: Stage, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    await lost_runs(world, rows, 1)
    await rows.execute(
        "UPDATE runs SET lease_expires_at = clock() + interval '1 min',"
        " idle_deadline_at = clock() - interval '1 s'"
    )
    database = await stage.database.open("heartbeat")
    notifier, spans = Notifier(database, enabled=False), RunSpans(Telemetry.off())
    enforce, look = EnforceDeadlines(database, notifier, spans, ExpiryWitness(0)), pages.pages
    before = await rows.fetchrow("SELECT lease_expires_at, idle_deadline_at FROM runs")
    assert before is not None

    async def look_and_hear(*arguments: Any) -> Any:
        async for page in look(*arguments):
            await rows.execute(meanwhile)
            yield page

    monkeypatch.setattr("reveille_heartbeat.usecases.runs.enforce_deadlines.pages", look_and_hear)
    assert await enforce(renewals_ok=True) == 0
    monkeypatch.undo()
    await rows.execute("UPDATE runs SET lease_expires_at = $1, idle_deadline_at = $2", *before)
    assert await enforce(renewals_ok=True) == 1


async def test_what_is_left_of_a_run_that_is_over_is_ended(
    quiet: Service, world: World, tmp_path: Path
) -> None:
    """Its outcome was written where its processes could not be seen; others' are let be."""
    agent = await world.agent()
    wakeup = await world.wake(agent, "manual:1")
    (run,) = await world.attempts(wakeup.wakeup_id)
    orphan = an_orphan(tmp_path, run.run_id)
    stranger = an_orphan(tmp_path, str(uuid4()), "stranger")
    process, other = await process_in(tmp_path / "orphan"), await process_in(tmp_path / "stranger")
    await quiet.tick("recovery.cleaning")
    assert is_alive(process)

    await world.cancel("manual:1")
    await quiet.tick("recovery.cleaning")
    assert not is_alive(process)
    # A run that this database does not know is another stack's.
    assert is_alive(other)
    for each in (orphan, stranger):
        each.kill()
        each.wait()


async def test_no_folder_that_an_agent_has_left_keeps_those_of_others(
    quiet: Service,
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """All are deeper than a recursion goes; one fails, another is refused by the system."""
    agent, spools = await world.agent("other"), tmp_path / "spool"
    folders = []
    for key in ("manual:1", "manual:2", "manual:3", "manual:4"):
        wakeup = await world.wake(agent, key)
        await world.cancel(key)
        (run,) = await world.attempts(wakeup.wakeup_id)
        folders.append(spools / run.run_id)
    remove, swept = Spool.remove, list[Path]()

    def injected(self: Spool) -> OSError | None:
        swept.append(self.root)
        if len(swept) == 1:
            raise RuntimeError("injected")
        if len(swept) == 2:
            return PermissionError(errno.EPERM, "Operation not permitted")
        return remove(self)

    with contextlib.ExitStack() as dug_up:
        for folder in folders:
            (folder / "work").mkdir(parents=True)
            dug_up.enter_context(dug(folder / "work", 1_500))
        monkeypatch.setattr(Spool, "remove", injected)
        await quiet.tick("recovery.cleaning")
        assert sorted(swept) == sorted(folders)
        assert [folder.exists() for folder in swept] == [True, True, False, False]
        said = [line for line in capfd.readouterr().out.splitlines() if "run.folder_left" in line]
        assert len(said) == 1
        assert swept[1].name in said[0]
        assert "Operation not permitted" in said[0]

        monkeypatch.undo()
        await quiet.tick("recovery.cleaning")
        assert [path.name for path in spools.iterdir()] == ["spool-id"]
        assert "run.folder_left" not in capfd.readouterr().out
