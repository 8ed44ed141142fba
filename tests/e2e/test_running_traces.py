"""One trace from the trigger to the agent, as it arrived at a real OTLP receiver."""

from __future__ import annotations

import pytest
from opentelemetry.trace import SpanKind

from reveille.autopilot.v1 import run_pb2
from reveille_testkit.otlp import OtlpReceiver, ReceivedTrace
from reveille_testkit.waiting import eventually

from .harness import CREATE_ISSUE, RUN_ONLY, World

# About eight are meant; beyond ten somebody has begun to trace every step.
BUDGET = 10
TRACEPARENT = "00-5bd66ef5095369c7b0d1f8f4bd33716a-c532cb4098ac3dd2-01"


def whole(trace: ReceivedTrace) -> bool:
    """Tell whether everything of a finished run has come."""
    return bool(trace.connected and trace.named("invoke_agent") and trace.named("autopilot.run"))


async def traceparent_of(world: World, run: run_pb2.AutopilotRun) -> str:
    """Return what the agent found in its environment."""
    return str((await world.answer_of(run))["result"]["traceparent"])


def check_way_to_the_agent(trace: ReceivedTrace, traceparent: str) -> None:
    """Hold the tree against what the agent was told."""
    (invocation,) = trace.named("invoke_agent", "heartbeat")
    assert traceparent == f"00-{trace.trace_id}-{invocation.span_id}-01", trace.render()
    way = [span.name for span in trace.path(invocation)]
    assert way[0] == trace.roots[0].name
    assert way.index("autopilot.run") < way.index("run"), trace.render()
    assert len(trace.spans) <= BUDGET, trace.render()
    assert not any(span.failed for span in trace.spans), trace.render()
    for span in trace.spans:
        assert span.start_ns <= span.end_ns, trace.render()


@pytest.mark.parametrize("mode", [RUN_ONLY, CREATE_ISSUE], ids=["run_only", "create_issue"])
async def test_a_webhook_is_one_trace_down_to_the_agent(
    world: World, otlp: OtlpReceiver, mode: int
) -> None:
    workspace_id = await world.create_workspace()
    agent_id = await world.create_triage_agent(workspace_id)
    rule = await world.create_autopilot(
        workspace_id, agent_id, CREATE_ISSUE if mode == CREATE_ISSUE else RUN_ONLY
    )
    hook = await world.create_hook(rule)

    answer = await world.post_github(hook, headers={"traceparent": TRACEPARENT})
    run = await world.completed(answer.json["run_id"])

    trace = await otlp.wait_for(run.trace_id, whole)
    (root,) = trace.roots
    assert (root.name, root.service) == ("POST /hooks/{token}", "webhook-gateway")
    assert root.kind is SpanKind.SERVER
    assert root.attributes["http.response.status_code"] == 200
    assert trace.services == {"webhook-gateway", "autopilot", "heartbeat"}
    # What a sender says of itself is a link, never our parent.
    _, foreign_trace, foreign_span, _ = TRACEPARENT.split("-")
    assert (foreign_trace, foreign_span) in root.links
    assert trace.trace_id != foreign_trace
    check_way_to_the_agent(trace, await traceparent_of(world, run))


async def test_a_schedule_is_one_trace_down_to_the_agent(world: World, otlp: OtlpReceiver) -> None:
    workspace_id = await world.create_workspace()
    agent_id = await world.create_triage_agent(workspace_id)
    rule = await world.create_autopilot(workspace_id, agent_id, RUN_ONLY)
    trigger_id = await world.create_schedule(rule)
    runs = await eventually(
        lambda: world.runs_of(workspace_id, trigger_id), "the schedule fires", timeout=30
    )
    await world.delete_trigger(trigger_id)
    run = await world.completed(runs[-1].run_id)

    trace = await otlp.wait_for(run.trace_id, whole)
    (root,) = trace.roots
    assert (root.name, root.service) == ("schedule autopilot_schedule_dispatch", "scheduler")
    assert trace.services == {"scheduler", "autopilot", "heartbeat"}
    (attempt,) = trace.named("process autopilot_schedule_dispatch", "scheduler")
    assert attempt.parent_id == root.span_id
    assert attempt.kind is SpanKind.CONSUMER
    check_way_to_the_agent(trace, await traceparent_of(world, run))


async def test_a_click_is_one_trace_and_every_service_sends_figures(
    world: World, otlp: OtlpReceiver
) -> None:
    workspace_id = await world.create_workspace()
    agent_id = await world.create_triage_agent(workspace_id)
    rule = await world.create_autopilot(workspace_id, agent_id, RUN_ONLY)

    run = await world.completed((await world.run_now(rule)).run_id)

    trace = await otlp.wait_for(run.trace_id, whole)
    (root,) = trace.roots
    assert root.name == "reveille.autopilot.v1.AutopilotService/RunAutopilot"
    assert trace.services == {"autopilot", "heartbeat"}
    check_way_to_the_agent(trace, await traceparent_of(world, run))

    async def figures() -> set[str]:
        return {
            service
            for service in ("scheduler", "autopilot", "webhook-gateway", "heartbeat")
            if "rpc.server.call.duration" in otlp.metrics(service)
            or "db.client.operation.duration" in otlp.metrics(service)
        }

    await eventually(figures, "every service sends metrics", until=lambda seen: len(seen) == 4)
