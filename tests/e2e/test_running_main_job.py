"""The main job: a webhook, a schedule and a person each wake a real agent, in both modes."""

from __future__ import annotations

import asyncio
import json

import pytest

from reveille.autopilot.v1 import autopilot_pb2, run_pb2
from reveille.heartbeat.v1 import agent_pb2, issue_pb2, wakeup_pb2
from reveille.heartbeat.v1 import run_pb2 as agent_run_pb2
from reveille.scheduler.v1 import execution_pb2
from reveille.scheduler.v1 import scheduler_service_pb2 as scheduler
from reveille.webhook.v1 import delivery_service_pb2 as deliveries
from reveille_testkit.waiting import eventually

from .harness import CREATE_ISSUE, RUN_ONLY, World
from .http import example_body

MODES = pytest.mark.parametrize("mode", [RUN_ONLY, CREATE_ISSUE], ids=["run_only", "create_issue"])


async def check_downstream(world: World, run: run_pb2.AutopilotRun, source: str) -> None:
    """Hold what a completed run made against what it says of itself."""
    workspace_id, key = run.workspace_id, run.occurrence_key

    async def look() -> wakeup_pb2.WakeupRecord:
        request = wakeup_pb2.GetWakeupRequest(wakeup_id=run.wakeup_id)
        return (await world.client.wakeups.GetWakeup(request)).wakeup

    # An issue is done a moment before the wakeup that did it is settled.
    wakeup = await eventually(
        look,
        "the wakeup is settled",
        until=lambda seen: seen.state == wakeup_pb2.WAKEUP_STATE_COMPLETED,
    )
    assert wakeup.occurrence_key == key
    assert wakeup.trace_id == run.trace_id
    assert wakeup.responsible_user_id == run.accountable_user_id

    (attempt,) = await world.attempts(workspace_id, run.wakeup_id)
    assert attempt.state == agent_run_pb2.RUN_STATE_SUCCEEDED
    assert attempt.exit_code == 0
    assert attempt.trace_id == run.trace_id
    assert not attempt.occupied
    assert attempt.summary.startswith("Triaged ")
    output = await world.output(attempt.run_id)
    if run.execution_mode == CREATE_ISSUE:
        assert "woken by assignment because of issue_assigned" in output
        issue = (
            await world.client.issues.GetIssue(issue_pb2.GetIssueRequest(issue_id=run.issue_id))
        ).issue
        assert issue.status == issue_pb2.ISSUE_STATUS_DONE
        assert issue.occurrence_key == key
        assert issue.title == run.title
        assert not issue.execution_run_id
    else:
        assert f"woken by {source} because of autopilot_run" in output
        assert not run.issue_id
    assert f"trace parent 00-{run.trace_id}-" in output

    assert await world.count("autopilot.runs", "occurrence_key = $1", key) == 1
    assert await world.count("heartbeat.wakeup_requests", "occurrence_key = $1", key) == 1
    issues = await world.count("heartbeat.issues", "occurrence_key = $1", key)
    assert issues == (1 if run.execution_mode == CREATE_ISSUE else 0)


@MODES
async def test_a_webhook_wakes_an_agent(
    world: World, mode: autopilot_pb2.ExecutionMode.ValueType
) -> None:
    workspace_id = await world.create_workspace()
    agent_id = await world.create_triage_agent(workspace_id)
    rule = await world.create_autopilot(workspace_id, agent_id, mode)
    hook = await world.create_hook(rule)

    answer = await world.post_github(hook, delivery="11112222-0000-4000-8000-000000000001")

    assert answer.status == 200
    assert answer.json["status"] == "accepted"
    run = await world.completed(answer.json["run_id"])
    delivery_id = answer.json["delivery_id"]
    assert run.source == run_pb2.RUN_SOURCE_WEBHOOK
    assert run.delivery_id == delivery_id
    assert run.occurrence_key == f"webhook:{delivery_id}"
    assert (run.autopilot_id, run.trigger_id) == (rule, hook.trigger_id)
    assert run.originator_user_id == ""
    assert run.accountable_user_id == "local"
    assert run.attribution_source == run_pb2.ATTRIBUTION_SOURCE_TRIGGER_OWNER
    assert run.rule_version_id
    subject = "lighthouse-crew/beacon#42"
    answered = await world.answer_of(run)
    assert subject in answered["summary"]
    assert run.trace_id in answered["result"]["traceparent"]
    if mode == RUN_ONLY:
        assert json.loads(run.result) == answered

    delivery = await world.finished_delivery(delivery_id)
    assert delivery.state == deliveries.DELIVERY_STATE_DISPATCHED
    assert delivery.signature_state == deliveries.SIGNATURE_STATE_VALID
    assert (delivery.event, delivery.action) == ("issues", "opened")
    assert delivery.dedupe_id == "11112222-0000-4000-8000-000000000001"
    assert delivery.run_id == run.run_id
    assert delivery.trace_id == run.trace_id
    body = b"".join(
        [
            each.chunk
            async for each in world.client.deliveries.GetDeliveryBody(
                deliveries.GetDeliveryBodyRequest(delivery_id=delivery_id),
                metadata=world.client.credentials,
            )
        ]
    )
    assert body == example_body()
    await check_downstream(world, run, "automation")


@MODES
async def test_a_schedule_wakes_an_agent(
    world: World, mode: autopilot_pb2.ExecutionMode.ValueType
) -> None:
    workspace_id = await world.create_workspace()
    agent_id = await world.create_triage_agent(workspace_id)
    rule = await world.create_autopilot(workspace_id, agent_id, mode)
    trigger_id = await world.create_schedule(rule)

    runs = await eventually(
        lambda: world.runs_of(workspace_id, trigger_id), "the schedule fires", timeout=30
    )
    await world.delete_trigger(trigger_id)

    run = await world.completed(runs[-1].run_id)
    assert run.source == run_pb2.RUN_SOURCE_SCHEDULE
    planned = run.planned_time.ToDatetime()
    assert (planned.second, planned.microsecond) == (0, 0)
    assert run.occurrence_key == f"schedule:{trigger_id}:{planned:%Y-%m-%dT%H:%M:%SZ}"
    assert run.originator_user_id == ""
    assert run.accountable_user_id == "local"
    assert run.attribution_source == run_pb2.ATTRIBUTION_SOURCE_TRIGGER_OWNER
    if mode == CREATE_ISSUE:
        assert run.title == f"Triage of {planned:%Y-%m-%d}"

    async def look() -> execution_pb2.Execution:
        answer = await world.client.scheduler.ListExecutions(
            scheduler.ListExecutionsRequest(scope_id=trigger_id)
        )
        return next(each for each in answer.executions if each.plan_time == run.planned_time)

    execution = await eventually(
        look,
        "the execution is settled",
        until=lambda seen: seen.state == execution_pb2.EXECUTION_STATE_SUCCESS,
    )
    assert execution.attempt == 1
    assert execution.trace_id == run.trace_id
    assert run.run_id in execution.result.decode()
    await check_downstream(world, run, "automation")


@MODES
async def test_a_person_wakes_an_agent(
    world: World, mode: autopilot_pb2.ExecutionMode.ValueType
) -> None:
    workspace_id = await world.create_workspace()
    agent_id = await world.create_triage_agent(workspace_id)
    rule = await world.create_autopilot(workspace_id, agent_id, mode)

    started = await asyncio.gather(*(world.run_now(rule, request_id="click") for _ in range(3)))

    assert len({run.run_id for run in started}) == 1
    run = await world.completed(started[0].run_id)
    assert run.source == run_pb2.RUN_SOURCE_MANUAL
    assert run.occurrence_key == f"manual:{rule}:user:local:click"
    assert run.originator_user_id == "local"
    assert run.accountable_user_id == "local"
    assert run.attribution_source == run_pb2.ATTRIBUTION_SOURCE_DIRECT_HUMAN
    await check_downstream(world, run, "on_demand")


async def test_a_failing_agent_fails_its_run_and_tells_why(world: World) -> None:
    workspace_id = await world.create_workspace()
    agent_id = await world.create_agent(
        workspace_id, ["sh", "-c", "echo it went wrong >&2; exit 7"]
    )
    rule = await world.create_autopilot(workspace_id, agent_id, RUN_ONLY)

    run = await world.outcome((await world.run_now(rule)).run_id)

    assert run.state == run_pb2.RUN_STATE_FAILED
    (attempt,) = await world.attempts(workspace_id, run.wakeup_id)
    assert attempt.exit_code == 7
    assert attempt.reason == run.reason
    log = await world.client.agent_runs.ReadRunLog(
        agent_run_pb2.ReadRunLogRequest(
            run_id=attempt.run_id, stream=agent_run_pb2.LOG_STREAM_STDERR
        )
    )
    assert log.chunk == b"it went wrong\n"


async def test_an_echo_agent_needs_no_process(world: World) -> None:
    workspace_id = await world.create_workspace()
    await world.create_triage_agent(workspace_id)  # so that heartbeat knows the workspace
    made = await world.client.agents.CreateAgent(
        agent_pb2.CreateAgentRequest(workspace_id=workspace_id, name="echo", adapter="echo")
    )
    rule = await world.create_autopilot(workspace_id, made.agent.agent_id, RUN_ONLY)

    run = await world.completed((await world.run_now(rule)).run_id)

    (attempt,) = await world.attempts(workspace_id, run.wakeup_id)
    assert attempt.summary == f"echo: {run.title}"
    assert (
        await world.count(
            "heartbeat.runs", "run_id = $1::uuid AND process_pid IS NULL", attempt.run_id
        )
        == 1
    )


async def test_the_scheduler_hands_heartbeat_its_timers(world: World) -> None:
    async def look() -> list[execution_pb2.Execution]:
        request = scheduler.ListExecutionsRequest(job_name="heartbeat_timers", page_size=1)
        return list((await world.client.scheduler.ListExecutions(request)).executions)

    # They come every half minute.
    (tick,) = await eventually(
        look,
        "a tick of the timers is done",
        until=lambda seen: seen and seen[0].state == execution_pb2.EXECUTION_STATE_SUCCESS,
        timeout=45,
    )
    assert json.loads(tick.result).keys() == {"woken", "skipped", "failed", "known"}
