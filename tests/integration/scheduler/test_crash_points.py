"""Dying at each durable boundary: another replica finishes, and every effect is had once."""

from __future__ import annotations

import asyncio
import contextlib
import os
from datetime import UTC, datetime, timedelta

import pytest
from tests.integration.scheduler.conftest import (
    JOB,
    Owner,
    Replica,
    failed,
    start_at,
    succeeded,
    wish,
)

from reveille.scheduler.v1 import job_handler_service_pb2 as pb
from reveille_runtime import crash
from reveille_runtime.validation import to_timestamp
from reveille_scheduler.crash_points import AFTER_PRUNED, CRASH_POINTS
from reveille_scheduler.domain.rule import Hook
from reveille_scheduler.domain.states import ExecutionState
from reveille_scheduler.usecases.retention import Retention
from reveille_testkit.database import TestDatabase
from reveille_testkit.rpc import RpcRig

NOON = datetime(2030, 6, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
STALE = JOB.stale_timeout + 30 * SECOND


class Died(BaseException):
    """The process is gone; nothing of it runs on."""


class Effects:
    """What a handler did, by key: doing a plan twice has one effect."""

    def __init__(self) -> None:
        self.done: dict[tuple[str, datetime], int] = {}

    def __call__(self, plan: pb.Plan) -> pb.PlanResult:
        if plan.scope_id == "flaky" and plan.attempt == 1:
            return failed(plan)
        key = (plan.scope_id, plan.plan_time.ToDatetime(tzinfo=UTC))
        self.done[key] = self.done.get(key, 0) + 1
        return succeeded(plan)


def hooked(scope: pb.HookScope) -> pb.ScopePlan:
    plan = pb.ScopePlan(kind=scope.kind, id=scope.id)
    plan.plan_times.add().FromDatetime(NOON)
    plan.ask_again_time.CopyFrom(to_timestamp(NOON + timedelta(days=1)) or plan.ask_again_time)
    return plan


async def live(replica: Replica, now: datetime) -> None:
    """A replica's life in short: tick, look for the dead, tick again, forget."""
    await start_at(replica, now)
    await replica.run()
    await replica.look_for_the_dead()
    await start_at(replica, now + 2 * MINUTE)
    await replica.run()
    await replica.run()
    await Retention(replica.database, timedelta(days=30), monotonic=replica.clock)()


@pytest.mark.parametrize("point", CRASH_POINTS)
async def test_whoever_dies_where_every_occurrence_ends_well(
    replica: Replica,
    database: TestDatabase,
    rig: RpcRig,
    owner: Owner,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
) -> None:
    effects = Effects()
    owner.answer, owner.plan = effects, hooked
    await replica.scopes.put(
        [
            wish("plain"),
            wish("flaky"),
            wish("hooked", rule=Hook(), since=NOON - MINUTE, max_lateness=timedelta(0)),
            wish("orphan", cron="50 11 * * *", since=NOON - timedelta(hours=1)),
        ]
    )
    # An executor vanished ten minutes ago.
    vanished = Replica(await database.open("scheduler"), rig, "vanished")
    await start_at(vanished, NOON - 10 * MINUTE + SECOND)
    assert [claim.scope_id for claim in (await vanished.plan_due("tidy", 9)).claims] == ["orphan"]

    victim = Replica(await database.open("scheduler"), rig, "victim")
    died = asyncio.Event()

    def die(_: int) -> None:
        # Its connections go with it: nothing that is still scheduled can write any more.
        monkeypatch.delenv(crash.POINT_VARIABLE)
        pool = victim.database._pool
        assert pool is not None
        pool.terminate()
        victim.settle._closed = True
        died.set()
        raise Died

    monkeypatch.setenv(crash.POINT_VARIABLE, point)
    monkeypatch.setattr(os, "_exit", die)
    life = asyncio.ensure_future(live(victim, NOON + SECOND))
    dying = asyncio.ensure_future(died.wait())
    async with asyncio.timeout(20):
        await asyncio.wait({life, dying}, return_when=asyncio.FIRST_COMPLETED)
    assert died.is_set(), f"{point} was not passed"
    life.cancel()
    dying.cancel()
    with contextlib.suppress(Died, asyncio.CancelledError, BaseExceptionGroup):
        await life

    survivor = Replica(await database.open("scheduler"), rig, "survivor")
    for look in range(4):
        await live(survivor, NOON + STALE + look * STALE)

    ledger = {(each.scope_id, each.plan_time): each for each in await survivor.ledger()}
    expected = {
        ("plain", NOON),
        ("flaky", NOON),
        ("hooked", NOON),
        ("orphan", NOON - 10 * MINUTE),
    }
    assert set(ledger) == expected
    assert {each.state for each in ledger.values()} == {ExecutionState.SUCCESS}
    assert set(effects.done) == expected
    if point != AFTER_PRUNED:
        assert any(each.runner_id == "survivor" for each in ledger.values())
