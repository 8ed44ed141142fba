"""Heartbeat killed at every durable boundary: one outcome; the agent ran once, or was retried."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from reveille.autopilot.v1 import autopilot_service_pb2 as autopilot
from reveille.autopilot.v1 import run_pb2
from reveille.common.v1 import reason_pb2
from reveille.heartbeat.v1 import run_pb2 as agent_run_pb2
from reveille_heartbeat import crash_points as points
from reveille_testkit.otlp import OtlpReceiver, ReceivedTrace
from reveille_testkit.waiting import eventually

from .crashing import Crasher, Rule, Sender, crossings, unless_it_died
from .harness import CREATE_ISSUE, RUN_ONLY, marks_in

HEARTBEAT = "heartbeat"
MODES = {"run_only": RUN_ONLY, "create_issue": CREATE_ISSUE}
# Which ways cross a point; what is not named here is crossed by a webhook in both modes.
WAYS = {
    points.ENQUEUE_BEFORE_COMMIT: ["run_only"],
    points.ENQUEUE_AFTER_COMMIT: ["run_only"],
    points.CREATE_ISSUE_BEFORE_COMMIT: ["create_issue"],
    points.CREATE_ISSUE_AFTER_COMMIT: ["create_issue"],
    points.CHECKOUT_AFTER_COMMIT: ["create_issue"],
    points.CANCEL_AFTER_COMMIT: ["cancellation"],
    points.DEADLINE_AFTER_COMMIT: ["deadline"],
    points.TAKE_OVER_AFTER_COMMIT: ["take_over"],
    # The mode makes no difference to a process.
    points.PAYLOAD_WRITTEN: ["run_only"],
    points.SPAWN_BEFORE_IDENTITY: ["create_issue"],
    points.SPAWN_AFTER_IDENTITY: ["run_only"],
    points.SPAWN_AFTER_GO: ["create_issue"],
    points.EXECUTE_ENDED: ["run_only"],
}
# Where the process may have been lost with its executor; anywhere else it must not run twice.
MAY_RETRY = {
    points.CLAIM_AFTER_COMMIT,
    points.CHECKOUT_AFTER_COMMIT,
    points.PAYLOAD_WRITTEN,
    points.SPAWN_BEFORE_IDENTITY,
    points.SPAWN_AFTER_IDENTITY,
    points.SPAWN_AFTER_GO,
    points.CHECKOUT_AFTER_COMMIT,
}
# No trigger of a rule crosses these: what people do to agents and issues, and what heartbeat does
# by itself. Dying there is tested in tests/integration/heartbeat.
OFF_THE_WAY = {
    points.ISSUE_STOPPED_AFTER_COMMIT,
    points.AGENT_STOPPED_AFTER_COMMIT,
    points.RETENTION_AFTER_STRETCH,
    points.TIMERS_AFTER_ENQUEUE,
    points.RETRY_AFTER_COMMIT,
}
CASES = crossings(
    [
        (point, way)
        for point in points.CRASH_POINTS
        if point not in OFF_THE_WAY
        for way in WAYS.get(point, [*MODES])
    ]
)


@pytest.mark.parametrize(("point", "way"), CASES, ids=[f"{point}-{way}" for point, way in CASES])
async def test_a_death_of_heartbeat_loses_and_doubles_nothing(
    crash: Crasher, point: str, way: str
) -> None:
    others = {"cancellation": a_cancellation, "deadline": a_deadline, "take_over": a_take_over}
    if way in others:
        await others[way](crash, point)
        return
    rule = await Rule.make(crash.world, MODES[way])
    sender = await Sender.of(rule)

    await crash.arm(HEARTBEAT, point)
    answer = await sender.post()
    await crash.met(HEARTBEAT)
    await crash.recover(HEARTBEAT)

    assert answer is not None
    run = await rule.the_run(sender.hook.trigger_id)
    attempts = await rule.completed_once(run.run_id)
    await sender.check(run)
    assert len(attempts) == 1 or point in MAY_RETRY, attempts


async def a_cancellation(crash: Crasher, point: str) -> None:
    """Cancel a run whose agent is at work, while heartbeat dies of it."""
    rule = await Rule.make(crash.world, RUN_ONLY, gated=True)
    await crash.arm(HEARTBEAT, point)
    run = await rule.run_now()
    await rule.agent_at_work()

    await unless_it_died(
        crash.world.client.autopilots.CancelRun(autopilot.CancelRunRequest(run_id=run.run_id))
    )
    await crash.met(HEARTBEAT)
    await crash.recover(HEARTBEAT)

    run = await crash.world.outcome(run.run_id)
    (attempt,) = await rule.check(run, run_pb2.RUN_STATE_CANCELLED)
    assert attempt.state == agent_run_pb2.RUN_STATE_CANCELLED
    assert len(marks_in(rule.marks)) == 1


async def a_deadline(crash: Crasher, point: str) -> None:
    """Let an agent work longer than it may, while heartbeat dies of ending it."""
    rule = await Rule.make(crash.world, RUN_ONLY, gated=True, run_timeout=1800)
    run = await rule.run_now()
    await rule.agent_at_work()
    crash.pass_time(HEARTBEAT, 2000)
    await crash.arm(HEARTBEAT, point, at_once=True)
    await crash.met(HEARTBEAT)
    await crash.recover(HEARTBEAT)

    run = await crash.world.outcome(run.run_id)
    (attempt,) = await rule.check(run, run_pb2.RUN_STATE_FAILED)
    assert attempt.state == agent_run_pb2.RUN_STATE_TIMED_OUT
    assert attempt.reason == run.reason
    assert run.reason in {reason_pb2.REASON_RUN_TIMEOUT, reason_pb2.REASON_IDLE_TIMEOUT}
    assert len(marks_in(rule.marks)) == 1


async def a_take_over(crash: Crasher, point: str) -> None:
    """Let one life of heartbeat take over from another, and die of it."""
    rule = await Rule.make(crash.world, CREATE_ISSUE, gated=True)
    run = await rule.run_now()
    await rule.agent_at_work()
    await crash.arm(HEARTBEAT, point, at_once=True)
    await crash.met(HEARTBEAT)
    await crash.recover(HEARTBEAT)
    await rule.open_gate()

    (attempt,) = await rule.completed_once(run.run_id)
    assert attempt.exit_code == 0
    assert marks_in(rule.marks) == [attempt.run_id]


@pytest.mark.parametrize("ends", ["after the restart", "while heartbeat is away"])
async def test_an_agent_outlives_its_executor(
    crash: Crasher, otlp: OtlpReceiver, ends: str
) -> None:
    rule = await Rule.make(crash.world, RUN_ONLY, gated=True)
    run = await rule.run_now()
    await rule.agent_at_work()
    await told(otlp, run.trace_id)

    await crash.kill(HEARTBEAT)
    if ends == "after the restart":
        await crash.recover(HEARTBEAT, 0)
        await rule.open_gate()
    else:
        await rule.open_gate()
        await crash.recover(HEARTBEAT)

    (attempt,) = await rule.completed_once(run.run_id)
    assert attempt.exit_code == 0
    assert marks_in(rule.marks) == [attempt.run_id]
    trace = await otlp.wait_for(run.trace_id, is_whole)
    assert len(trace.named("invoke_agent")) == 1, trace.render()


async def told(otlp: OtlpReceiver, trace_id: str) -> None:
    """Wait until the wish to wake the agent was told: what is not told yet dies with heartbeat."""
    await otlp.wait_for(trace_id, lambda trace: trace.named("send heartbeat.wakeups"))


def is_whole(trace: ReceivedTrace) -> bool:
    """Tell whether a trace is one tree, from the caller down to the agent."""
    return bool(trace.connected and trace.named("invoke_agent") and trace.named("autopilot.run"))


async def test_an_agent_lost_with_its_executor_is_a_recorded_retry(
    crash: Crasher, otlp: OtlpReceiver
) -> None:
    rule = await Rule.make(crash.world, RUN_ONLY, gated=True)
    run = await rule.run_now()
    await rule.agent_at_work()

    async def process() -> int | None:
        found: int | None = await crash.world.database.fetchval(
            "SELECT process_pid FROM heartbeat.runs WHERE state = 'running' AND workspace_id = $1",
            rule.workspace_id,
        )
        return found

    pid = await eventually(process, "the process is known")
    assert pid is not None
    await told(otlp, run.trace_id)
    await crash.kill(HEARTBEAT)
    os.killpg(os.getpgid(pid), signal.SIGKILL)
    await crash.recover(HEARTBEAT)

    async def second_start() -> int:
        return len(marks_in(rule.marks))

    await eventually(second_start, "the agent starts again", until=lambda count: count == 2)
    await asyncio.wait_for(rule.open_gate(), 10)
    first, second = await rule.completed_once(run.run_id)
    assert first.reason == reason_pb2.REASON_PROCESS_LOST
    assert second.attempt == 2
    # The spans of the attempt that was lost are told by whoever found it lost.
    trace = await otlp.wait_for(
        run.trace_id, lambda trace: is_whole(trace) and len(trace.named("invoke_agent")) == 2
    )
    assert len(trace.named("run", "heartbeat")) == 2, trace.render()
