"""Killed at each durable boundary and started again: one outcome, and no agent twice in silence."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from tests.integration.heartbeat.conftest import Stage
from tests.integration.heartbeat.kit import ANSWER, World, marker, ran
from tests.integration.heartbeat.replica import Replicas
from tests.integration.heartbeat.test_processes import linger, process_in

from reveille.common.v1 import reason_pb2
from reveille.heartbeat.v1 import agent_pb2, issue_pb2, run_pb2, wakeup_pb2
from reveille_heartbeat import crash_points as at
from reveille_heartbeat.adapters.process.identity import is_alive
from reveille_runtime.errors import Unavailable
from reveille_runtime.rpc_errors import as_domain_errors
from reveille_testkit.waiting import eventually

# Where the caller's own call dies with the process.
DURING_A_CALL = (
    at.ENQUEUE_BEFORE_COMMIT,
    at.ENQUEUE_AFTER_COMMIT,
    at.CREATE_ISSUE_BEFORE_COMMIT,
    at.CREATE_ISSUE_AFTER_COMMIT,
)
# Whether the agent had run when the process died, and so may be known by its attempts.
BEFORE_THE_AGENT = (
    at.CLAIM_BEFORE_COMMIT,
    at.CLAIM_AFTER_COMMIT,
    at.CHECKOUT_AFTER_COMMIT,
    at.PAYLOAD_WRITTEN,
    at.SPAWN_BEFORE_IDENTITY,
    at.SPAWN_AFTER_IDENTITY,
)
# Of those, where an attempt was begun, and its agent never was.
WITH_AN_ATTEMPT = frozenset(BEFORE_THE_AGENT) - {at.CLAIM_BEFORE_COMMIT}
AFTER_THE_AGENT = (
    at.SPAWN_AFTER_GO,
    at.EXECUTE_ENDED,
    at.SETTLE_BEFORE_COMMIT,
    at.SETTLE_AFTER_COMMIT,
    at.FOLLOW_UP_BEFORE_COMMIT,
    at.FOLLOW_UP_AFTER_COMMIT,
)


def test_every_point_is_walked() -> None:
    # Each in a test of its own.
    alone = (
        at.AGENT_STOPPED_AFTER_COMMIT,
        at.CANCEL_AFTER_COMMIT,
        at.DEADLINE_AFTER_COMMIT,
        at.ISSUE_STOPPED_AFTER_COMMIT,
        at.RETENTION_AFTER_STRETCH,
        at.RETRY_AFTER_COMMIT,
        at.TAKE_OVER_AFTER_COMMIT,
        at.TIMERS_AFTER_ENQUEUE,
    )
    walked = (*DURING_A_CALL, *BEFORE_THE_AGENT, *AFTER_THE_AGENT, *alone)

    assert sorted(walked) == sorted(at.CRASH_POINTS)


# With this an agent leaves something behind that runs on.
LEAVES = "import subprocess\nsubprocess.Popen(['sleep', '60'], start_new_session=True)\n"


async def prepared(stage: Stage, folder: Path, leaves: str = "") -> tuple[World, agent_pb2.Agent]:
    """Make a workspace and an agent through a replica that answers, and claims nothing."""
    quiet = await stage.start(engine_concurrency=0, recovery_interval=3600, sweep_interval=3600)
    world = World(quiet.client, folder)
    await world.put()
    return world, await world.script(marker(folder) + leaves + ANSWER)


@pytest.mark.parametrize("point", [*BEFORE_THE_AGENT, *AFTER_THE_AGENT])
async def test_a_run_survives_the_death_of_its_executor(
    point: str, replicas: Replicas, stage: Stage, tmp_path: Path
) -> None:
    between = point == at.SETTLE_AFTER_COMMIT
    world, agent = await prepared(stage, tmp_path, LEAVES if between else "")
    made = await world.issue(agent, "manual:1")
    doomed = await replicas.start(crash_point=point)
    assert await doomed.ended() == 137, doomed.log.read_text()
    if between:
        # An agent that left something behind has its outcome before what follows it.
        (attempt,) = await world.attempts(made.wakeup.wakeup_id)
        assert (attempt.state, attempt.occupied) == (run_pb2.RUN_STATE_SUCCEEDED, True)

    await replicas.start()
    wakeup = await world.settled(made.wakeup.wakeup_id)

    assert wakeup.state == wakeup_pb2.WAKEUP_STATE_COMPLETED
    issue = await world.get_issue(made.issue.issue_id)
    assert issue.status == issue_pb2.ISSUE_STATUS_DONE
    attempts = await world.attempts(wakeup.wakeup_id)
    assert attempts[-1].state == run_pb2.RUN_STATE_SUCCEEDED
    assert not any(each.occupied for each in attempts)
    # An agent that ran more than once has a recorded repeat for each time.
    assert len(ran(tmp_path)) == len(set(ran(tmp_path)))
    if point in AFTER_THE_AGENT:
        assert ran(tmp_path) == [attempts[0].run_id]
    if point in WITH_AN_ATTEMPT:
        # The word to start comes after the process is on record, and dies with the executor.
        assert attempts[0].run_id not in ran(tmp_path)
        assert attempts[0].reason == reason_pb2.REASON_PROCESS_LOST
    if point in WITH_AN_ATTEMPT and point != at.SPAWN_AFTER_IDENTITY:
        assert attempts[0].message == "its executor ended before the agent was started"
    for before, after in itertools.pairwise(attempts):
        assert after.retry_of_run_id == before.run_id
    await eventually(
        lambda: _spools(tmp_path), "the folders are gone", until=lambda names: names == ["spool-id"]
    )


async def _spools(folder: Path) -> list[str]:
    return sorted(each.name for each in (folder / "spool").iterdir())


@pytest.mark.parametrize("point", DURING_A_CALL)
async def test_a_repeated_call_finds_what_the_killed_one_made(
    point: str, replicas: Replicas, stage: Stage, tmp_path: Path
) -> None:
    world, agent = await prepared(stage, tmp_path)
    doomed = await replicas.start(crash_point=point, engine_concurrency=0)
    there = World(await replicas.client(doomed), tmp_path, world.workspace_id)
    by_issue = "create_issue" in point

    async def call(through: World) -> wakeup_pb2.WakeupResult:
        if by_issue:
            return (await through.issue(agent, "manual:1")).wakeup
        return await through.wake(agent, "manual:1")

    with pytest.raises(Unavailable), as_domain_errors():
        await call(there)
    assert await doomed.ended() == 137

    again = await call(world)
    assert again.existed == ("after_commit" in point)
    assert (await call(world)).wakeup_id == again.wakeup_id
    await replicas.start()
    assert (await world.settled(again.wakeup_id)).state == wakeup_pb2.WAKEUP_STATE_COMPLETED
    assert len(ran(tmp_path)) == 1


async def test_a_cancellation_holds_although_its_caller_never_heard(
    replicas: Replicas, stage: Stage, tmp_path: Path
) -> None:
    world, agent = await prepared(stage, tmp_path)
    result = await world.wake(agent, "manual:1")
    doomed = await replicas.start(crash_point=at.CANCEL_AFTER_COMMIT, engine_concurrency=0)
    there = World(await replicas.client(doomed), tmp_path, world.workspace_id)
    with pytest.raises(Unavailable), as_domain_errors():
        await there.cancel("manual:1")
    assert await doomed.ended() == 137

    answer = await world.cancel("manual:1")
    assert answer.state == wakeup_pb2.WAKEUP_STATE_CANCELLED
    assert answer.wakeup_id == result.wakeup_id
    await replicas.start()
    assert (await world.settled(result.wakeup_id)).state == wakeup_pb2.WAKEUP_STATE_CANCELLED
    assert ran(tmp_path) == []


async def test_a_recovery_that_dies_is_recovered_from(
    replicas: Replicas, stage: Stage, tmp_path: Path
) -> None:
    world, agent = await prepared(stage, tmp_path)
    result = await world.wake(agent, "manual:1")
    doomed = await replicas.start(crash_point=at.SPAWN_AFTER_GO)
    assert await doomed.ended() == 137
    doomed = await replicas.start(crash_point=at.TAKE_OVER_AFTER_COMMIT)
    assert await doomed.ended() == 137

    await replicas.start()
    wakeup = await world.settled(result.wakeup_id)
    assert wakeup.state == wakeup_pb2.WAKEUP_STATE_COMPLETED
    assert ran(tmp_path) == [wakeup.run_id]


async def test_a_deadline_holds_although_its_enforcer_died(
    replicas: Replicas, stage: Stage, tmp_path: Path
) -> None:
    world, _ = await prepared(stage, tmp_path)
    agent = await world.script(
        linger(tmp_path / "pid"), "slow", run_timeout={"seconds": 1}, idle_timeout={"seconds": 0}
    )
    result = await world.wake(agent, "manual:1")
    doomed = await replicas.start(crash_point=at.DEADLINE_AFTER_COMMIT)
    process = await process_in(tmp_path / "pid")
    assert await doomed.ended() == 137
    (run,) = await world.attempts(result.wakeup_id)
    assert (run.state, run.occupied) == (run_pb2.RUN_STATE_TIMED_OUT, True)
    assert is_alive(process)

    await replicas.start()
    wakeup = await world.settled(result.wakeup_id)
    assert wakeup.reason == reason_pb2.REASON_RUN_TIMEOUT
    assert not is_alive(process)
