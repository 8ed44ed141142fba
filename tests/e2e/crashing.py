"""Killing services at their crash points, and what must be true afterwards.

    crash = Crasher(world)
    await crash.arm("heartbeat", "heartbeat.settle.after_commit")
    ...  # something that crosses it
    await crash.met("heartbeat")
    await crash.recover("heartbeat")

The clock of a service that comes back is moved past the leases and pauses of its former life, so
that nobody waits for them. It never goes back.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import grpc

from reveille.autopilot.v1 import autopilot_pb2, run_pb2
from reveille.common.v1 import reason_pb2
from reveille.heartbeat.v1 import run_pb2 as agent_run_pb2
from reveille_cli.stack.process import RUNNING, ProcessState
from reveille_runtime.crash import POINT_VARIABLE
from reveille_testkit.waiting import eventually

from .harness import CREATE_ISSUE, Hook, World, marks_in
from .http import Answer

T = TypeVar("T")
W = TypeVar("W")

# Leases and looks are as short as they may be: what waits for them is the test.
QUICK = {
    "scheduler": {"REVEILLE_TICK_INTERVAL": "0.1", "REVEILLE_LEASE_RENEWAL": "0.3"},
    "webhook-gateway": {"REVEILLE_WORKER_INTERVAL": "0.2", "REVEILLE_LEASE_RENEWAL": "0.3"},
    "heartbeat": {
        "REVEILLE_CLAIM_INTERVAL": "0.2",
        "REVEILLE_LEASE_DURATION": "2",
        "REVEILLE_LEASE_INTERVAL": "0.3",
        "REVEILLE_SWEEP_INTERVAL": "0.3",
        "REVEILLE_RECOVERY_INTERVAL": "0.2",
        "REVEILLE_KILL_GRACE": "1",
    },
}
# How far a restart moves the clock: past the longest claim of the life before.
_PAST_CLAIMS = {"scheduler": 0.0, "autopilot": 45.0, "webhook-gateway": 10.0, "heartbeat": 10.0}
_AHEAD = "REVEILLE_TEST_CLOCK_OFFSET"


def crossings(cases: Sequence[tuple[str, W]]) -> list[tuple[str, W]]:
    """Choose what is walked: every way over every point, or outside `make crash` one way each.

    The ways take turns from point to point, so that each of them is gone.
    """
    if os.environ.get("REVEILLE_TEST_CRASH"):
        return list(cases)
    ways: dict[str, list[W]] = {}
    for point, way in cases:
        ways.setdefault(point, []).append(way)
    return [(point, found[at % len(found)]) for at, (point, found) in enumerate(ways.items())]


class Crasher:
    """Kills and restarts the services of one stack."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._ahead: defaultdict[str, float] = defaultdict(float)
        self._armed: dict[str, bool] = {}

    async def arm(self, service: str, point: str, *, at_once: bool = False) -> None:
        """Have a service die at a point; `at_once` when it already meets it while it starts."""
        await self._end(service)
        await self._start(service, {POINT_VARIABLE: point}, wait=not at_once)

    async def met(self, service: str) -> None:
        """Wait until a service has died at its point."""
        await asyncio.to_thread(self.world.stack.wait_crash, service)

    async def provoke(self, service: str, ask: Callable[[], Awaitable[T]]) -> None:
        """Ask until a service has died of it; one that has just started may have to find others."""
        dying = asyncio.ensure_future(self.met(service))
        while not dying.done():
            asking = asyncio.ensure_future(unless_it_died(ask()))
            await asyncio.wait({dying, asking}, return_when=asyncio.FIRST_COMPLETED)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        await dying

    async def recover(self, service: str, ahead: float | None = None) -> None:
        """Start a service again, as an operator would."""
        await self._end(service)
        self.pass_time(service, _PAST_CLAIMS[service] if ahead is None else ahead)
        await self._start(service, {})

    async def kill(self, service: str) -> None:
        """End a service as a power cut would."""
        await asyncio.to_thread(self.world.stack.kill, service)

    def pass_time(self, service: str, seconds: float) -> None:
        """Move a service's clock; it sees that when it starts again."""
        self._ahead[service] += seconds

    def run_ahead(self, service: str, other: str, seconds: float) -> bool:
        """Move a service's clock ahead of another's; False when it is that far already."""
        missing = self._ahead[other] + seconds - self._ahead[service]
        if missing > 0:
            self.pass_time(service, missing)
        return missing > 0

    def ahead(self, service: str) -> float:
        """Tell how many seconds a service's clock is ahead."""
        return self._ahead[service]

    async def later(self, service: str, seconds: float) -> None:
        """Have time pass for a service that lives: it stops in the orderly way, and comes back."""
        self.pass_time(service, seconds)
        settings = {_AHEAD: str(self._ahead[service])}
        await asyncio.to_thread(self.world.stack.restart, service, settings)

    async def mend(self) -> None:
        """Start what a failed test has left dead or doomed."""
        for service in _PAST_CLAIMS:
            doomed = self._armed.pop(service, False)
            if doomed or self.world.stack.status(service).state is not ProcessState.READY:
                await self.recover(service)

    async def _end(self, service: str) -> None:
        self._armed.pop(service, None)
        if self.world.stack.status(service).state in RUNNING:
            await self.kill(service)

    async def _start(self, service: str, environment: dict[str, str], *, wait: bool = True) -> None:
        self._armed[service] = POINT_VARIABLE in environment
        settings = {_AHEAD: str(self._ahead[service]), **environment}
        await asyncio.to_thread(self.world.stack.start, service, settings, wait=wait)


async def unless_it_died(call: Awaitable[T]) -> T | None:
    """Await an answer that may never come, because whoever should give it dies."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        if error.code() not in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}:
            raise
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    return None


@dataclass(frozen=True)
class Rule:
    """A rule with an agent that leaves a mark at every start."""

    world: World
    workspace_id: str
    rule_id: str
    mode: autopilot_pb2.ExecutionMode.ValueType
    marks: Path
    gate: Path | None = None

    @classmethod
    async def make(
        cls,
        world: World,
        mode: autopilot_pb2.ExecutionMode.ValueType,
        *,
        gated: bool = False,
        run_timeout: int = 3600,
    ) -> Rule:
        """Make one in a workspace of its own; a gated agent waits for `open_gate`."""
        workspace_id = await world.create_workspace()
        gate = None
        if gated:
            gate = world.folder / f"gate-{uuid4()}"
            os.mkfifo(gate)
        agent_id, marks = await world.create_marking_agent(
            workspace_id, gate=gate, run_timeout=run_timeout
        )
        rule_id = await world.create_autopilot(workspace_id, agent_id, mode)
        return cls(world, workspace_id, rule_id, mode, marks, gate)

    async def run_now(self, request_id: str = "") -> run_pb2.AutopilotRun:
        """Run it by hand, as often as it takes: who restarted is not reached by all at once."""
        click = request_id or str(uuid4())

        async def ask() -> run_pb2.AutopilotRun | None:
            return await unless_it_died(self.world.run_now(self.rule_id, request_id=click))

        run = await eventually(ask, "the rule can be run")
        assert run is not None
        return run

    async def open_gate(self) -> None:
        """Let the agent that waits at the gate finish."""
        assert self.gate is not None
        await asyncio.to_thread(self.gate.write_text, "go", encoding="utf-8")

    async def agent_at_work(self) -> None:
        """Wait until the agent has started."""

        async def look() -> list[str]:
            return marks_in(self.marks)

        await eventually(look, "the agent starts")

    async def the_run(self, trigger_id: str = "") -> run_pb2.AutopilotRun:
        """Wait for the rule's only run."""

        async def look() -> list[run_pb2.AutopilotRun]:
            return await self.world.runs_of(self.workspace_id, trigger_id)

        runs = await eventually(look, "a run appears", timeout=30)
        assert len(runs) == 1, runs
        return runs[0]

    async def first_run(self, trigger_id: str) -> run_pb2.AutopilotRun:
        """Wait for the first run of a trigger that may fire again."""

        async def look() -> list[run_pb2.AutopilotRun]:
            return await self.world.runs_of(self.workspace_id, trigger_id)

        return (await eventually(look, "a run appears", timeout=30))[-1]

    async def check(
        self, run: run_pb2.AutopilotRun, state: run_pb2.RunState.ValueType
    ) -> list[agent_run_pb2.HeartbeatRun]:
        """Hold a finished run against the promise, and give the attempts made for it."""
        world, key = self.world, run.occurrence_key
        told = await world.told_of(run.run_id)
        assert run.state == state, f"{run}\n{told}"
        assert await world.count("autopilot.runs", "occurrence_key = $1", key) == 1
        assert await world.count("heartbeat.wakeup_requests", "occurrence_key = $1", key) == 1
        issues = await world.count("heartbeat.issues", "occurrence_key = $1", key)
        assert issues == (1 if self.mode == CREATE_ISSUE else 0)
        # An issue is done, and with it the run, a moment before its wakeup is settled.
        settled = "type = 'wakeup.settled' AND occurrence_key = $1"
        settlements = await eventually(
            lambda: world.count("heartbeat.feed", settled, key), "the wakeup is settled"
        )
        assert settlements == 1
        attempts = await world.attempts(self.workspace_id, run.wakeup_id)
        # Each attempt starts its process at most once, and a second one says why it was made.
        marks = marks_in(self.marks)
        assert len(marks) == len(set(marks)), marks
        made = {each.run_id for each in attempts}
        starts = [mark for mark in marks if mark in made]
        for mark in marks:
            assert await world.count("heartbeat.runs", "run_id = $1::uuid", mark) == 1
        assert len(attempts) <= 2, attempts
        for earlier, later in itertools.pairwise(attempts):
            assert later.retry_reason == reason_pb2.REASON_PROCESS_LOST, attempts
            assert later.retry_of_run_id == earlier.run_id
            assert earlier.state == agent_run_pb2.RUN_STATE_FAILED
            assert earlier.reason == reason_pb2.REASON_PROCESS_LOST
        if state == run_pb2.RUN_STATE_COMPLETED:
            assert attempts[-1].state == agent_run_pb2.RUN_STATE_SUCCEEDED
            assert starts[-1] == attempts[-1].run_id
        return attempts

    async def completed_once(self, run_id: str) -> list[agent_run_pb2.HeartbeatRun]:
        """Wait for a run's outcome, and hold it against the promise."""
        run = await self.world.outcome(run_id)
        return await self.check(run, run_pb2.RUN_STATE_COMPLETED)


@dataclass
class Sender:
    """A sender that repeats what was not answered, with the same id, as senders do."""

    world: World
    hook: Hook
    delivery: str

    @classmethod
    async def of(cls, rule: Rule) -> Sender:
        """Make a hook for a rule, and who posts there."""
        return cls(rule.world, await rule.world.create_hook(rule.rule_id), str(uuid4()))

    async def post(self) -> Answer | None:
        """Post; None when the gateway died before it answered."""
        return await unless_it_died(self.world.post_github(self.hook, delivery=self.delivery))

    async def stored(self) -> int:
        """Count the deliveries that this came to."""
        return await self.world.count(
            "webhook.deliveries", "endpoint_id = $1::uuid", self.hook.trigger_id
        )

    async def check(self, run: run_pb2.AutopilotRun) -> None:
        """Hold what the gateway keeps against the promise, also after one more repetition."""
        again = await self.post()
        assert again is not None
        assert (again.status, again.json["status"]) == (200, "duplicate")
        assert again.json["delivery_id"] == run.delivery_id
        delivery = await self.world.finished_delivery(run.delivery_id)
        assert delivery.run_id == run.run_id
        assert await self.stored() == 1


@contextlib.asynccontextmanager
async def scheduled(rule: Rule) -> AsyncIterator[str]:
    """Have a rule fire every minute while the block lasts; its first minute has come already."""
    trigger_id = await rule.world.create_schedule(rule.rule_id)
    try:
        yield trigger_id
    finally:
        await rule.world.delete_trigger(trigger_id)
        await eventually(
            lambda: rule.world.count(
                "scheduler.scopes", "scope_id = $1 AND deleted_at IS NULL", trigger_id
            ),
            "the scheduler hears that it is gone",
            until=lambda count: count == 0,
        )
