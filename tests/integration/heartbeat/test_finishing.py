"""Attempts end once, with all that follows: repeats on a ladder, comments, costs, their issue."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg
import pytest
from tests.integration.heartbeat.conftest import Service, Stage
from tests.integration.heartbeat.kit import World

from reveille.common.v1 import reason_pb2
from reveille.heartbeat.v1 import agent_pb2, issue_pb2, run_pb2, wakeup_pb2
from reveille_heartbeat.domain.outcome import Outcome
from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import IssueState, RunState
from reveille_heartbeat.domain.usage import Usage
from reveille_heartbeat.domain.values import FailureClass
from reveille_heartbeat.usecases.runs.claim_runs import ClaimRuns
from reveille_heartbeat.usecases.runs.finishing import Finisher
from reveille_heartbeat.usecases.runs.held_run import HeldRun
from reveille_heartbeat.usecases.runs.loaded import Loaded
from reveille_runtime.lease import Lease

Rows: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Idle: TypeAlias = tuple[Service, World]
WELL = Outcome(RunState.SUCCEEDED, summary="all is well", document=b'{"summary":"all is well"}')
PASSING = Outcome(
    RunState.FAILED, Reason.TRANSIENT_FAILURE, "overloaded", failure_class=FailureClass.TRANSIENT
)
SILENT = Outcome(RunState.SUCCEEDED)
OUT_OF_TURNS = Outcome(
    RunState.FAILED, Reason.MAX_TURNS, "no turns", failure_class=FailureClass.MAX_TURNS
)


def lease_of(loaded: Loaded) -> Lease:
    assert loaded.run.lease_token is not None
    return Lease(loaded.run.run_id, loaded.run.lease_token)


async def claimed(claimers: list[ClaimRuns]) -> Loaded:
    (loaded,) = await claimers[0](1)
    return loaded


async def history(rows: Rows, run_id: UUID) -> list[str]:
    found = await rows.fetch("SELECT type FROM run_events WHERE run_id = $1 ORDER BY seq", run_id)
    return [row["type"] for row in found]


async def test_a_passing_failure_waits_for_its_time_with_the_issue_and_four_times_at_most(
    idle: Idle, claimers: list[ClaimRuns], finisher: Finisher, rows: Rows
) -> None:
    service, world = idle
    made = await world.issue(await world.agent(), "manual:1")
    for attempt, minutes in enumerate((2, 10, 30, 120), start=1):
        loaded = await claimed(claimers)
        assert loaded.run.attempt == attempt
        await rows.execute("UPDATE issues SET checkout_run_id = $1", loaded.run.run_id)
        finished = await finisher.finish(lease_of(loaded), loaded, PASSING)
        assert finished.won
        attempts = await world.attempts(made.wakeup.wakeup_id)
        successor = attempts[-1]
        assert (successor.state, successor.attempt, successor.retry_reason) == (
            run_pb2.RUN_STATE_SCHEDULED_RETRY,
            attempt + 1,
            reason_pb2.REASON_TRANSIENT_FAILURE,
        )
        assert successor.retry_of_run_id == str(loaded.run.run_id)
        row = await rows.fetchrow(
            "SELECT s.scheduled_retry_at - r.finished_at AS pause FROM runs s"
            " JOIN runs r ON r.run_id = s.retry_of_run_id WHERE s.run_id = $1",
            UUID(successor.run_id),
        )
        assert row is not None
        assert abs(row["pause"] - timedelta(minutes=minutes)) < timedelta(seconds=5)
        assert "run.retry_scheduled" in await history(rows, loaded.run.run_id)
        held_by = await rows.fetchrow("SELECT execution_run_id, checkout_run_id FROM issues")
        assert held_by is not None
        assert [str(run_id) for run_id in held_by] == [successor.run_id] * 2
        # Nothing in memory: whoever sweeps finds it, when its time has come and not before.
        await service.tick("sweep")
        assert await claimers[0](1) == []
        await rows.execute(
            "UPDATE runs SET scheduled_retry_at = clock() WHERE state = $1", "scheduled_retry"
        )
        await service.tick("sweep")

    loaded = await claimed(claimers)
    await finisher.finish(lease_of(loaded), loaded, PASSING)
    wakeup = await world.wakeup(made.wakeup.wakeup_id)
    assert (wakeup.state, wakeup.reason) == (
        wakeup_pb2.WAKEUP_STATE_FAILED,
        reason_pb2.REASON_TRANSIENT_FAILURE,
    )
    assert "run.retries_exhausted" in await history(rows, loaded.run.run_id)
    assert (await world.get_issue(made.issue.issue_id)).execution_run_id == ""
    assert await rows.fetchval("SELECT checkout_run_id FROM issues") is None
    assert len(await world.attempts(made.wakeup.wakeup_id)) == 5


async def test_one_end_of_several_counts_and_makes_one_successor(
    idle: Idle, claimers: list[ClaimRuns], finisher: Finisher, rows: Rows
) -> None:
    _, world = idle
    result = await world.wake(await world.agent(), "webhook:1")
    loaded = await claimed(claimers)
    lease = lease_of(loaded)

    ends = await asyncio.gather(
        *(finisher.finish(lease, loaded, PASSING) for _ in range(3)), return_exceptions=True
    )
    # A repeat of the same write finds it done; nothing is written twice.
    assert all(not isinstance(end, BaseException) and end.won for end in ends)
    assert len(await world.attempts(result.wakeup_id)) == 2
    assert (await history(rows, loaded.run.run_id)).count("run.failed") == 1


async def test_what_settled_is_followed_up_by_whoever_comes_next(
    idle: Idle, claimers: list[ClaimRuns], finisher: Finisher, rows: Rows
) -> None:
    """The executor dies between the two: the rows alone tell what is left to do."""
    _, world = idle
    made = await world.issue(await world.agent(), "manual:1")
    later = await world.wake(
        await world.agent("other"), issue_id=made.issue.issue_id, reason="robot_wants"
    )
    assert later.state == wakeup_pb2.WAKEUP_STATE_DEFERRED
    loaded = await claimed(claimers)
    await finisher.settle(lease_of(loaded), loaded, WELL)

    (run,) = await world.attempts(made.wakeup.wakeup_id)
    assert (run.state, run.occupied) == (run_pb2.RUN_STATE_SUCCEEDED, True)
    assert (await world.wakeup(made.wakeup.wakeup_id)).state == wakeup_pb2.WAKEUP_STATE_CLAIMED
    assert await claimers[1](5) == []
    for _ in range(2):
        await finisher.follow_up(lease_of(loaded), loaded)
    settled = await rows.fetch("SELECT payload FROM feed WHERE type = 'wakeup.settled'")
    assert [row["payload"]["result"]["summary"] for row in settled] == ["all is well"]
    assert (await world.attempts(made.wakeup.wakeup_id))[0].occupied is False
    # The wake that waited for the issue has its turn.
    assert (await claimed(claimers)).wakeup.wakeup_id == UUID(later.wakeup_id)


async def test_a_cancellation_after_the_end_leaves_it_and_one_before_it_keeps_the_cost(
    idle: Idle, claimers: list[ClaimRuns], finisher: Finisher, rows: Rows
) -> None:
    _, world = idle
    agent = await world.agent(max_concurrent_runs=2)
    first = await world.wake(agent, "webhook:1")
    ended = await claimed(claimers)
    await finisher.settle(lease_of(ended), ended, WELL)
    await world.cancel("webhook:1")
    await finisher.follow_up(lease_of(ended), ended)
    assert (await world.wakeup(first.wakeup_id)).state == wakeup_pb2.WAKEUP_STATE_COMPLETED
    assert (await world.run(str(ended.run.run_id))).state == run_pb2.RUN_STATE_SUCCEEDED

    second = await world.wake(agent, "webhook:2")
    running = await claimed(claimers)
    await world.cancel("webhook:2")
    spent = (Usage("p", "m", 10, 2, 5, Decimal("1.5")), Usage("p", "n", 1))
    await finisher.settle(lease_of(running), running, replace(WELL, usage=spent))
    # Reports are cumulative: a smaller one is an older one.
    older = (Usage("p", "m", 9, 1, 4, Decimal(1)),)
    late = await finisher.finish(lease_of(running), running, replace(WELL, usage=older))
    assert not late.won
    assert (await world.wakeup(second.wakeup_id)).state == wakeup_pb2.WAKEUP_STATE_CANCELLED
    run = await world.run(str(running.run.run_id))
    assert (run.state, run.occupied) == (run_pb2.RUN_STATE_CANCELLED, False)
    booked = await rows.fetch(
        "SELECT model, input_tokens, cached_input_tokens, output_tokens, cost_cents"
        " FROM cost_events WHERE run_id = $1 ORDER BY model",
        running.run.run_id,
    )
    assert [tuple(row) for row in booked] == [("m", 10, 2, 5, Decimal("1.5")), ("n", 1, 0, 0, None)]


async def test_a_cancellation_between_a_failure_and_its_follow_up_allows_no_repeat(
    idle: Idle, claimers: list[ClaimRuns], finisher: Finisher
) -> None:
    _, world = idle
    result = await world.wake(await world.agent(), "webhook:1")
    loaded = await claimed(claimers)
    await finisher.settle(lease_of(loaded), loaded, PASSING)
    await world.cancel("webhook:1")
    await finisher.follow_up(lease_of(loaded), loaded)

    assert (await world.wakeup(result.wakeup_id)).state == wakeup_pb2.WAKEUP_STATE_CANCELLED
    (run,) = await world.attempts(result.wakeup_id)
    assert run.state == run_pb2.RUN_STATE_FAILED


async def test_an_attempt_that_was_cancelled_before_it_began_checks_nothing_out(
    idle: Idle, claimers: list[ClaimRuns], stage: Stage, rows: Rows
) -> None:
    _, world = idle
    made = await world.issue(await world.agent(), "manual:1")
    loaded = await claimed(claimers)
    await rows.execute("UPDATE runs SET state = 'cancelled', finished_at = clock()")
    held = HeldRun(await stage.database.open("heartbeat"), timedelta(seconds=30))
    assert await held.check_out(lease_of(loaded), loaded) is False
    issue = await world.get_issue(made.issue.issue_id)
    assert issue.status == issue_pb2.ISSUE_STATUS_TODO
    assert await rows.fetchval("SELECT checkout_run_id FROM issues") is None


async def test_a_poisoned_end_is_left_out_of_its_batch(
    idle: Idle, claimers: list[ClaimRuns], finisher: Finisher, rows: Rows
) -> None:
    _, world = idle
    agent = await world.agent(max_concurrent_runs=10)
    for number in range(7):
        await world.wake(agent, f"webhook:{number}")
    loaded = await claimers[0](10)
    assert len(loaded) == 7
    outcomes = [WELL] * 3 + [replace(WELL, summary="a \x00 byte")] + [WELL] * 3

    ends = await asyncio.gather(
        *(
            finisher.finish(lease_of(each), each, outcome)
            for each, outcome in zip(loaded, outcomes, strict=True)
        ),
        return_exceptions=True,
    )
    assert [isinstance(end, Exception) for end in ends] == [False] * 3 + [True] + [False] * 3
    states = await rows.fetch("SELECT state, count(*) AS n FROM runs GROUP BY state")
    assert {row["state"]: row["n"] for row in states} == {"succeeded": 6, "running": 1}


@pytest.mark.parametrize("again_silent", [True, False])
async def test_a_comment_that_people_wait_for_is_asked_for_once_more(
    idle: Idle,
    claimers: list[ClaimRuns],
    finisher: Finisher,
    rows: Rows,
    again_silent: bool,
) -> None:
    _, world = idle
    made = await world.issue(await world.agent(), "manual:1")
    first = await claimed(claimers)
    await finisher.finish(lease_of(first), first, SILENT)
    (_, repeat) = await world.attempts(made.wakeup.wakeup_id)
    assert repeat.retry_reason == reason_pb2.REASON_MISSING_COMMENT
    second = await claimed(claimers)
    await finisher.finish(lease_of(second), second, SILENT if again_silent else WELL)

    statuses = await rows.fetch("SELECT comment_status FROM runs ORDER BY attempt")
    assert [row["comment_status"] for row in statuses] == [
        "retry_queued",
        "retry_exhausted" if again_silent else "satisfied",
    ]
    wakeup = await world.wakeup(made.wakeup.wakeup_id)
    assert wakeup.state == wakeup_pb2.WAKEUP_STATE_COMPLETED
    assert len(await world.attempts(made.wakeup.wakeup_id)) == 2
    said = await rows.fetch("SELECT author_kind, run_id, body FROM issue_comments")
    expected = [] if again_silent else [("agent", second.run.run_id, "all is well")]
    assert [tuple(row) for row in said] == expected
    # What heartbeat wrote down for the agent is no progress of its own.
    assert await rows.fetchval("SELECT bool_or(left_progress) FROM runs") is False


@pytest.mark.parametrize("with_a_comment", [True, False])
async def test_only_a_comment_that_waits_makes_up_for_one_that_is_missing(
    idle: Idle,
    claimers: list[ClaimRuns],
    finisher: Finisher,
    rows: Rows,
    with_a_comment: bool,
) -> None:
    _, world = idle
    made = await world.issue(await world.agent(), "manual:1")
    await world.wake(await world.agent("other"), issue_id=made.issue.issue_id, reason="robot_wants")
    if with_a_comment:
        await rows.execute(
            "UPDATE wakeup_requests SET comment_ids = ARRAY[gen_random_uuid()]"
            " WHERE state = 'deferred'"
        )
    loaded = await claimed(claimers)
    await finisher.finish(lease_of(loaded), loaded, SILENT)

    assert await rows.fetchval(
        "SELECT comment_status FROM runs WHERE run_id = $1", loaded.run.run_id
    ) == ("satisfied" if with_a_comment else "retry_queued")
    attempts = await world.attempts(made.wakeup.wakeup_id)
    assert len(attempts) == (1 if with_a_comment else 2)


@pytest.mark.parametrize("status", [IssueState.DONE, IssueState.IN_REVIEW, IssueState.BLOCKED])
async def test_an_issue_that_was_moved_needs_no_other_word(
    idle: Idle,
    claimers: list[ClaimRuns],
    finisher: Finisher,
    rows: Rows,
    status: IssueState,
) -> None:
    _, world = idle
    made = await world.issue(await world.agent(), "manual:1")
    loaded = await claimed(claimers)
    await finisher.finish(lease_of(loaded), loaded, replace(SILENT, issue_status=status))

    row = await rows.fetchrow("SELECT comment_status, left_progress FROM runs")
    assert row is not None
    assert tuple(row) == ("satisfied", True)
    wakeup = await world.wakeup(made.wakeup.wakeup_id)
    assert wakeup.state == wakeup_pb2.WAKEUP_STATE_COMPLETED
    issue = await world.get_issue(made.issue.issue_id)
    assert issue.status == issue_pb2.IssueStatus.Value(f"ISSUE_STATUS_{status.name}")


async def test_turns_that_ran_out_are_continued_while_the_issue_is_the_runs_own(
    idle: Idle, claimers: list[ClaimRuns], finisher: Finisher, rows: Rows
) -> None:
    _, world = idle
    no_pause = agent_pb2.HeartbeatPolicy(max_turn_continuations=1)
    no_pause.max_turn_delay.FromTimedelta(timedelta(0))
    agent = await world.agent(heartbeat=no_pause)
    made = await world.issue(agent, "manual:1")
    loaded = await claimed(claimers)
    await rows.execute("UPDATE issues SET status = 'in_progress'")
    await finisher.finish(lease_of(loaded), loaded, OUT_OF_TURNS)
    (_, repeat) = await world.attempts(made.wakeup.wakeup_id)
    assert repeat.retry_reason == reason_pb2.REASON_MAX_TURNS

    # It is nobody's work any more when its turn comes.
    await rows.execute("UPDATE runs SET state = 'queued' WHERE state = 'scheduled_retry'")
    await rows.execute("UPDATE issues SET status = 'blocked'")
    assert await claimers[0](1) == []
    wakeup = await world.wakeup(made.wakeup.wakeup_id)
    assert (wakeup.state, wakeup.reason) == (
        wakeup_pb2.WAKEUP_STATE_CANCELLED,
        reason_pb2.REASON_ISSUE_NOT_IN_PROGRESS,
    )
    assert (await world.get_issue(made.issue.issue_id)).execution_run_id == ""


async def test_turns_that_ran_out_on_an_issue_that_another_run_holds_end_there(
    idle: Idle, claimers: list[ClaimRuns], finisher: Finisher, rows: Rows
) -> None:
    _, world = idle
    policy = agent_pb2.HeartbeatPolicy(max_turn_continuations=1)
    made = await world.issue(await world.agent(heartbeat=policy), "manual:1")
    loaded = await claimed(claimers)
    await rows.execute(
        "UPDATE issues SET status = 'in_progress', execution_run_id = gen_random_uuid()"
    )
    await finisher.finish(lease_of(loaded), loaded, OUT_OF_TURNS)

    wakeup = await world.wakeup(made.wakeup.wakeup_id)
    assert wakeup.state == wakeup_pb2.WAKEUP_STATE_FAILED
    assert len(await world.attempts(made.wakeup.wakeup_id)) == 1


async def test_an_agents_state_is_told_when_it_begins_and_when_it_rests(
    stage: Stage, rows: Rows
) -> None:
    service = await stage.start()
    world = World(service.client, stage.folder)
    await world.put()
    agent = await world.agent(config={"fail": True})
    result = await world.wake(agent, "webhook:1")
    await world.settled(result.wakeup_id)
    await service.stop()

    told = await rows.fetch(
        "SELECT payload FROM feed WHERE type = 'agent.status' ORDER BY xid, seq"
    )
    moves: list[Any] = [(row["payload"]["previous"], row["payload"]["status"]) for row in told]
    assert moves == [("idle", "running"), ("running", "error")]
