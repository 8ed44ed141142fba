"""Claims keep to slots, to one run per issue and to the queue's order, however many claim."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from tests.integration.heartbeat.conftest import Service, Stage
from tests.integration.heartbeat.kit import World

from reveille.common.v1 import reason_pb2
from reveille.heartbeat.v1 import agent_pb2, issue_pb2, run_pb2, wakeup_pb2
from reveille_heartbeat.adapters.process.identity import this_executor
from reveille_heartbeat.domain.outcome import Outcome
from reveille_heartbeat.domain.states import RunState
from reveille_heartbeat.domain.values import Run
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.usecases.agent_statuses import AgentStatuses
from reveille_heartbeat.usecases.claim_runs import ClaimRuns
from reveille_heartbeat.usecases.consequences import Consequences
from reveille_heartbeat.usecases.deciding import Decider
from reveille_heartbeat.usecases.enqueuing import Enqueuing
from reveille_heartbeat.usecases.finishing import Finisher
from reveille_heartbeat.usecases.promote_deferred import Promotion
from reveille_heartbeat.usecases.run_spans import RunSpans
from reveille_runtime.hints import Notifier
from reveille_runtime.ids import new_id, new_token
from reveille_runtime.lease import Lease, LeaseLost
from reveille_runtime.telemetry import Telemetry
from reveille_testkit.database import TestDatabase

LEASE = timedelta(seconds=30)


@pytest.fixture
async def idle(stage: Stage) -> tuple[Service, World]:
    """A workspace whose queue nobody serves but the test."""
    service = await stage.start(
        engine_concurrency=0, recovery_interval=3600, sweep_interval=3600, lease_interval=0.5
    )
    world = World(service.client, stage.folder)
    await world.put()
    return service, world


@pytest.fixture
async def claimers(database: TestDatabase) -> list[ClaimRuns]:
    """Several executors, as they would be in several processes."""
    made = []
    for number in range(4):
        db = await database.open("heartbeat", pool_max=2)
        executor = this_executor(f"spool-{number}")
        promotion = Promotion(Decider(Telemetry.off(), new_id))
        notifier = Notifier(db, enabled=False)
        made.append(ClaimRuns(db, executor, LEASE, notifier, promotion, new_token))
    return made


async def finisher_of(database: TestDatabase) -> Finisher:
    """Write ends as an executor does."""
    db = await database.open("heartbeat")
    decider = Decider(Telemetry.off(), new_id)
    spans = RunSpans(Telemetry.off())
    promotion = Promotion(decider)
    consequences = Consequences(Enqueuing(decider, suppressed=False), promotion, new_id)
    notifier = Notifier(db, enabled=False)
    statuses = AgentStatuses(db, notifier)
    return Finisher(db, notifier, spans, decider, promotion, consequences, statuses, lambda: 0.5)


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
    database: TestDatabase,
    rows: asyncpg.Connection[asyncpg.Record],
) -> None:
    _, world = idle
    result = await world.wake(await world.agent(), "webhook:1")
    (loaded,) = await claimers[0](1)
    run = loaded.run
    assert run.lease_token is not None
    lease = Lease(run.run_id, run.lease_token)
    finisher = await finisher_of(database)
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
