"""Explain: whatever one asks about, the answer names what keeps it and what would change that."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID, uuid4

import asyncpg
import pytest
from tests.integration.heartbeat.conftest import Service, Stage
from tests.integration.heartbeat.kit import World

from reveille.explain.v1 import explain_service_pb2 as pb
from reveille.heartbeat.v1 import agent_pb2

Rows: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


@pytest.fixture
async def desk(stage: Stage, tmp_path: Path) -> tuple[Service, World]:
    """A workspace whose queue nobody serves."""
    service = await stage.start(
        engine_concurrency=0, sweep_interval=3600, runtime_presence=1e6, workspace_run_limit=3
    )
    world = World(service.client, tmp_path)
    await world.put()
    return service, world


async def told(world: World, about: str) -> dict[str, pb.Finding]:
    """Give the findings by subject and id; each rests on rows."""
    answer = await world.explain.Explain(pb.ExplainRequest(id=about))
    assert all(
        (each.rows and each.text.endswith((".", "s", "d"))) or each.text for each in answer.findings
    )
    return {f"{each.subject} {each.subject_id}": each for each in answer.findings}


async def test_a_run_that_waits_names_what_keeps_it(
    desk: tuple[Service, World], rows: Rows
) -> None:
    _, world = desk
    agent: agent_pb2.Agent = await world.agent()
    made = await world.issue(agent)
    other = await world.issue(agent)
    (run,) = await world.attempts(made.wakeup.wakeup_id)
    (second,) = await world.attempts(other.wakeup.wakeup_id)
    me, issue = UUID(run.run_id), made.issue.issue_id

    async def waits(run_id: str = run.run_id) -> pb.Finding:
        return (await told(world, run_id))[f"agent_run {run_id}"]

    found = await waits()
    assert (found.state, found.command) == ("queued", "")
    assert "waits for its turn, until" in found.text
    found = await waits(second.run_id)
    assert "1 of its agent's runs come first" in found.text

    await rows.execute(
        "UPDATE runs SET state = 'running', occupied = true, started_at = clock(),"
        " lease_token = gen_random_uuid(), lease_expires_at = clock() + interval '1 h',"
        " event_seq = 1 WHERE run_id = $1",
        me,
    )
    found = await waits(second.run_id)
    assert (found.state, "1 of 1 in use" in found.text) == ("waiting_slot", True)
    assert found.command == f"reveille agents update {agent.agent_id} --max-concurrent-runs 2"
    found = await waits()
    assert (found.state, found.command) == ("running", f"reveille agent-runs watch {run.run_id}")
    await rows.execute("UPDATE agents SET max_concurrent_runs = 5")
    behind = await world.wake(await world.agent("other"), issue_id=issue)
    about = (await told(world, behind.wakeup_id))[f"wakeup {behind.wakeup_id}"]
    assert about.state == "deferred"
    assert f"waits for attempt {run.run_id}, which holds its issue" in about.text
    assert about.command == f"reveille agent-runs watch {run.run_id}"
    about = (await told(world, issue))[f"issue {issue}"]
    assert f"held by attempt {run.run_id}" in about.text

    await rows.execute(
        "INSERT INTO issue_relations (issue_id, blocker_issue_id) VALUES ($1, $2)",
        UUID(other.issue.issue_id),
        UUID(issue),
    )
    found = await waits(second.run_id)
    assert (found.state, found.command) == ("blocked", "reveille issues move ABC-1 done")
    assert issue in found.related
    about = (await told(world, other.issue.issue_id))[f"issue {other.issue.issue_id}"]
    assert "it waits for ABC-1 (" in about.text
    await rows.execute(
        "INSERT INTO issue_tree_holds (hold_id, workspace_id, root_issue_id, mode, reason,"
        " created_by) VALUES ($1, $2, $3, 'pause', 'an audit', 'olga')",
        uuid4(),
        world.workspace_id,
        UUID(other.issue.issue_id),
    )
    found = await waits(second.run_id)
    assert (found.state, found.command) == ("held", "reveille issues unhold ABC-2")
    about = (await told(world, other.issue.issue_id))[f"issue {other.issue.issue_id}"]
    assert "ABC-2 and all below it are held (an audit)" in about.text
    await rows.execute("UPDATE runtimes SET presence_expires_at = clock() - interval '1 s'")
    assert (await waits(second.run_id)).state == "waiting_runtime"
    await rows.execute(
        "UPDATE runs SET state = 'scheduled_retry', scheduled_retry_at = clock() + interval '1 h'"
        " WHERE run_id = $1",
        UUID(second.run_id),
    )
    found = await waits(second.run_id)
    assert (found.state, found.command) == (
        "waiting_retry",
        f"reveille agent-runs retry {second.run_id}",
    )


async def test_a_refused_wake_names_the_command_that_would_have_let_it_run(
    desk: tuple[Service, World], rows: Rows
) -> None:
    _, world = desk
    agent = await world.agent()
    a = agent.agent_id
    made = await world.issue(agent)
    issue = made.issue.issue_id

    async def refused(**more: Any) -> pb.Finding:
        result = await world.wake(agent, **more)
        return (await told(world, result.wakeup_id))[f"wakeup {result.wakeup_id}"]

    await rows.execute("UPDATE agents SET state = 'paused', paused_at = clock()")
    found = await refused()
    assert (found.state, found.reason) == ("skipped", "agent_not_invokable")
    assert found.command == f"reveille agents resume {a}"
    about = (await told(world, a))[f"agent {a}"]
    assert (about.state, about.command) == ("paused", f"reveille agents resume {a}")

    await rows.execute(
        "UPDATE agents SET state = 'active', paused_at = NULL, wake_on_demand = false"
    )
    found = await refused()
    assert found.command == f"reveille agents update {a} --wake-on-demand true"

    await rows.execute("UPDATE agents SET wake_on_demand = true, max_daily_runs = 0")
    found = await refused(task_key="t")
    assert found.reason == "daily_run_limit"
    assert found.command == f"reveille agents update {a} --max-daily-runs none"
    about = (await told(world, a))[f"agent {a}"]
    assert (about.state, about.reason) == ("daily_limit", "daily_run_limit")

    await rows.execute("UPDATE agents SET max_daily_runs = NULL")
    await rows.execute("UPDATE issues SET status = 'cancelled'")
    found = await refused(issue_id=issue)
    assert (found.reason, found.command) == ("issue_closed", f"reveille issues move {issue} todo")


async def test_suppression_is_told_of_what_waits_and_of_what_was_refused(
    desk: tuple[Service, World], stage: Stage
) -> None:
    _, world = desk
    woken = await world.wake(await world.agent())
    (run,) = await world.attempts(woken.wakeup_id)
    quiet = await stage.start(engine_concurrency=0, sweep_interval=3600, scheduling_suppressed=True)
    there = World(quiet.client, stage.folder, world.workspace_id)
    found = (await told(there, run.run_id))[f"agent_run {run.run_id}"]
    assert found.state == "suppressed"
    assert "REVEILLE_SCHEDULING_SUPPRESSED" in found.text


async def test_however_much_has_joined_a_wake_the_newest_of_it_are_told(
    desk: tuple[Service, World],
) -> None:
    _, world = desk
    agent = await world.agent()
    first = await world.wake(agent)
    joined = [each.wakeup_id for each in await world.enqueue(*[world.wish(agent)] * 30)]

    found = await told(world, first.wakeup_id)
    about = found.pop(f"wakeup {first.wakeup_id}")
    assert "carries 30 more that joined it" in about.text
    wakeups = [key.removeprefix("wakeup ") for key in found if key.startswith("wakeup ")]
    assert sorted(wakeups) == sorted(joined)[-20:]


async def test_however_much_an_adapter_has_told_the_last_of_it_can_be_asked_for(
    desk: tuple[Service, World], rows: Rows
) -> None:
    _, world = desk
    woken = await world.wake(await world.agent())
    (run,) = await world.attempts(woken.wakeup_id)
    # Twice of what fits into an answer.
    await rows.execute(
        "INSERT INTO run_events (run_id, seq, type, message)"
        " SELECT $1, n, 'adapter.tool_call', repeat('m', 16384) FROM generate_series(1, 500) n",
        UUID(run.run_id),
    )
    answer = await world.explain.Explain(pb.ExplainRequest(id=run.run_id))

    places = [
        row.id for each in answer.findings for row in each.rows if each.state == "adapter.tool_call"
    ]
    assert places == [f"{run.run_id}/{seq}" for seq in range(500, 400, -1)]
