"""The planning loop: fair between jobs, wide when there is much, bounded by its executor."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import grpc
import pytest
from tests.integration.scheduler.conftest import (
    JOB,
    Owner,
    Replica,
    break_rule,
    failed,
    start_at,
    succeeded,
    wish,
)

from reveille.scheduler.v1 import job_handler_service_pb2 as pb
from reveille_runtime.lifecycle import Loop
from reveille_scheduler.domain.job import CatchUp
from reveille_scheduler.domain.occurrence import Claim
from reveille_scheduler.domain.rule import Hook
from reveille_scheduler.domain.states import ExecutionState
from reveille_scheduler.usecases.backfill import BackfillScope
from reveille_scheduler.usecases.plan_due import PlanDue, PlannedBatch
from reveille_scheduler.usecases.plan_hooks import AskedBatch
from reveille_scheduler.workers.executor import Executor
from reveille_scheduler.workers.planner import Planner
from reveille_testkit.waiting import eventually

NOON = datetime(2030, 6, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


def planner(replica: Replica, capacity: int, batch: int, lanes: int = 2) -> Planner:
    replica.executor = Executor(replica.hand_over, capacity, grace=0.0)
    return Planner(
        replica.due_jobs,
        [PlanDue(replica.database, f"lane-{n}", replica.clock) for n in range(lanes)],
        replica.claim_retries,
        replica.plan_hooks,
        replica.executor,
        batch,
        replica.clock,
    )


async def idle(replica: Replica, capacity: int) -> None:
    async def free() -> int:
        return replica.executor.free

    await eventually(free, "all attempts have ended", until=lambda free: free == capacity)


async def test_never_more_is_claimed_than_can_be_executed(replica: Replica, owner: Owner) -> None:
    owner.may_answer.clear()
    # Enough jobs for every place: one alone is not given the last ones.
    names = ["tidy", "sweep", "dust", "mop"]
    for name in names:
        await replica.jobs.register(replace(JOB, name=name))
    await replica.scopes.put(
        [wish(f"scope-{n}", job_name=names[n % len(names)]) for n in range(30)]
    )
    await start_at(replica, NOON + SECOND)
    loop = planner(replica, capacity=7, batch=5)
    for _ in range(4):
        await loop.step()
    assert len(await replica.ledger()) == 7
    assert replica.executor.free == 0

    owner.may_answer.set()
    async with asyncio.timeout(20):
        while len(await replica.ledger()) < 30 or replica.executor.free < 7:
            await loop.step()
    assert sorted(plan.scope_id for plan in owner.plans) == sorted(f"scope-{n}" for n in range(30))


async def test_lanes_share_what_is_due(replica: Replica) -> None:
    await replica.scopes.put([wish(f"scope-{n}") for n in range(100)])
    await start_at(replica, NOON + SECOND)
    assert await planner(replica, capacity=1000, batch=10).step() == 0

    runners = {each.runner_id for each in await replica.ledger()}
    assert runners == {"lane-0", "lane-1"}
    await replica.executor.stop()


async def test_every_job_is_first_in_turn(replica: Replica, owner: Owner) -> None:
    """A job that could fill the whole capacity for ever leaves room for another."""
    owner.may_answer.clear()
    await replica.jobs.register(replace(JOB, name="greedy"))
    await replica.scopes.put(
        [wish(f"scope-{n}", job_name="greedy") for n in range(50)] + [wish("modest")]
    )
    await start_at(replica, NOON + SECOND)
    loop = planner(replica, capacity=10, batch=10)
    await loop.step()
    first = {each.job_name for each in await replica.ledger()}
    owner.may_answer.set()
    await idle(replica, 10)
    await loop.step()

    assert "tidy" in first | {each.job_name for each in await replica.ledger()}
    await replica.executor.stop()


async def test_a_job_that_hangs_does_not_keep_another_from_its_turn(
    replica: Replica, owner: Owner
) -> None:
    hanging = asyncio.Event()

    async def answer(request: pb.RunPlansRequest, _: Any) -> pb.RunPlansResponse:
        if any(plan.job_name == "greedy" for plan in request.plans):
            await hanging.wait()
        return pb.RunPlansResponse(results=[succeeded(plan) for plan in request.plans])

    owner.override = answer
    await replica.jobs.register(replace(JOB, name="greedy"))
    await replica.scopes.put(
        [wish(f"scope-{n}", job_name="greedy") for n in range(50)]
        + [wish("modest", cron="1 12 * * *")]
    )
    await start_at(replica, NOON + SECOND)
    loop = planner(replica, capacity=10, batch=10)
    for _ in range(10):
        pause = await loop.step()
    # It is not asked for while all its places are taken.
    assert pause is None
    assert [each.job_name for each in await replica.ledger()] == ["greedy"] * 5

    await start_at(replica, NOON + timedelta(minutes=1) + SECOND)
    await loop.step()

    async def modest() -> list[ExecutionState]:
        return [each.state for each in await replica.ledger() if each.job_name == "tidy"]

    await eventually(modest, "the other job", until=lambda it: it == [ExecutionState.SUCCESS])
    await replica.executor.stop()


async def test_retries_and_asked_scopes_leave_room_for_another_job(
    replica: Replica, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retries take a job's own places, and so does what its owner has yet to answer."""
    owner.answer = failed
    await replica.scopes.put([wish(f"scope-{n}") for n in range(20)])
    await start_at(replica, NOON + SECOND)
    await replica.run()
    owner.may_answer.clear()
    await replica.jobs.register(replace(JOB, name="asked"))
    await replica.scopes.put([wish(f"scope-{n}", job_name="asked", rule=Hook()) for n in range(20)])
    unanswered = asyncio.Event()

    async def ask(_: AskedBatch, begin: Callable[[Sequence[Claim]], None]) -> None:
        await unanswered.wait()

    monkeypatch.setattr(replica.plan_hooks, "ask", ask)
    await start_at(replica, NOON + timedelta(minutes=2))
    loop = planner(replica, capacity=16, batch=16)
    for _ in range(5):
        await loop.step()

    states = Counter(each.state for each in await replica.ledger())
    # The retries came first and have half, the asked scopes half of the rest; four are left.
    assert states[ExecutionState.RUNNING] == 8
    assert replica.executor.free == 4
    assert replica.executor.room("another") == 2
    await replica.executor.stop()
    assert replica.executor.free == 16


async def test_what_comes_of_an_unfinished_question_takes_the_places_kept_for_it(
    replica: Replica, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner hangs on one scope of five, and executes the others: no further place is lost."""
    monkeypatch.setattr("reveille_scheduler.usecases.plan_hooks.PATIENCE_SECONDS", 100.0)
    hanging = asyncio.Event()

    async def hang(request: pb.PlanScopesRequest, context: Any) -> None:
        about = {scope.id for scope in request.scopes}
        if about == {"bad"}:
            await hanging.wait()
        elif "bad" in about:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "no answer in time")

    async def begun() -> int:
        return len(owner.plans)

    owner.hook = hang
    owner.plan = planned_now
    owner.may_answer.clear()
    names = ["bad", *(f"scope-{n}" for n in range(4))]
    await replica.scopes.put([wish(name, rule=Hook()) for name in names])
    await start_at(replica, NOON + timedelta(minutes=2))
    await planner(replica, capacity=10, batch=10).step()
    await eventually(begun, "the others", until=lambda found: found == 4)
    assert replica.executor.free == 5
    assert replica.executor.room("another") == 2

    hanging.set()
    await eventually(begun, "the last", until=lambda found: found == 5)
    assert replica.executor.free == 5
    owner.may_answer.set()
    await idle(replica, 10)


async def test_a_scope_whose_planning_fails_stops_no_other(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    await replica.scopes.put([wish("bad", cron="0 12 1 * *"), wish("good")])
    await start_at(replica, NOON + SECOND)
    break_rule(monkeypatch, "0 12 1 * *")
    await replica.run()

    assert (await replica.one()).scope_id == "good"
    scopes = {each.id: each for each in await replica.scopes.page("tidy", None, 9)}
    assert scopes["bad"].next_plan_at is None
    assert scopes["bad"].plan_error == "OverflowError: date value out of range"


async def test_a_job_whose_planning_fails_stops_no_other(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    await replica.jobs.register(replace(JOB, name="broken"))
    await replica.scopes.put([wish("a", job_name="broken"), wish("b")])
    await start_at(replica, NOON + SECOND)
    loop = planner(replica, capacity=100, batch=5, lanes=1)
    (lane,) = loop._lanes
    tried: list[str] = []

    class Partly:
        async def __call__(self, job_name: str, limit: int) -> PlannedBatch:
            tried.append(job_name)
            if job_name == "broken":
                raise ZeroDivisionError
            return await lane(job_name, limit)

    monkeypatch.setattr(loop, "_lanes", (Partly(),))
    # Twice, so that each of the two was the first in turn.
    await loop.step()
    await replica.scopes.put([wish("c")])
    await loop.step()
    await idle(replica, 100)
    assert {each.scope_id for each in await replica.ledger()} == {"b", "c"}
    # It is left out for a while, then tried again.
    assert tried.count("broken") == 1
    replica.elapsed += 1
    await loop.step()
    assert tried.count("broken") == 2

    monkeypatch.setattr(loop, "_lanes", (lane,))
    replica.elapsed += 1
    await loop.step()
    await idle(replica, 100)
    assert {each.scope_id for each in await replica.ledger()} == {"a", "b", "c"}


async def test_what_one_lane_claimed_is_executed_although_another_failed(
    replica: Replica, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    await replica.scopes.put([wish(f"scope-{n}") for n in range(20)])
    await start_at(replica, NOON + SECOND)
    loop = planner(replica, capacity=100, batch=5)
    sound, broken = loop._lanes

    class Broken:
        async def __call__(self, job_name: str, limit: int) -> PlannedBatch:
            raise ConnectionResetError

    monkeypatch.setattr(loop, "_lanes", (sound, Broken()))
    assert broken is not sound
    with pytest.raises(ConnectionResetError):
        await loop.step()
    await idle(replica, 100)

    assert len(owner.plans) == 10


async def test_a_job_that_found_no_room_goes_on_as_soon_as_there_is_some(
    replica: Replica, owner: Owner
) -> None:
    """Nothing else wakes the loop: it would look again in an hour."""
    await replica.scopes.put([wish(f"scope-{n}") for n in range(9)])
    await start_at(replica, NOON + SECOND)
    step = planner(replica, capacity=4, batch=5).step
    loop = Loop("planner", step, 3600, hint=replica.executor)
    running = asyncio.ensure_future(loop.run())

    async def done() -> int:
        return sum(each.state is ExecutionState.SUCCESS for each in await replica.ledger())

    await eventually(done, "all are executed", until=lambda done: done == 9)
    await loop.stop()
    await running
    await replica.executor.stop()


@pytest.mark.parametrize("missed", ["a backfill", "every plan"])
async def test_what_waits_for_its_scopes_place_goes_on_as_soon_as_that_comes_free(
    replica: Replica, missed: str
) -> None:
    """One at a time, and the loop would look again in an hour by itself."""
    if missed == "every plan":
        catching_up = replace(JOB, catch_up=CatchUp.EVERY_PLAN, max_plans_per_tick=9)
        await replica.jobs.register(replace(catching_up, max_lateness=None))
    since = NOON if missed == "a backfill" else NOON - 4 * HOUR
    await replica.scopes.put([wish(cron="0 * * * *", since=since)])
    await start_at(replica, NOON + SECOND)
    if missed == "a backfill":
        async with replica.database.transaction() as tx:
            key = ("tidy", "folder", "nightly")
            await BackfillScope(timedelta(days=90))(tx, key, NOON - 3 * HOUR, NOON)
    loop = Loop("planner", planner(replica, 9, 9).step, 3600, hint=replica.executor)
    running = asyncio.ensure_future(loop.run())

    async def done() -> int:
        return sum(each.state is ExecutionState.SUCCESS for each in await replica.ledger())

    await eventually(done, "all are executed", until=lambda done: done == 4)
    await loop.stop()
    await running
    await replica.executor.stop()


async def test_a_place_that_is_no_use_to_the_job_that_lacks_one_wakes_nobody(
    replica: Replica,
) -> None:
    """A hanging job has all it may have, although a place of another comes free."""
    executor = replica.executor = Executor(replica.hand_over, capacity=4, grace=0.0)
    ends = {name: asyncio.Event() for name in ("hanging", "other")}

    async def work(name: str, _: Callable[[Sequence[Claim]], None]) -> None:
        await ends[name].wait()

    for name, places in (("hanging", 2), ("other", 1)):
        executor.run_aside(partial(work, name), name, name, places)
    assert executor.room("hanging") == 0
    waiting = asyncio.ensure_future(executor.wait(20))
    ends["other"].set()
    await idle(replica, 2)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()

    ends["hanging"].set()
    await waiting
    assert executor.room("hanging") == 2


@pytest.mark.parametrize("second", ["plans", "hooks"])
async def test_what_is_due_now_gets_a_place_beside_any_number_of_retries(
    replica: Replica, owner: Owner, second: str
) -> None:
    """As many retries as come free places wait all the time, as after a large backfill."""
    owner.answer = failed
    await replica.scopes.put([wish(f"scope-{n}") for n in range(9)])
    await start_at(replica, NOON + SECOND)
    await replica.run()
    owner.answer = succeeded
    owner.plans.clear()
    owner.plan = planned_now
    await start_at(replica, NOON + timedelta(minutes=2))
    live = wish("live", cron="1 12 * * *", rule=Hook() if second == "hooks" else None)
    await replica.scopes.put([live])
    loop = planner(replica, capacity=2, batch=5)
    for _ in range(3):
        await loop.step()
        await idle(replica, 2)

    assert len(owner.plans) <= 3
    assert "live" in {plan.scope_id for plan in owner.plans}


@pytest.mark.parametrize(("other", "capacity"), [("tidy", 2), ("greedy", 1)])
async def test_places_that_come_free_one_by_one_go_to_each_in_turn(
    replica: Replica, owner: Owner, other: str, capacity: int
) -> None:
    """As the loop steps: at once after retries were claimed, although there is no place by then."""
    owner.answer = failed
    await replica.jobs.register(replace(JOB, name="greedy"))
    await replica.scopes.put([wish(f"scope-{n}", job_name=other) for n in range(9)])
    await start_at(replica, NOON + SECOND)
    await replica.run()
    owner.answer = succeeded
    owner.plans.clear()
    await start_at(replica, NOON + timedelta(minutes=2))
    await replica.scopes.put([wish(f"live-{n}", cron="1 12 * * *") for n in range(2)])
    loop = planner(replica, capacity, batch=5)
    for _ in range(5):
        owner.may_answer.clear()
        while await loop.step() == 0:
            pass
        owner.may_answer.set()
        await idle(replica, capacity)

    assert len(owner.plans) == 5
    assert {"live-0", "live-1"} <= {plan.scope_id for plan in owner.plans}


def planned_now(scope: pb.HookScope) -> pb.ScopePlan:
    plan = pb.ScopePlan(kind=scope.kind, id=scope.id)
    plan.plan_times.add().FromDatetime(NOON + timedelta(minutes=1))
    return plan
