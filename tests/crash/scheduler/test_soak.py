"""Three replicas with clocks ten minutes apart, killed, suspended, and without their database.

Whatever happens, every occurrence has exactly one end, each effect is had once, and nothing that
was healthy is taken away because the database paused. The seed is printed; REVEILLE_TEST_SEED
plays it again.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import takewhile
from pathlib import Path

import pytest
import pytest_asyncio
from tests.crash.scheduler.stage import Stage, pass_time

from reveille_runtime.db import Database
from reveille_scheduler.domain.job import CatchUp, Job
from reveille_scheduler.domain.occurrence import Execution
from reveille_scheduler.domain.rule import Cadence, Once, timeline
from reveille_scheduler.domain.scope import ScopeWish
from reveille_scheduler.domain.states import ExecutionState
from reveille_scheduler.store import ledger
from reveille_scheduler.store.ledger import Filter
from reveille_scheduler.usecases.jobs import Jobs
from reveille_scheduler.usecases.scopes import Scopes
from reveille_testkit.waiting import eventually

SECOND = timedelta(seconds=1)
CHAOS_SECONDS = 60.0
OUTAGE_SECONDS = 120.0
EVERY = Cadence(2 * SECOND)
SCOPES = 15
# A lease that a suspended process outlives; attempts enough for a minute of kills.
HASTY = Job(
    name="every",
    handler="owner",
    catch_up_window=timedelta(hours=1),
    max_lateness=None,
    run_timeout=2 * SECOND,
    stale_timeout=3 * SECOND,
    heartbeat_interval=SECOND,
    max_attempts=50,
    retry_backoff=(SECOND,),
    retry_deadline=timedelta(hours=1),
    catch_up=CatchUp.EVERY_PLAN,
    max_plans_per_tick=10,
    plans_per_scope=3,
)
LATEST = replace(HASTY, name="latest", catch_up=CatchUp.LATEST_ONLY, plans_per_scope=1)
# A lease that outlives the outage: two thirds of it are more than two minutes.
PATIENT = replace(
    HASTY,
    name="patient",
    run_timeout=timedelta(minutes=4),
    stale_timeout=timedelta(minutes=5),
    plans_per_scope=1,
)


@pytest.fixture
def chance() -> random.Random:
    seed = int(os.environ.get("REVEILLE_TEST_SEED", str(time.time_ns() % 1_000_000)))
    sys.stdout.write(f"REVEILLE_TEST_SEED={seed}\n")
    return random.Random(seed)


@pytest_asyncio.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        made = Stage(tmp_path, stack)
        await made.open([0.0, 600.0, -600.0])
        yield made


async def everything(database: Database, job: str) -> list[Execution]:
    found: list[Execution] = []
    after = None
    async with database.session() as tx:
        while page := await ledger.page(tx, Filter(job), after, 1000):
            found += page
            after = (page[-1].plan_time, page[-1].id)
    return found


async def torment(stage: Stage, chance: random.Random) -> None:
    """A minute of kill -9, suspensions past the lease, and one restart of the database."""
    ends = time.monotonic() + CHAOS_SECONDS
    restart_at = time.monotonic() + chance.uniform(20, 40)
    while time.monotonic() < ends:
        replica = chance.choice(stage.replicas)
        if time.monotonic() >= restart_at:
            restart_at = float("inf")
            await asyncio.to_thread(stage.server.stop)
            await asyncio.to_thread(stage.server.start)
        elif chance.random() < 0.5:
            await replica.end(signal.SIGKILL)
            await pass_time(chance.uniform(0.0, 1.0))
            replica.start()
        else:
            replica.send(signal.SIGSTOP)
            await pass_time(chance.uniform(3.5, 6.0))
            replica.send(signal.SIGCONT)
        await pass_time(chance.uniform(0.2, 2.0))


async def outage(stage: Stage) -> None:
    """Two minutes without a database."""
    await asyncio.to_thread(stage.server.stop)
    await pass_time(OUTAGE_SECONDS)
    await asyncio.to_thread(stage.server.start)


def settled(rows: list[Execution], until: datetime) -> bool:
    """Tell whether planning passed `until` for every scope and nothing before it is open."""
    newest: dict[str, datetime] = {}
    for each in rows:
        newest[each.scope_id] = max(newest.get(each.scope_id, each.plan_time), each.plan_time)
    open_ = [
        each
        for each in rows
        if each.plan_time <= until
        and (each.state is ExecutionState.RUNNING or each.next_retry_at is not None)
    ]
    return len(newest) == SCOPES and min(newest.values()) >= until and not open_


@pytest.mark.timeout(600)
async def test_every_occurrence_ends_once_whatever_happens(
    stage: Stage, chance: random.Random
) -> None:
    database = await stage.database.open("scheduler")
    jobs, scopes = Jobs(database, {"owner"}, SECOND), Scopes(database)
    for job in (HASTY, LATEST, PATIENT):
        await jobs.register(job)
    began = await database.now()
    await scopes.put(
        [
            ScopeWish(job, "soak", f"{job}-{number}", EVERY, True, 1, began)
            for job in ("every", "latest")
            for number in range(SCOPES)
        ]
    )
    stage.owner.lingers = lambda: (chance.uniform(0, 0.4), chance.uniform(0, 0.4))
    await torment(stage, chance)

    # A slow handler is at work while the database is away; it answers afterwards.
    answer, asked = asyncio.Event(), asyncio.Event()

    def wait_for_the_outage(plan: object) -> asyncio.Event | None:
        if getattr(plan, "job_name", "") != "patient":
            return None
        asked.set()
        return answer

    stage.owner.waits = wait_for_the_outage
    at = (await database.now()).replace(microsecond=0) + 2 * SECOND
    await scopes.put([ScopeWish("patient", "soak", "slow", Once(at), True, 1, began)])
    await asyncio.wait_for(asked.wait(), 30)
    await outage(stage)
    answer.set()

    until = await database.now()
    for name in ("every", "latest"):
        await eventually(
            partial(everything, database, name),
            f"all of {name} ended",
            until=lambda rows: settled(rows, until),
            timeout=120,
        )
    (slow,) = await eventually(
        lambda: everything(database, "patient"),
        "the slow one ended",
        until=lambda rows: rows[0].state is not ExecutionState.RUNNING,
        timeout=30,
    )
    for replica in stage.replicas:
        await replica.end(signal.SIGTERM)

    # Nothing healthy was stolen: one attempt, asked once.
    assert (slow.state, slow.attempt) == (ExecutionState.SUCCESS, 1)
    assert stage.owner.asked["patient", "slow", at] == 1
    every = [each for each in await everything(database, "every") if each.plan_time <= until]
    line = timeline(EVERY)
    slots = set(takewhile(lambda instant: instant <= until, line.firings(began)))
    for number in range(SCOPES):
        mine = [each for each in every if each.scope_id == f"every-{number}"]
        assert {each.plan_time for each in mine} == slots
        assert len(mine) == len(slots)
    judge(stage, every)
    latest = [each for each in await everything(database, "latest") if each.plan_time <= until]
    judge(stage, latest)
    for number in range(SCOPES):
        mine = [each for each in latest if each.scope_id == f"latest-{number}"]
        newest = max(each.plan_time for each in mine)
        counted = sum(1 + each.collapsed for each in mine)
        assert counted == line.count_between(began, newest, 100_000)
    rows = every + latest
    sys.stdout.write(
        f"{len(every)} + {len(latest)} occurrences;"
        f" {sum(count > 1 for count in stage.owner.asked.values())} asked more than once,"
        f" {sum(each.attempt > 1 for each in rows)} in more than one attempt,"
        f" by {len({each.runner_id for each in rows})} executors\n"
    )


def judge(stage: Stage, rows: list[Execution]) -> None:
    """One end each; an effect for every success, and none for what has no row."""
    for each in rows:
        key = (each.job_name, each.scope_id, each.plan_time)
        assert each.state is ExecutionState.SUCCESS or each.reason, each
        if each.state is ExecutionState.SUCCESS:
            assert key in stage.owner.effects, each
    known = {(each.job_name, each.scope_id, each.plan_time) for each in rows}
    until = max(each.plan_time for each in rows)
    mine = {key for key in stage.owner.effects if key[0] == rows[0].job_name and key[2] <= until}
    assert mine <= known
