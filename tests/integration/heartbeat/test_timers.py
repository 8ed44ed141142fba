"""Timers: each agent by its own clock, once per slot, and none of them in the way of the others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg
import pytest
from google.protobuf.duration_pb2 import Duration
from tests.integration.heartbeat.conftest import Service, Stage
from tests.integration.heartbeat.kit import World, refused

from reveille.common.v1 import reason_pb2
from reveille.heartbeat.v1 import agent_pb2, wakeup_pb2
from reveille.scheduler.v1 import job_handler_service_pb2 as handler_pb
from reveille.scheduler.v1 import job_pb2
from reveille.scheduler.v1 import scheduler_service_pb2 as scheduler_pb
from reveille.scheduler.v1.job_handler_service_pb2_grpc import JobHandlerServiceStub
from reveille.scheduler.v1.scheduler_service_pb2_grpc import (
    SchedulerServiceServicer,
    add_SchedulerServiceServicer_to_server,
)
from reveille_heartbeat.domain.values import Wish
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.usecases.agents import fire_timers
from reveille_heartbeat.usecases.agents.fire_timers import FireTimers
from reveille_heartbeat.usecases.jobs import TIMERS
from reveille_heartbeat.usecases.wakeups.deciding import Decider
from reveille_heartbeat.usecases.wakeups.enqueue_wakeups import EnqueueWakeups
from reveille_heartbeat.usecases.wakeups.enqueuing import Enqueuing
from reveille_heartbeat.usecases.wakeups.known_wishes import Enqueued
from reveille_jobs.own_job import SCOPE_ID, SCOPE_KIND
from reveille_runtime.db import Database
from reveille_runtime.errors import PermissionDenied, Unavailable
from reveille_runtime.hints import Notifier
from reveille_runtime.ids import new_id
from reveille_runtime.telemetry import Telemetry
from reveille_runtime.validation import NIL
from reveille_testkit.rpc import Keyring, RpcRig, serving
from reveille_testkit.waiting import eventually

Rows: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
MINUTE = 60


@pytest.fixture
async def quiet(stage: Stage) -> tuple[Service, World]:
    """A workspace whose queue nobody serves."""
    service = await stage.start(engine_concurrency=0, sweep_interval=3600, runtime_presence=1e6)
    world = World(service.client, stage.folder)
    await world.put()
    return service, world


async def timed(world: World, name: str, seconds: int = MINUTE, **policy: Any) -> agent_pb2.Agent:
    given: dict[str, Any] = {
        "timer_enabled": True,
        "timer_interval": Duration(seconds=seconds),
    } | policy
    return await world.agent(name, heartbeat=agent_pb2.HeartbeatPolicy(**given))


async def run_plans(world: World, *jobs: str) -> list[handler_pb.PlanResult]:
    """Hand plans over as the scheduler does."""
    token = world.client.keys.service("scheduler")
    stub: Any = JobHandlerServiceStub(world.client.channel(token))
    plans = [handler_pb.Plan(execution_id=f"{at}", job_name=job) for at, job in enumerate(jobs)]
    answer = await stub.RunPlans(handler_pb.RunPlansRequest(plans=plans))
    return list(answer.results)


async def tick(world: World) -> dict[str, int]:
    (result,) = await run_plans(world, TIMERS)
    assert result.outcome == handler_pb.PLAN_OUTCOME_SUCCESS, result
    facts: dict[str, int] = json.loads(result.result)
    return facts


async def wakes(world: World, agent: agent_pb2.Agent) -> list[wakeup_pb2.WakeupRecord]:
    answer = await world.wakeups.ListWakeups(
        wakeup_pb2.ListWakeupsRequest(workspace_id=str(world.workspace_id), agent_id=agent.agent_id)
    )
    return [each for each in answer.wakeups if each.source == wakeup_pb2.WAKEUP_SOURCE_TIMER]


def counted(**facts: int) -> dict[str, int]:
    return {"woken": 0, "skipped": 0, "failed": 0, "known": 0} | facts


async def test_a_timer_wakes_once_however_many_intervals_were_missed(
    quiet: tuple[Service, World], rows: Rows
) -> None:
    service, world = quiet
    agent = await timed(world, "ann")
    assert await tick(world) == counted()

    service.move_clock(5 * MINUTE + 1)
    assert await tick(world) == counted(woken=1)
    assert await tick(world) == counted()
    (wake,) = await wakes(world, agent)
    assert wake.wake_reason == "heartbeat_timer"
    (row,) = await rows.fetch("SELECT requester_kind, requester_id FROM wakeup_requests")
    assert tuple(row) == ("system", "heartbeat_timer")

    # A wake for another reason does not move the clock.
    service.move_clock(MINUTE - 10)
    await world.wake(agent, "manual:1")
    assert await tick(world) == counted()
    service.move_clock(11)
    facts = await tick(world)
    assert facts["woken"] + facts["skipped"] == 1
    assert len(await wakes(world, agent)) == 2


async def test_who_has_no_timer_or_rests_leaves_no_wake(quiet: tuple[Service, World]) -> None:
    service, world = quiet
    silent = [
        await timed(world, "off", timer_enabled=False),
        await timed(world, "never", 0),
        await timed(world, "paused"),
        await timed(world, "archived"),
    ]
    await world.agents.PauseAgent(agent_pb2.PauseAgentRequest(agent_id=silent[2].agent_id))
    await world.agents.ArchiveAgent(agent_pb2.ArchiveAgentRequest(agent_id=silent[3].agent_id))
    resting = World(service.client, world.folder)
    await resting.put(prefix="XYZ")
    silent.append(await timed(resting, "elsewhere"))
    await resting.put(prefix="XYZ", revision=2, status="paused")

    service.move_clock(10 * MINUTE)
    assert await tick(world) == counted()
    for agent in silent[:4]:
        assert await wakes(world, agent) == []
    assert await wakes(resting, silent[4]) == []
    await world.agents.ResumeAgent(agent_pb2.ResumeAgentRequest(agent_id=silent[2].agent_id))
    assert await tick(world) == counted(woken=1)


async def test_a_timer_that_finds_no_work_leaves_a_row_and_looks_again_an_interval_later(
    quiet: tuple[Service, World],
) -> None:
    service, world = quiet
    agent = await timed(world, "ann", skip_timer_without_work=True)
    service.move_clock(2 * MINUTE)
    assert await tick(world) == counted(skipped=1)
    assert await tick(world) == counted()
    (wake,) = await wakes(world, agent)
    assert wake.reason == reason_pb2.REASON_NO_ACTIONABLE_WORK
    service.move_clock(MINUTE)
    assert await tick(world) == counted(skipped=1)


class Asking:
    """Enqueues for real, and lets a test come in between."""

    def __init__(self, service: Service) -> None:
        assert service.app.database is not None
        self.database: Database = service.app.database
        telemetry = Telemetry.off()
        self._real = EnqueueWakeups(
            self.database,
            telemetry,
            Notifier(self.database),
            Enqueuing(Decider(telemetry, new_id)),
        )
        self.broken: set[UUID] = set()
        self.error: Exception = ValueError("this one cannot be")
        self.together: asyncio.Barrier | None = None

    async def __call__(self, wishes: Sequence[Wish]) -> list[Enqueued]:
        if self.together is not None:
            await self.together.wait()
        if self.broken & {each.agent_id for each in wishes}:
            raise self.error
        return await self._real(wishes)

    def fire(self) -> FireTimers:
        return FireTimers(self.database, self, new_id)


async def test_of_two_ticks_at_once_one_fires(quiet: tuple[Service, World]) -> None:
    service, world = quiet
    agents = [await timed(world, name) for name in ("ann", "bob")]
    service.move_clock(2 * MINUTE)
    asking = Asking(service)
    # Both have found the same agents due before either asks for anything.
    asking.together = asyncio.Barrier(2)
    facts = await asyncio.gather(asking.fire()(), asking.fire()())

    assert sum(each["woken"] for each in facts) == 2
    assert sum(each["known"] for each in facts) == 2
    for agent in agents:
        assert len(await wakes(world, agent)) == 1


async def test_an_agent_that_cannot_be_woken_holds_nobody_up(
    quiet: tuple[Service, World],
) -> None:
    service, world = quiet
    ann, bob, cid = [await timed(world, name) for name in ("ann", "bob", "cid")]
    service.move_clock(2 * MINUTE)
    asking = Asking(service)
    asking.broken = {UUID(bob.agent_id)}

    assert await asking.fire()() == counted(woken=2, failed=1)
    assert await wakes(world, bob) == []
    assert len(await wakes(world, ann)) == len(await wakes(world, cid)) == 1
    asking.broken = set()
    assert await asking.fire()() == counted(woken=1)
    assert len(await wakes(world, bob)) == 1

    # Want of room is nobody's fault: the tick is given back whole.
    service.move_clock(4 * MINUTE)
    asking.broken, asking.error = {UUID(ann.agent_id)}, Unavailable("OVERLOADED", "later")
    with pytest.raises(Unavailable):
        await asking.fire()()


class Died(Exception):
    """The process is gone."""


async def test_a_tick_that_dies_after_the_wake_makes_no_second_one(
    quiet: tuple[Service, World], monkeypatch: pytest.MonkeyPatch
) -> None:
    service, world = quiet
    agent = await timed(world, "ann")
    service.move_clock(2 * MINUTE)
    asking = Asking(service)

    def die(point: str) -> None:
        raise Died(point)

    with monkeypatch.context() as patched:
        patched.setattr(fire_timers, "crash_point", die)
        with pytest.raises(Died):
            await asking.fire()()
    assert await asking.fire()() == counted(known=1)
    assert await asking.fire()() == counted()
    assert len(await wakes(world, agent)) == 1


async def test_a_tick_goes_on_beyond_a_batch(
    quiet: tuple[Service, World], monkeypatch: pytest.MonkeyPatch
) -> None:
    service, world = quiet
    for number in range(5):
        await timed(world, f"agent-{number}")
    service.move_clock(2 * MINUTE)
    monkeypatch.setattr(fire_timers, "_BATCH", 2)

    assert await Asking(service).fire()() == counted(woken=5)


async def test_a_tick_reads_those_that_are_due_and_nobody_else(
    quiet: tuple[Service, World], rows: Rows
) -> None:
    _, world = quiet
    await timed(world, "due")
    await rows.execute(
        """
        INSERT INTO agents (agent_id, workspace_id, name, adapter, owner_user_id, invocation_rule,
            max_concurrent_runs, run_timeout, idle_timeout, timer_enabled, timer_interval)
        SELECT md5('a' || n)::uuid, $1, 'agent ' || n, 'echo', 'x', 'workspace', 1, '1 h', '1 h',
            true, '1 d'
        FROM generate_series(1, 5000) n
        """,
        world.workspace_id,
    )
    await rows.execute("UPDATE agents SET timer_interval = '1 us' WHERE name = 'due'")
    plan = await rows.fetch(f"EXPLAIN (ANALYZE) {Q['due_timers'].sql}", timedelta(0), NIL, 200)
    text = "\n".join(row["QUERY PLAN"] for row in plan)
    assert "agents_timer" in text, text
    assert "Rows Removed" not in text, text


async def test_plans_are_the_schedulers_and_each_has_its_own_outcome(
    quiet: tuple[Service, World],
) -> None:
    _, world = quiet
    first, second = await run_plans(world, "nothing", TIMERS)
    assert (first.outcome, first.error_code) == (handler_pb.PLAN_OUTCOME_FAILED, "unknown_job")
    assert (second.outcome, second.execution_id) == (handler_pb.PLAN_OUTCOME_SUCCESS, "1")
    keys = world.client.keys
    for token in (keys.service("autopilot"), keys.user("root", operator=True)):
        stub: Any = JobHandlerServiceStub(world.client.channel(token))
        call = stub.RunPlans(handler_pb.RunPlansRequest())
        assert isinstance(await refused(call), PermissionDenied)


class Scheduler(SchedulerServiceServicer):
    """A scheduler that is away at first, and then remembers what it is told."""

    def __init__(self) -> None:
        self.away = 2
        self.jobs: dict[str, job_pb2.Job] = {}
        self.scopes: dict[str, job_pb2.Scope] = {}

    async def RegisterJob(
        self, request: scheduler_pb.RegisterJobRequest, context: Any
    ) -> scheduler_pb.RegisterJobResponse:
        if self.away > 0:
            self.away -= 1
            raise Unavailable("NOT_SERVING", "not yet")
        self.jobs[request.job.name] = request.job
        return scheduler_pb.RegisterJobResponse(job=request.job)

    async def UpsertScopes(
        self, request: scheduler_pb.UpsertScopesRequest, context: Any
    ) -> scheduler_pb.UpsertScopesResponse:
        assert self.jobs.keys() >= {each.job_name for each in request.scopes}
        self.scopes |= {each.job_name: each for each in request.scopes}
        return scheduler_pb.UpsertScopesResponse(scopes=request.scopes)


async def test_the_scheduler_is_told_of_the_jobs_once_it_is_there_and_again(
    keys: Keyring, stage: Stage
) -> None:
    scheduler = Scheduler()  # type: ignore[abstract]  # only what is asked of it
    rig = RpcRig(keys)
    rig.server.add(add_SchedulerServiceServicer_to_server, scheduler)
    async with serving(rig):
        service = await stage.start(engine_concurrency=0, scheduler_target=rig.server.address)

        async def known() -> set[str]:
            return set(scheduler.scopes)

        assert TIMERS in await eventually(known, "the jobs are registered")
        scope = scheduler.scopes[TIMERS]
        assert (scope.kind, scope.id, scope.cadence.seconds) == (SCOPE_KIND, SCOPE_ID, 30)
        scheduler.jobs.clear()
        scheduler.scopes.clear()
        # As every five minutes: it may have been restored to a time before.
        await service.tick("jobs")
        assert TIMERS in scheduler.scopes
