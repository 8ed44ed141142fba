"""Repeats get their turn once, with everything asked again; RetryRun hurries them, or asks anew."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID, uuid4

import asyncpg
import pytest
from tests.integration.heartbeat.conftest import Service, Stage
from tests.integration.heartbeat.kit import MEMBER, World
from tests.integration.heartbeat.replica import Replicas

from reveille.common.v1 import reason_pb2
from reveille.heartbeat.v1 import run_pb2, wakeup_pb2
from reveille.heartbeat.v1.run_pb2_grpc import RunServiceStub
from reveille_heartbeat.crash_points import RETRY_AFTER_COMMIT
from reveille_heartbeat.usecases.runs import promote_retries
from reveille_heartbeat.usecases.runs.promote_retries import RetryTurn
from reveille_runtime.db import Tx
from reveille_runtime.errors import (
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    Unavailable,
)
from reveille_runtime.rpc_errors import as_domain_errors

Rows: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
HOUR = timedelta(hours=1)
QUEUED, WAITS = run_pb2.RUN_STATE_QUEUED, run_pb2.RUN_STATE_SCHEDULED_RETRY


@pytest.fixture
async def desk(stage: Stage, tmp_path: Path) -> tuple[Service, World]:
    """A workspace whose queue nobody serves and whose sweep the test drives."""
    service = await stage.start(engine_concurrency=0, sweep_interval=3600, runtime_presence=1e6)
    world = World(service.client, tmp_path)
    await world.put()
    return service, world


def member(world: World, channel: Any = None) -> Any:
    return RunServiceStub(channel or world.client.user(MEMBER, world.workspace_id))


async def retry(world: World, run_id: str, request_id: str = "") -> run_pb2.RetryRunResponse:
    request = run_pb2.RetryRunRequest(run_id=run_id, request_id=request_id)
    with as_domain_errors():
        answer: run_pb2.RetryRunResponse = await member(world).RetryRun(request)
    return answer


async def failed_and_waiting(
    world: World, rows: Rows, wakeup_id: str, due: timedelta = HOUR
) -> tuple[str, str]:
    """Let the first attempt have failed, and its repeat wait for its time."""
    (first,) = await world.attempts(wakeup_id)
    second = uuid4()
    await rows.execute(
        "UPDATE runs SET state = 'failed', reason = 'transient_failure', started_at = clock(),"
        " finished_at = clock(), follow_up_done_at = clock() WHERE run_id = $1",
        UUID(first.run_id),
    )
    await rows.execute(
        "INSERT INTO runs (run_id, workspace_id, agent_id, wakeup_id, issue_id, state, attempt,"
        " retry_of_run_id, retry_reason, ready_rank, priority, start_by, scheduled_retry_at)"
        " SELECT $1, workspace_id, agent_id, wakeup_id, issue_id, 'scheduled_retry', 2, run_id,"
        " 'transient_failure', ready_rank, priority, clock() + interval '1 minute',"
        " clock() + $2::interval FROM runs WHERE run_id = $3",
        second,
        due,
        UUID(first.run_id),
    )
    await rows.execute(
        "UPDATE wakeup_requests SET state = 'claimed', claimed_at = clock(), run_id = $1,"
        " attempts = 2 WHERE wakeup_id = $2",
        second,
        UUID(wakeup_id),
    )
    return first.run_id, str(second)


async def fail(rows: Rows, wakeup_id: str) -> None:
    """Let a wakeup and its one attempt have failed."""
    await rows.execute(
        "UPDATE runs SET state = 'failed', reason = 'adapter_failed', started_at = clock(),"
        " finished_at = clock(), follow_up_done_at = clock() WHERE wakeup_id = $1",
        UUID(wakeup_id),
    )
    await rows.execute(
        "UPDATE wakeup_requests SET state = 'failed', reason = 'adapter_failed',"
        " claimed_at = clock(), finished_at = clock() WHERE wakeup_id = $1",
        UUID(wakeup_id),
    )


async def test_a_repeat_enters_the_queue_when_its_time_has_come_and_once(
    desk: tuple[Service, World], stage: Stage, rows: Rows, tmp_path: Path
) -> None:
    service, world = desk
    woken = await world.wake(await world.agent())
    _, waiting = await failed_and_waiting(world, rows, woken.wakeup_id)
    await service.tick("sweep")
    run = await world.run(waiting)
    assert (run.state, run.HasField("retry_time")) == (WAITS, True)

    other = await stage.start(engine_concurrency=0, sweep_interval=3600, runtime_presence=1e6)
    for each in (service, other):
        each.move_clock(3601)
    await asyncio.gather(service.tick("sweep"), other.tick("sweep"))
    run = await world.run(waiting)
    assert (run.state, run.HasField("retry_time")) == (QUEUED, False)
    events = await rows.fetch(
        "SELECT type, message FROM run_events WHERE run_id = $1", UUID(waiting)
    )
    assert [tuple(each) for each in events] == [("run.queued", "its time has come")]
    told = "SELECT count(*) FROM feed WHERE type = 'run.queued' AND subject_id = $1"
    assert await rows.fetchval(told, waiting) == 1
    # What it may wait in the queue counts from here, not from the failure an hour ago.
    await asyncio.gather(service.tick("sweep"), other.tick("sweep"))
    assert (await world.run(waiting)).state == QUEUED


async def test_a_person_need_not_wait_and_is_told_when_somebody_was_first(
    desk: tuple[Service, World], rows: Rows
) -> None:
    _, world = desk
    woken = await world.wake(await world.agent())
    first, waiting = await failed_and_waiting(world, rows, woken.wakeup_id)

    answer = await retry(world, first)

    assert answer.outcome == run_pb2.RETRY_OUTCOME_PROMOTED
    assert (answer.run.run_id, answer.run.state) == (waiting, QUEUED)
    assert answer.wakeup_id == woken.wakeup_id
    for asked in (first, waiting):
        again = await retry(world, asked)
        assert again.outcome == run_pb2.RETRY_OUTCOME_ALREADY_PROMOTED
        assert again.run.run_id == waiting


async def test_a_gate_ends_the_repeat_and_says_why(desk: tuple[Service, World], rows: Rows) -> None:
    _, world = desk
    made = await world.issue(await world.agent())
    first, waiting = await failed_and_waiting(world, rows, made.wakeup.wakeup_id)
    behind = await world.wake(await world.agent("other"), issue_id=made.issue.issue_id)
    assert behind.state == wakeup_pb2.WAKEUP_STATE_DEFERRED
    await rows.execute(
        "UPDATE issues SET assignee_agent_id = NULL, execution_run_id = $1, checkout_run_id = $1",
        UUID(waiting),
    )

    answer = await retry(world, first)

    assert answer.outcome == run_pb2.RETRY_OUTCOME_SUPPRESSED
    assert answer.reason == reason_pb2.REASON_ISSUE_ASSIGNEE_CHANGED
    assert "belongs to somebody else" in answer.message
    assert not answer.HasField("run")
    run = await world.run(waiting)
    assert (run.state, run.reason) == (
        run_pb2.RUN_STATE_CANCELLED,
        reason_pb2.REASON_ISSUE_ASSIGNEE_CHANGED,
    )
    assert (await world.wakeup(made.wakeup.wakeup_id)).state == wakeup_pb2.WAKEUP_STATE_CANCELLED
    assert (await world.wakeup(behind.wakeup_id)).state == wakeup_pb2.WAKEUP_STATE_QUEUED
    held_by = await rows.fetchrow("SELECT execution_run_id, checkout_run_id FROM issues")
    assert held_by is not None
    assert tuple(held_by) == (None, None)


async def test_repeats_that_cannot_be_queued_hide_none_behind_them(
    desk: tuple[Service, World], rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, world = desk
    agent = await world.agent()
    waiting = []
    for number in range(5):
        woken = await world.wake(agent, f"manual:{number}")
        due = timedelta(seconds=number - 10)
        waiting.append((await failed_and_waiting(world, rows, woken.wakeup_id, due))[1])
    *bad, _ = waiting
    take = RetryTurn.take

    async def refuse(self: RetryTurn, tx: Tx, run_id: UUID, **more: Any) -> Any:
        if str(run_id) in bad:
            raise RuntimeError("injected")
        return await take(self, tx, run_id, **more)

    monkeypatch.setattr(promote_retries, "_BATCH", 2)
    monkeypatch.setattr(RetryTurn, "take", refuse)
    for _ in range(3):
        await service.tick("sweep")
    assert [(await world.run(run_id)).state for run_id in waiting] == [WAITS] * 4 + [QUEUED]
    # It has been round, and begins again.
    monkeypatch.setattr(RetryTurn, "take", take)
    for _ in range(3):
        await service.tick("sweep")
    assert [(await world.run(run_id)).state for run_id in waiting] == [QUEUED] * 5


async def test_what_has_failed_for_good_is_asked_for_once_more(
    desk: tuple[Service, World], rows: Rows
) -> None:
    _, world = desk
    body = wakeup_pb2.Payload(content_type="text/plain", body=b"the body")
    woken = await world.wake(await world.agent(), "webhook:1", payload=body)
    (first,) = await world.attempts(woken.wakeup_id)
    await fail(rows, woken.wakeup_id)

    answer = await retry(world, first.run_id, "once")

    assert answer.outcome == run_pb2.RETRY_OUTCOME_NEW_WAKEUP
    assert answer.wakeup_id != woken.wakeup_id
    assert answer.run.state == QUEUED
    new = await world.wakeup(answer.wakeup_id)
    assert (new.title, new.wake_reason, new.source, new.occurrence_key) == (
        "Look at it",
        "autopilot_run",
        wakeup_pb2.WAKEUP_SOURCE_ON_DEMAND,
        "",
    )
    bodies = await rows.fetch("SELECT prompt, body FROM wakeup_payloads")
    assert [tuple(each) for each in bodies] == [("Please look.", b"the body")] * 2
    # The same request again; then the id for something else.
    assert (await retry(world, first.run_id, "once")).wakeup_id == answer.wakeup_id
    assert len(await rows.fetch("SELECT FROM wakeup_requests")) == 2
    with pytest.raises(InvalidArgument) as caught:
        await retry(world, answer.run.run_id, "once")
    assert caught.value.reason == "REQUEST_ID_REUSED"


async def test_what_had_joined_the_work_is_asked_for_with_it(
    desk: tuple[Service, World], rows: Rows
) -> None:
    _, world = desk
    agent = await world.agent()
    woken = await world.wake(agent)
    (first,) = await world.attempts(woken.wakeup_id)
    for number in range(3):
        body = wakeup_pb2.Payload(content_type="text/plain", body=b"%d" % number)
        await world.wake(agent, prompt=f"And {number}.", payload=body)
    await fail(rows, woken.wakeup_id)
    # One of them was cancelled before, and ended otherwise.
    await rows.execute(
        "UPDATE wakeup_requests SET finished_at = clock(), reason = 'x', message = 'x',"
        " state = CASE WHEN p.prompt = 'And 1.' THEN 'cancelled' ELSE 'failed' END"
        " FROM wakeup_payloads p"
        " WHERE p.wakeup_id = wakeup_requests.wakeup_id AND state = 'coalesced'"
    )

    answer = await retry(world, first.run_id)

    assert answer.outcome == run_pb2.RETRY_OUTCOME_NEW_WAKEUP
    together = await rows.fetch(
        "SELECT w.state, p.prompt, p.body FROM wakeup_requests w"
        " JOIN wakeup_payloads p USING (wakeup_id)"
        " WHERE $1 IN (w.wakeup_id, w.joined_wakeup_id) ORDER BY w.wakeup_id",
        UUID(answer.wakeup_id),
    )
    assert [tuple(each) for each in together] == [
        ("queued", "Please look.", b""),
        ("coalesced", "And 0.", b"0"),
        ("coalesced", "And 2.", b"2"),
    ]


async def test_a_rule_may_forbid_the_new_wake_too(desk: tuple[Service, World], rows: Rows) -> None:
    _, world = desk
    woken = await world.wake(await world.agent())
    (first,) = await world.attempts(woken.wakeup_id)
    await fail(rows, woken.wakeup_id)
    await rows.execute("UPDATE agents SET state = 'paused', paused_at = clock()")

    answer = await retry(world, first.run_id)

    assert answer.outcome == run_pb2.RETRY_OUTCOME_SUPPRESSED
    assert answer.reason == reason_pb2.REASON_AGENT_NOT_INVOKABLE
    assert (await world.wakeup(answer.wakeup_id)).state == wakeup_pb2.WAKEUP_STATE_SKIPPED


async def test_what_has_not_failed_is_not_repeated(desk: tuple[Service, World], rows: Rows) -> None:
    _, world = desk
    woken = await world.wake(await world.agent())
    (run,) = await world.attempts(woken.wakeup_id)
    refusals = []
    with pytest.raises(FailedPrecondition) as caught:
        await retry(world, run.run_id)
    refusals.append(caught.value.message)
    await fail(rows, woken.wakeup_id)
    await rows.execute("UPDATE runs SET state = 'succeeded'")
    with pytest.raises(FailedPrecondition) as caught:
        await retry(world, run.run_id)
    refusals.append(caught.value.message)
    assert caught.value.reason == "WRONG_STATE"
    assert ["has not ended" in refusals[0], "succeeded" in refusals[1]] == [True, True]
    stranger: Any = RunServiceStub(world.client.user("eve", uuid4()))
    with pytest.raises(NotFound), as_domain_errors():
        await stranger.RetryRun(run_pb2.RetryRunRequest(run_id=run.run_id))


async def test_a_request_that_died_after_its_commit_has_one_effect(
    desk: tuple[Service, World], replicas: Replicas, rows: Rows
) -> None:
    _, world = desk
    woken = await world.wake(await world.agent())
    (first,) = await world.attempts(woken.wakeup_id)
    await fail(rows, woken.wakeup_id)
    doomed = await replicas.start(
        crash_point=RETRY_AFTER_COMMIT, engine_concurrency=0, sweep_interval=3600
    )
    there = (await replicas.client(doomed)).user(MEMBER, world.workspace_id)
    request = run_pb2.RetryRunRequest(run_id=first.run_id, request_id="once")
    with pytest.raises(Unavailable), as_domain_errors():
        await member(world, there).RetryRun(request)
    assert await doomed.ended() == 137

    answer = await retry(world, first.run_id, "once")

    assert answer.outcome == run_pb2.RETRY_OUTCOME_NEW_WAKEUP
    assert len(await rows.fetch("SELECT FROM wakeup_requests")) == 2
