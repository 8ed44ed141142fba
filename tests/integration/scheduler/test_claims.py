"""Claiming: one winner, random fences, live clocks, and the job's word on second attempts."""

from __future__ import annotations

import ast
import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.integration.scheduler.conftest import JOB, Owner, Replica, failed, start_at, wish

import reveille_scheduler
from reveille_runtime.ids import new_id, new_token
from reveille_runtime.lease import LeaseLost
from reveille_scheduler.domain.occurrence import Ending
from reveille_scheduler.domain.states import ExecutionState
from reveille_scheduler.store import executions
from reveille_scheduler.store.executions import NewExecution
from reveille_scheduler.usecases.backfill import BackfillScope
from reveille_scheduler.usecases.claim_retries import ClaimRetries
from reveille_scheduler.usecases.settle import Ended
from reveille_testkit.database import TestDatabase
from reveille_testkit.rpc import RpcRig

NOON = datetime(2030, 6, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
STALE = JOB.stale_timeout + 30 * SECOND


def new(plan_time: datetime = NOON, token: bool = True) -> NewExecution:
    return NewExecution(
        id=new_id(),
        job_name="tidy",
        scope_kind="folder",
        scope_id="nightly",
        plan_time=plan_time,
        max_attempts=3,
        token=new_token() if token else None,
        lease=JOB.stale_timeout,
        retried_for=JOB.retry_deadline,
        collapsed=0,
        carrier={},
    )


async def test_one_of_eight_claimers_of_a_plan_wins(replica: Replica) -> None:
    rows = [new() for _ in range(8)]

    async def claim(row: NewExecution) -> bool:
        async with replica.database.transaction() as tx:
            return bool(await executions.insert(tx, [row], "claimer"))

    won = await asyncio.gather(*(claim(row) for row in rows))

    assert sum(won) == 1
    assert (await replica.one()).id == rows[won.index(True)].id


async def test_ids_follow_time_and_fences_are_random(
    replica: Replica, database: TestDatabase
) -> None:
    await replica.scopes.put([wish(f"scope-{n}") for n in range(5)])
    await start_at(replica, NOON + SECOND)
    claims = await replica.plan()

    assert {claim.id.version for claim in claims} == {7}
    assert {claim.token.version for claim in claims} == {4}
    assert len({claim.token for claim in claims}) == 5


async def test_after_a_steal_the_token_differs_and_the_first_owner_may_not_write(
    replica: Replica, database: TestDatabase, rig: RpcRig
) -> None:
    await replica.scopes.put([wish()])
    await start_at(replica, NOON + SECOND)
    (first,) = await replica.plan()
    survivor = Replica(await database.open("scheduler"), rig, "survivor")
    await start_at(survivor, NOON + STALE)
    await survivor.look_for_the_dead()
    (second,) = (await survivor.claim_retries("tidy", 10)).claims
    before = await survivor.one()

    assert second.id == first.id
    assert second.token != first.token
    assert second.attempt == 2
    with pytest.raises(LeaseLost):
        await replica.settle.submit(Ended(first, Ending(ExecutionState.SUCCESS)))
    assert await survivor.one() == before


@pytest.mark.parametrize("reentry", [True, False])
async def test_a_sweep_ends_the_abandoned_while_the_present_succeeds(
    replica: Replica, database: TestDatabase, rig: RpcRig, owner: Owner, reentry: bool
) -> None:
    """Without reentry the abandoned one is final: nobody begins it a second time by itself."""
    await replica.jobs.register(replace(JOB, allow_stale_reentry=reentry, plans_per_scope=2))
    await replica.scopes.put([wish(cron="*/10 * * * *", since=NOON - SECOND)])
    await start_at(replica, NOON + SECOND)
    await replica.plan()
    survivor = Replica(await database.open("scheduler"), rig, "survivor")
    await start_at(survivor, NOON + 10 * MINUTE + SECOND)
    await survivor.look_for_the_dead()
    abandoned = (await survivor.ledger())[-1]
    assert (abandoned.state, abandoned.reason) == (ExecutionState.FAILED, "lease_expired")
    assert (abandoned.next_retry_at is not None) is reentry
    await survivor.run()
    await survivor.run()

    newer, older = await survivor.ledger()
    assert newer.state is ExecutionState.SUCCESS
    assert older.state is (ExecutionState.SUCCESS if reentry else ExecutionState.FAILED)
    assert older.attempt == (2 if reentry else 1)


async def test_many_orphans_are_ended_in_one_look(
    replica: Replica, database: TestDatabase, rig: RpcRig
) -> None:
    """More than a batch: none has to wait for another round of looks."""
    await replica.scopes.put([wish(f"scope-{n}") for n in range(150)])
    await start_at(replica, NOON + SECOND)
    assert len(await replica.plan()) == 150
    survivor = Replica(await database.open("scheduler"), rig, "survivor")
    await start_at(survivor, NOON + STALE)
    await survivor.look_for_the_dead()

    assert {each.state for each in await survivor.ledger()} == {ExecutionState.FAILED}


async def test_a_claim_late_in_a_transaction_is_born_with_a_whole_lease(replica: Replica) -> None:
    """The lease begins by the clock of the statement, not of the tick or the transaction."""
    await start_at(replica, NOON)
    async with replica.database.transaction() as tx:
        began = await executions.now(tx)
        await tx.raw.execute(
            "SELECT set_config('reveille.clock_offset',"
            " (current_setting('reveille.clock_offset')::interval + interval '1 hour')::text, true)"
        )
        await executions.insert(tx, [new()], "late")
        stale_after = await tx.raw.fetchval("SELECT stale_after FROM executions")

    assert stale_after >= began + timedelta(hours=1) + JOB.stale_timeout


async def test_attempts_are_those_of_the_first_claim_whatever_the_job_says_later(
    replica: Replica, owner: Owner
) -> None:
    owner.answer = failed
    await replica.jobs.register(replace(JOB, max_attempts=2, retry_backoff=()))
    await replica.scopes.put([wish()])
    await start_at(replica, NOON + SECOND)
    await replica.run()
    await replica.jobs.register(replace(JOB, max_attempts=9, retry_backoff=()))
    for _ in range(4):
        await replica.run()

    execution = await replica.one()
    assert len(owner.plans) == 2
    assert (execution.attempt, execution.max_attempts) == (2, 2)
    assert (execution.reason, execution.next_retry_at) == ("attempts_exhausted", None)
    assert execution.message == "attempt 2 was the last: disk_full: no space"


async def test_the_waits_between_attempts_are_the_jobs_own(replica: Replica, owner: Owner) -> None:
    """1, 5, 15 minutes, as the schedule job of autopilot has them."""
    owner.answer = failed
    waits = (MINUTE, 5 * MINUTE, 15 * MINUTE)
    await replica.jobs.register(replace(JOB, max_attempts=4, retry_backoff=waits))
    await replica.scopes.put([wish()])
    moment = NOON + SECOND
    for wait in waits:
        await start_at(replica, moment)
        await replica.run()
        execution = await replica.one()
        assert execution.next_retry_at is not None
        assert execution.finished_at is not None
        assert abs(execution.next_retry_at - execution.finished_at - wait) < SECOND
        moment = execution.next_retry_at + SECOND
    await start_at(replica, moment)
    await replica.run()

    assert (await replica.one()).reason == "attempts_exhausted"


async def test_a_day_of_downtime_of_an_every_minute_rule_gives_one_run(
    replica: Replica, owner: Owner
) -> None:
    await replica.scopes.put([wish(cron="* * * * *", since=NOON - timedelta(days=1, seconds=1))])
    await start_at(replica, NOON + SECOND)
    await replica.run()
    await replica.run()

    execution = await replica.one()
    assert (execution.plan_time, execution.collapsed) == (NOON, 1024)
    assert len(owner.plans) == 1


async def test_a_scope_that_is_switched_off_leaves_no_row(replica: Replica, owner: Owner) -> None:
    await replica.scopes.put([wish(enabled=False)])
    await start_at(replica, NOON + SECOND)
    await replica.run()

    assert (await replica.ledger(), owner.plans) == ([], [])


async def test_a_backward_jump_of_the_clock_plans_nothing_twice_and_goes_on(
    replica: Replica, owner: Owner
) -> None:
    """The database's clock is set back eight hours: the ledger, not the clock, is the cursor."""
    await replica.scopes.put([wish(cron="0 * * * *", since=NOON - SECOND)])
    await start_at(replica, NOON + SECOND)
    await replica.run()
    await start_at(replica, NOON - timedelta(hours=8))
    await replica.run()
    await start_at(replica, NOON + 2 * SECOND)
    await replica.run()
    assert len(owner.plans) == 1
    await start_at(replica, NOON + timedelta(hours=1, seconds=1))
    await replica.run()
    assert len(owner.plans) == 2


def test_no_rule_reads_this_process_own_clock() -> None:
    """Whatever the skew of a replica: time is the database's, lengths are monotonic."""
    folder = Path(next(iter(reveille_scheduler.__path__)))
    clocks = {"datetime.now", "datetime.utcnow", "datetime.today", "date.today", "time.time"}
    found = [
        f"{path.name}:{node.lineno}"
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in clocks
    ]

    assert found == []


async def test_among_more_scopes_than_a_claim_looks_at_none_is_left_out(replica: Replica) -> None:
    """It goes on by name where the last one ended; what is due for longest comes at once."""
    await replica.scopes.put([wish(name, cron="0 * * * *", since=NOON) for name in "abcd"])
    await start_at(replica, NOON + SECOND)
    for name in "dcba":
        async with replica.database.transaction() as tx:
            key = ("tidy", "folder", name)
            await BackfillScope(timedelta(days=90))(tx, key, NOON - 4 * HOUR, NOON)
    claim = ClaimRetries(replica.database, replica.tracing, "replica", replica.clock, stretch=1)
    claimed = [{each.scope_id for each in (await claim("tidy", 9)).claims} for _ in range(4)]

    assert claimed == [{"a", "d"}, {"b"}, {"c"}, set()]
