"""Claims keep to slots, to one run per issue and to the queue's order, however many claim."""

from __future__ import annotations

import asyncio
import re
import uuid
from typing import Any

import asyncpg
import pytest
from tests.integration.heartbeat import executors
from tests.integration.heartbeat.conftest import Service
from tests.integration.heartbeat.kit import World

from reveille.common.v1 import reason_pb2
from reveille.heartbeat.v1 import agent_pb2, issue_pb2, run_pb2, wakeup_pb2
from reveille_heartbeat.domain.limits import RunLimits
from reveille_heartbeat.domain.outcome import Outcome
from reveille_heartbeat.domain.states import RunState
from reveille_heartbeat.domain.values import ProcessIdentity, Run
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.usecases.runs import run_events
from reveille_heartbeat.usecases.runs.agent_signs import AgentSigns
from reveille_heartbeat.usecases.runs.claim_runs import ClaimRuns
from reveille_heartbeat.usecases.runs.finishing import Finisher
from reveille_runtime.ids import new_token
from reveille_runtime.lease import Lease, LeaseLost
from reveille_testkit.database import TestDatabase


async def claim_all(claimers: list[ClaimRuns], limit: int) -> list[Run]:
    claimed = await asyncio.gather(*(claim(limit) for claim in claimers))
    return [each.run for many in claimed for each in many]


async def test_parallel_claimers_keep_an_agents_slots(
    idle: tuple[Service, World], claimers: list[ClaimRuns]
) -> None:
    _, world = idle
    busy = await world.agent("busy", max_concurrent_runs=3)
    other = await world.agent("other")
    for number in range(10):
        await world.wake(busy, f"busy:{number}")
        await world.wake(other, f"other:{number}")

    claimed: list[Run] = []
    for _ in range(3):
        claimed += await claim_all(claimers, 20)
    by_agent = [str(run.agent_id) for run in claimed]
    assert by_agent.count(busy.agent_id) == 3
    assert by_agent.count(other.agent_id) == 1
    assert len({run.run_id for run in claimed}) == 4
    assert {run.state for run in claimed} == {RunState.RUNNING}
    assert len({run.lease_token for run in claimed}) == 4


async def test_an_issue_has_one_run_at_a_time_whoever_claims(
    idle: tuple[Service, World], claimers: list[ClaimRuns]
) -> None:
    _, world = idle
    agent = await world.agent(max_concurrent_runs=10)
    made = await world.issue(agent, "manual:1")
    for number in range(5):
        await world.wake(agent, f"webhook:{number}", issue_id=made.issue.issue_id)

    claimed: list[Run] = []
    for _ in range(3):
        claimed += await claim_all(claimers, 20)
    assert len(claimed) == 1
    issue = await world.get_issue(made.issue.issue_id)
    assert issue.execution_run_id == str(claimed[0].run_id)


async def test_the_order_is_readiness_then_priority_then_age(
    idle: tuple[Service, World], claimers: list[ClaimRuns]
) -> None:
    _, world = idle
    agent = await world.agent(max_concurrent_runs=50)

    async def issue(key: str, priority: Any, status: Any = 0) -> str:
        made = await world.issue(agent, key, priority=priority)
        if status:
            await world.issues.UpdateIssue(
                issue_pb2.UpdateIssueRequest(issue_id=made.issue.issue_id, status=status)
            )
        return made.wakeup.wakeup_id

    blocked = await issue("1", issue_pb2.ISSUE_PRIORITY_CRITICAL, issue_pb2.ISSUE_STATUS_BLOCKED)
    without = (await world.wake(agent, "2")).wakeup_id
    low = await issue("3", issue_pb2.ISSUE_PRIORITY_LOW)
    high = await issue("4", issue_pb2.ISSUE_PRIORITY_HIGH)
    high_too = await issue("5", issue_pb2.ISSUE_PRIORITY_HIGH)
    begun = await issue("6", issue_pb2.ISSUE_PRIORITY_LOW, issue_pb2.ISSUE_STATUS_IN_PROGRESS)

    order = []
    for _ in range(6):
        (each,) = await claimers[0](1)
        order.append(str(each.run.wakeup_id))
    assert order == [begun, high, high_too, low, without, blocked]
    # An agent's only slot is for the best of its runs, not for the oldest.
    single = await world.agent("single")
    await world.issue(single, "7", priority=issue_pb2.ISSUE_PRIORITY_LOW)
    best = await world.issue(single, "8", priority=issue_pb2.ISSUE_PRIORITY_HIGH)
    (last,) = await claimers[0](5)
    assert str(last.run.wakeup_id) == best.wakeup.wakeup_id


async def test_a_busy_agent_and_a_busy_issue_hide_nobody(
    idle: tuple[Service, World], claimers: list[ClaimRuns]
) -> None:
    _, world = idle
    full = await world.agent("full")
    free = await world.agent("free", max_concurrent_runs=2)
    made = await world.issue(free, "issue", priority=issue_pb2.ISSUE_PRIORITY_CRITICAL)
    for number in range(30):
        await world.wake(full, f"full:{number}")
        await world.wake(free, f"on:{number}", issue_id=made.issue.issue_id)
    later = await world.wake(free, "last")

    claimed = [each.run for _ in range(5) for each in await claimers[0](1)]
    assert str(claimed[-1].wakeup_id) == later.wakeup_id
    assert len(claimed) == 3


async def test_a_run_waits_for_a_runtime_that_is_away(
    idle: tuple[Service, World],
    claimers: list[ClaimRuns],
    rows: asyncpg.Connection[asyncpg.Record],
) -> None:
    _, world = idle
    await world.wake(await world.agent(), "webhook:1")
    await rows.execute("UPDATE runtimes SET presence_expires_at = clock() - interval '1 s'")
    assert await claimers[0](5) == []

    await rows.execute("UPDATE runtimes SET presence_expires_at = clock() + interval '1 h'")
    assert len(await claimers[0](5)) == 1


async def test_a_run_whose_issue_ended_while_it_waited_is_skipped_at_its_turn(
    idle: tuple[Service, World], claimers: list[ClaimRuns]
) -> None:
    _, world = idle
    agent = await world.agent()
    made = await world.issue(agent, "manual:1")
    await world.issues.UpdateIssue(
        issue_pb2.UpdateIssueRequest(
            issue_id=made.issue.issue_id, status=issue_pb2.ISSUE_STATUS_DONE
        )
    )

    assert await claimers[0](5) == []
    wakeup = await world.wakeup(made.wakeup.wakeup_id)
    assert wakeup.state == wakeup_pb2.WAKEUP_STATE_SKIPPED
    assert wakeup.reason == reason_pb2.REASON_ISSUE_CLOSED
    (run,) = await world.attempts(wakeup.wakeup_id)
    assert run.state == run_pb2.RUN_STATE_CANCELLED


async def test_a_hold_that_came_while_a_run_waited_ends_it_at_its_turn(
    idle: tuple[Service, World],
    claimers: list[ClaimRuns],
    rows: asyncpg.Connection[asyncpg.Record],
) -> None:
    _, world = idle
    agent = await world.agent()
    made = await world.issue(agent, "manual:1")
    # As a hold leaves it that did not see the run.
    await rows.execute(
        "INSERT INTO issue_tree_holds (hold_id, workspace_id, root_issue_id, mode, created_by)"
        " SELECT gen_random_uuid(), workspace_id, issue_id, 'pause', 'olga' FROM issues"
    )

    assert await claimers[0](5) == []
    wakeup = await world.wakeup(made.wakeup.wakeup_id)
    assert wakeup.state == wakeup_pb2.WAKEUP_STATE_CANCELLED
    assert wakeup.reason == reason_pb2.REASON_ISSUE_TREE_HELD
    (run,) = await world.attempts(wakeup.wakeup_id)
    assert run.state == run_pb2.RUN_STATE_CANCELLED
    assert "held" in run.message


async def test_a_run_whose_agent_takes_no_work_any_more_is_cancelled_at_its_turn(
    claimers: list[ClaimRuns], idle: tuple[Service, World]
) -> None:
    _, world = idle
    boss = await world.agent("boss")
    agent = await world.agent("ann", manager_agent_id=boss.agent_id)
    waiting = await world.wake(agent, "manual:1")
    await world.agents.ArchiveAgent(agent_pb2.ArchiveAgentRequest(agent_id=boss.agent_id))

    assert await claim_all(claimers, 10) == []
    wakeup = await world.wakeup(waiting.wakeup_id)
    assert wakeup.state == wakeup_pb2.WAKEUP_STATE_CANCELLED
    assert wakeup.reason == reason_pb2.REASON_AGENT_NOT_INVOKABLE
    assert "its manager boss is archived" in wakeup.message


async def test_a_run_that_nobody_starts_ends_at_its_start_limit(
    idle: tuple[Service, World],
) -> None:
    service, world = idle
    result = await world.wake(await world.agent(), "webhook:1")
    service.move_clock(86_401)
    await service.tick("sweep")

    wakeup = await world.wakeup(result.wakeup_id)
    assert wakeup.state == wakeup_pb2.WAKEUP_STATE_FAILED
    assert wakeup.reason == reason_pb2.REASON_START_DEADLINE


async def test_a_result_that_comes_after_a_cancellation_changes_nothing_and_is_noted(
    idle: tuple[Service, World],
    claimers: list[ClaimRuns],
    finisher: Finisher,
    rows: asyncpg.Connection[asyncpg.Record],
) -> None:
    _, world = idle
    result = await world.wake(await world.agent(), "webhook:1")
    (loaded,) = await claimers[0](1)
    run = loaded.run
    assert run.lease_token is not None
    lease = Lease(run.run_id, run.lease_token)
    await world.cancel("webhook:1")

    finished = await finisher.settle(lease, loaded, Outcome(RunState.SUCCEEDED))
    assert not finished.won
    assert (await world.run(str(run.run_id))).state == run_pb2.RUN_STATE_CANCELLED
    kinds = await rows.fetch("SELECT type FROM run_events ORDER BY seq")
    assert [row["type"] for row in kinds] == ["run.claimed", "run.cancelled", "run.late_result"]
    stranger = Lease(run.run_id, new_token())
    with pytest.raises(LeaseLost):
        await finisher.settle(stranger, loaded, Outcome(RunState.SUCCEEDED))
    assert (await world.wakeup(result.wakeup_id)).state == wakeup_pb2.WAKEUP_STATE_CLAIMED


async def test_the_claim_reads_what_it_needs_and_not_the_whole_queue(
    idle: tuple[Service, World], rows: asyncpg.Connection[asyncpg.Record]
) -> None:
    """20,000 queued runs of 20 agents, statistics taken before they came."""
    _, world = idle
    for number in range(20):
        await world.agent(f"agent-{number}")
    await rows.execute(
        """
        INSERT INTO wakeup_requests (wakeup_id, workspace_id, agent_id, source, wake_reason, title,
            state, caller, run_id, attempts)
        SELECT md5('w' || a.agent_id || n)::uuid, a.workspace_id, a.agent_id, 'automation', 'x',
            'x', 'queued', 'x', md5('r' || a.agent_id || n)::uuid, 1
        FROM agents a, generate_series(1, 1000) n
        """
    )
    await rows.execute(
        """
        INSERT INTO runs (run_id, workspace_id, agent_id, wakeup_id, state, attempt, ready_rank,
            priority, start_by)
        SELECT w.run_id, w.workspace_id, w.agent_id, w.wakeup_id, 'queued', 1, 2, 4,
            clock() + interval '1 d'
        FROM wakeup_requests w
        """
    )

    for name, arguments in (
        ("waiting_workspaces", [1000]),
        ("claim_candidates", [world.workspace_id, 20]),
    ):
        plan = await rows.fetch(f"EXPLAIN (ANALYZE) {Q[name].sql}", *arguments)
        text = "\n".join(row["QUERY PLAN"] for row in plan)
        assert "Seq Scan on runs" not in text, text
        read = [int(float(n)) for n in re.findall(r"on runs \w+.*?actual.*?rows=([\d.]+)", text)]
        assert read, text
        assert max(read) <= 25, text


async def test_workspaces_share_a_batch_and_none_is_starved(
    idle: tuple[Service, World], claimers: list[ClaimRuns]
) -> None:
    _, first = idle
    worlds = [first, World(first.client, first.folder), World(first.client, first.folder)]
    for number, world in enumerate(worlds):
        if number:
            await world.put(prefix=f"W{number}")
        agent = await world.agent(max_concurrent_runs=50)
        for at in range(10 if number == 0 else 2):
            await world.wake(agent, f"{number}:{at}")

    claimed = await claimers[0](6)
    taken = [each.run.workspace_id for each in claimed]
    assert [taken.count(world.workspace_id) for world in worlds] == [2, 2, 2]
    # What others leave is shared by those that have more.
    assert len(await claimers[0](6)) == 6


@pytest.mark.parametrize(
    ("limits", "first", "both"),
    [
        (RunLimits(workspace=3), 3, 6),
        (RunLimits(everywhere=4), 4, 4),
        (RunLimits(workspace=3, everywhere=4), 3, 4),
    ],
)
async def test_limits_hold_for_all_replicas_together(
    idle: tuple[Service, World],
    database: TestDatabase,
    rows: asyncpg.Connection[asyncpg.Record],
    limits: RunLimits,
    first: int,
    both: int,
) -> None:
    _, world = idle
    agent = await world.agent(max_concurrent_runs=50)
    for number in range(8):
        await world.wake(agent, f"one:{number}")
    several = [await executors.claimer(database, number, limits) for number in range(3)]
    await claim_all(several, 8)
    await claim_all(several, 8)
    assert await rows.fetchval("SELECT count(*) FROM runs WHERE occupied") == first

    other = World(world.client, world.folder)
    await other.put(prefix="XYZ")
    theirs = await other.agent()
    for number in range(2):
        await other.wake(await other.agent(f"more-{number}"), f"other:{number}")
    await other.wake(theirs, "other")
    for _ in range(3):
        await claim_all(several, 8)
    taken = await rows.fetchval("SELECT count(*) FROM runs WHERE occupied")
    assert taken == both


async def test_a_limit_over_all_workspaces_is_counted_by_one_claimer_at_a_time(
    idle: tuple[Service, World], database: TestDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, world = idle
    await world.wake(await world.agent(), "one")
    other = World(world.client, world.folder)
    await other.put(prefix="XYZ")
    await other.wake(await other.agent(), "other")
    first, second = [
        await executors.claimer(database, number, RunLimits(everywhere=1)) for number in range(2)
    ]
    reached, go, write = asyncio.Event(), asyncio.Event(), run_events.write

    async def pause_once(*arguments: Any) -> None:
        if not reached.is_set():
            reached.set()
            await go.wait()
        await write(*arguments)

    monkeypatch.setattr(run_events, "write", pause_once)
    claims = [asyncio.create_task(first(1))]
    await reached.wait()
    claims.append(asyncio.create_task(second(1)))
    await asyncio.wait(claims[1:], timeout=0.5)
    go.set()
    assert [len(taken) for taken in await asyncio.gather(*claims)] == [1, 0]


@pytest.mark.parametrize(
    ("change", "reason", "state"),
    [
        ("UPDATE agents SET max_daily_runs = 0", "daily_run_limit", "skipped"),
        ("UPDATE agents SET max_daily_cost_cents = 0", "daily_cost_limit", "skipped"),
        ("UPDATE issues SET deleted_at = clock()", "issue_deleted", "skipped"),
        (
            "UPDATE issues SET assignee_agent_id = NULL, assignee_user_id = 'max'",
            "issue_assignee_changed",
            "skipped",
        ),
    ],
)
async def test_what_has_changed_meanwhile_ends_the_run_with_its_reason(
    idle: tuple[Service, World],
    claimers: list[ClaimRuns],
    rows: asyncpg.Connection[asyncpg.Record],
    change: str,
    reason: str,
    state: str,
) -> None:
    _, world = idle
    made = await world.issue(await world.agent(), "manual:1")
    await rows.execute(change)

    assert await claimers[0](5) == []
    assert claimers[0].more
    wake = await rows.fetchrow("SELECT state, reason, message FROM wakeup_requests")
    assert wake is not None
    assert (wake["state"], wake["reason"]) == (state, reason)
    run = await rows.fetchrow("SELECT state, reason, message, started_at FROM runs")
    assert run is not None
    assert (run["state"], run["reason"], run["started_at"]) == ("cancelled", reason, None)
    assert run["message"] == wake["message"] != ""
    # Nothing else is made of it.
    assert await rows.fetchval("SELECT count(*) FROM runs") == 1
    assert made.issue.execution_run_id == ""
    assert await rows.fetchval("SELECT execution_run_id FROM issues") is None


async def test_an_agents_day_ends_in_the_middle_of_a_batch(
    idle: tuple[Service, World],
    claimers: list[ClaimRuns],
    rows: asyncpg.Connection[asyncpg.Record],
) -> None:
    _, world = idle
    agent = await world.agent(max_concurrent_runs=10)
    for number in range(4):
        await world.wake(agent, f"webhook:{number}")
    await rows.execute("UPDATE agents SET max_daily_runs = 3")

    assert len(await claimers[0](10)) == 3
    states = await rows.fetch("SELECT state, reason FROM wakeup_requests WHERE state <> 'claimed'")
    assert [tuple(row) for row in states] == [("skipped", "daily_run_limit")]


async def test_an_agent_paused_after_the_claim_never_starts(
    idle: tuple[Service, World], claimers: list[ClaimRuns], database: TestDatabase
) -> None:
    _, world = idle
    agent = await world.agent()
    result = await world.wake(agent, "webhook:1")
    (loaded,) = await claimers[0](1)
    assert loaded.run.lease_token is not None
    await world.agents.PauseAgent(agent_pb2.PauseAgentRequest(agent_id=agent.agent_id))

    run = await world.run(str(loaded.run.run_id))
    assert (run.state, run.occupied) == (run_pb2.RUN_STATE_CANCELLED, True)
    signs = AgentSigns(await database.open("heartbeat"))
    with pytest.raises(LeaseLost):
        # Without its identity on record no process may start the agent.
        await signs.process(Lease(loaded.run.run_id, loaded.run.lease_token), ProcessIdentity(1, 1))
    await signs.close()
    assert (await world.wakeup(result.wakeup_id)).state == wakeup_pb2.WAKEUP_STATE_CLAIMED


async def test_only_the_assignees_run_holds_the_issue_and_only_from_its_claim_on(
    idle: tuple[Service, World],
    claimers: list[ClaimRuns],
    rows: asyncpg.Connection[asyncpg.Record],
) -> None:
    _, world = idle
    made = await world.issue(await world.agent(), "manual:1")
    assert (await world.get_issue(made.issue.issue_id)).execution_run_id == ""
    other = await world.agent("other")
    await world.wake(other, "webhook:1", issue_id=made.issue.issue_id)
    await rows.execute(
        "UPDATE runs SET ready_rank = 0 WHERE agent_id = $1", uuid.UUID(other.agent_id)
    )

    (theirs,) = await claimers[0](5)
    assert str(theirs.run.agent_id) == other.agent_id
    assert (await world.get_issue(made.issue.issue_id)).execution_run_id == ""
    assert await rows.fetchval("SELECT count(*) FROM runs WHERE occupied") == 1


async def test_a_claim_keeps_its_plan_when_statistics_are_older_than_the_queue(
    idle: tuple[Service, World], rows: asyncpg.Connection[asyncpg.Record], database: TestDatabase
) -> None:
    """Analysed while nothing waited and nothing was at work; then 20,000 runs of 20 agents."""
    _, world = idle
    for number in range(20):
        await world.agent(f"agent-{number}", max_concurrent_runs=50)
    admin = await database.admin()
    for table in ("runs", "wakeup_requests"):
        await admin.execute(f"ALTER TABLE heartbeat.{table} SET (autovacuum_enabled = false)")
    await add_runs(rows, "old", 100, "cancelled")
    await admin.execute("ANALYZE heartbeat.runs, heartbeat.wakeup_requests")
    await add_runs(rows, "new", 1000, "queued")
    await rows.execute(
        "UPDATE runs SET state = 'running', occupied = true, started_at = clock(),"
        " lease_token = gen_random_uuid(), lease_expires_at = clock()"
        " WHERE run_id IN (SELECT run_id FROM runs WHERE state = 'queued' LIMIT 200)"
    )

    read = await most_rows_read(rows, "claim_candidates", world.workspace_id, 200)
    assert read <= 200
    assert await most_rows_read(rows, "waiting_workspaces", 1000) <= 2
    ids = [row["run_id"] for row in await rows.fetch("SELECT run_id FROM runs WHERE occupied")]
    assert await most_rows_read(rows, "lock_ending_runs", ids) <= 200


async def add_runs(
    rows: asyncpg.Connection[asyncpg.Record], mark: str, each: int, state: str
) -> None:
    over = state == "cancelled"
    await rows.execute(
        """
        INSERT INTO wakeup_requests (wakeup_id, workspace_id, agent_id, source, wake_reason, title,
            state, reason, caller, run_id, attempts, finished_at)
        SELECT md5($1 || 'w' || a.agent_id || n)::uuid, a.workspace_id, a.agent_id, 'automation',
            'x', 'x', $3, 'x', 'x', md5($1 || 'r' || a.agent_id || n)::uuid, 1,
            CASE WHEN $4 THEN clock() END
        FROM agents a, generate_series(1, $2::integer) n
        """,
        mark,
        each,
        state,
        over,
    )
    await rows.execute(
        """
        INSERT INTO runs (run_id, workspace_id, agent_id, wakeup_id, state, attempt, ready_rank,
            priority, start_by, finished_at, follow_up_done_at)
        SELECT w.run_id, w.workspace_id, w.agent_id, w.wakeup_id, $1, 1, 2, 4,
            clock() + interval '1 d', w.finished_at, w.finished_at
        FROM wakeup_requests w WHERE w.state = $1
        """,
        state,
    )


async def most_rows_read(
    rows: asyncpg.Connection[asyncpg.Record], name: str, *arguments: object
) -> int:
    """Explain a query; give the most rows that it read from a table in one go, kept or not."""
    plan = await rows.fetch(f"EXPLAIN (ANALYZE) {Q[name].sql}", *arguments)
    text = "\n".join(row["QUERY PLAN"] for row in plan)
    assert "Rows Removed by Join Filter" not in text, text
    read: int | None = None
    most = 0
    for line in text.splitlines():
        if "actual" in line:
            scan = re.search(r" on (?:runs|wakeup_requests)\b.*?actual.*?rows=([\d.]+)", line)
            read = None if scan is None else int(float(scan[1]))
        removed = re.search(r"Rows Removed by Filter: (\d+)", line)
        if read is not None:
            most = max(most, read + (int(removed[1]) if removed is not None else 0))
    assert most, text
    return most
