"""Jobs that catch up on everything, slots, hooks, delays: what the ledger then holds."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
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

from reveille.scheduler.v1 import execution_pb2
from reveille.scheduler.v1 import job_handler_service_pb2 as pb
from reveille_runtime.validation import to_timestamp
from reveille_scheduler.domain.job import CatchUp
from reveille_scheduler.domain.rule import Cadence, CronRule, Hook, Once
from reveille_scheduler.domain.states import ExecutionState
from reveille_testkit.database import TestDatabase
from reveille_testkit.rpc import RpcRig

NOON = datetime(2030, 6, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
EVERY = replace(JOB, catch_up=CatchUp.EVERY_PLAN, max_plans_per_tick=2, max_lateness=None)


def hook_plan(scope: pb.HookScope, *plans: datetime, again: datetime | None = None) -> pb.ScopePlan:
    return pb.ScopePlan(
        kind=scope.kind,
        id=scope.id,
        plan_times=[stamp for plan in plans if (stamp := to_timestamp(plan)) is not None],
        ask_again_time=to_timestamp(again),
    )


async def test_every_missed_plan_is_executed_oldest_first_one_at_a_time(
    replica: Replica, owner: Owner
) -> None:
    await replica.jobs.register(EVERY)
    await replica.scopes.put([wish(cron="*/5 * * * *", since=NOON - 15 * MINUTE)])
    await start_at(replica, NOON + SECOND)
    for _ in range(5):
        await replica.run()

    plans = [plan.plan_time.ToDatetime(tzinfo=UTC) for plan in owner.plans]
    assert plans == [NOON - 10 * MINUTE, NOON - 5 * MINUTE, NOON]
    assert {each.state for each in await replica.ledger()} == {ExecutionState.SUCCESS}


async def test_a_failed_plan_is_repeated_on_its_own_row_while_newer_ones_go_on(
    replica: Replica, owner: Owner
) -> None:
    owner.answer = failed
    await replica.jobs.register(EVERY)
    await replica.scopes.put([wish(cron="*/5 * * * *", since=NOON - MINUTE)])
    await start_at(replica, NOON + SECOND)
    await replica.run()
    first = await replica.one()
    owner.answer = succeeded
    # The retry is due in a minute; a newer plan in five.
    await start_at(replica, NOON + 5 * MINUTE + SECOND)
    await replica.run()
    await replica.run()

    newer, older = await replica.ledger()
    assert (older.id, older.state, older.attempt) == (first.id, ExecutionState.SUCCESS, 2)
    assert (newer.plan_time, newer.state) == (NOON + 5 * MINUTE, ExecutionState.SUCCESS)


async def test_two_failures_of_a_scope_are_both_tried_again(replica: Replica, owner: Owner) -> None:
    """A failed plan is not stranded by the failure of a newer one."""
    owner.answer = failed
    await replica.jobs.register(replace(JOB, retry_backoff=(10 * MINUTE,)))
    await replica.scopes.put([wish(cron="* * * * *", since=NOON - SECOND)])
    for minute in range(2):
        await start_at(replica, NOON + minute * MINUTE + SECOND)
        await replica.run()
    await replica.scopes.put([wish(cron="0 0 1 1 *", revision=2, since=NOON - SECOND)])
    owner.answer = succeeded
    await start_at(replica, NOON + 12 * MINUTE)
    await replica.run()
    await replica.run()

    states = {each.plan_time: (each.state, each.attempt) for each in await replica.ledger()}
    assert states == {
        NOON: (ExecutionState.SUCCESS, 2),
        NOON + MINUTE: (ExecutionState.SUCCESS, 2),
    }


async def test_a_scope_has_as_many_slots_as_its_job_says(replica: Replica, owner: Owner) -> None:
    owner.may_answer.clear()
    await replica.jobs.register(replace(EVERY, plans_per_scope=2, max_plans_per_tick=5))
    await replica.scopes.put([wish(cron="* * * * *", since=NOON - 5 * MINUTE)])
    await start_at(replica, NOON + SECOND)
    first = await replica.plan()
    assert len(first) == 2
    assert await replica.plan() == []

    owner.may_answer.set()
    await asyncio.gather(*(replica.hand_over(claim) for claim in first))
    again = await replica.plan()
    assert [claim.plan_time for claim in again] == [NOON - 2 * MINUTE, NOON - MINUTE]


async def test_late_slots_of_a_job_with_a_limit_are_rows(replica: Replica, owner: Owner) -> None:
    await replica.jobs.register(replace(EVERY, max_lateness=5 * MINUTE, max_plans_per_tick=10))
    await replica.scopes.put([wish(cron="*/5 * * * *", since=NOON - 16 * MINUTE)])
    await start_at(replica, NOON + SECOND)
    for _ in range(3):
        await replica.run()

    assert {each.plan_time: each.reason for each in await replica.ledger()} == {
        NOON - 15 * MINUTE: "too_late",
        NOON - 10 * MINUTE: "too_late",
        NOON - 5 * MINUTE: "too_late",
        NOON: "",
    }
    assert len(owner.plans) == 1


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Cadence(timedelta(minutes=7)), datetime(2030, 6, 1, 11, 57, tzinfo=UTC)),
        (Once(NOON), NOON),
        (CronRule("0 12 * * *", ""), NOON),
    ],
)
async def test_every_source_is_planned_and_read_back(
    replica: Replica, owner: Owner, rule: Cadence | Once | CronRule, expected: datetime
) -> None:
    (stored,) = await replica.scopes.put([wish(rule=rule)])
    await start_at(replica, NOON + SECOND)
    await replica.run()
    await replica.run()

    assert stored.rule == rule
    assert [plan.plan_time.ToDatetime(tzinfo=UTC) for plan in owner.plans] == [expected]


async def test_a_delayed_and_spread_job_is_handed_over_at_its_due_time(
    replica: Replica, owner: Owner
) -> None:
    job = replace(JOB, schedule_delay=10 * MINUTE, jitter=10 * MINUTE)
    await replica.jobs.register(job)
    (stored,) = await replica.scopes.put([wish()])
    due = stored.next_plan_at
    assert due is not None
    assert NOON + 10 * MINUTE <= due < NOON + 20 * MINUTE
    await start_at(replica, due - 2 * SECOND)
    await replica.run()
    assert owner.plans == []
    await start_at(replica, due + SECOND)
    await replica.run()

    assert [plan.plan_time.ToDatetime(tzinfo=UTC) for plan in owner.plans] == [NOON]


async def test_an_owner_is_asked_and_its_plans_are_executed_once(
    replica: Replica, owner: Owner
) -> None:
    owner.plan = lambda scope: hook_plan(scope, NOON, again=NOON + 5 * MINUTE)
    await replica.scopes.put([wish(rule=Hook())])
    await start_at(replica, NOON + SECOND)
    await replica.run()
    await replica.run()
    assert not owner.questions[0].HasField("latest_plan_time")
    assert len(owner.questions) == 1

    await start_at(replica, NOON + 5 * MINUTE + SECOND)
    await replica.run()

    assert len(owner.plans) == 1
    told = owner.questions[1]
    assert told.latest_plan_time.ToDatetime(tzinfo=UTC) == NOON
    assert told.latest_state == execution_pb2.EXECUTION_STATE_SUCCESS
    assert (told.latest_attempt, told.latest_max_attempts) == (1, JOB.max_attempts)


async def test_an_owners_list_is_cut_from_the_front_and_never_reaches_into_the_future(
    replica: Replica, owner: Owner
) -> None:
    plans = (NOON - MINUTE, NOON - 2 * MINUTE, NOON - 3 * MINUTE)
    await replica.jobs.register(replace(JOB, max_plans_per_tick=2, plans_per_scope=5))
    owner.plan = lambda scope: hook_plan(scope, *plans)
    await replica.scopes.put([wish(rule=Hook())])
    await start_at(replica, NOON + SECOND)
    await replica.run()
    assert [each.plan_time for each in await replica.ledger()] == list(plans[:2])

    owner.plan = lambda scope: hook_plan(scope, NOON + 10 * MINUTE)
    await start_at(replica, NOON + 5 * SECOND)
    await replica.run()
    (asked,) = await replica.scopes.page("tidy", None, 10)
    assert len(await replica.ledger()) == 2
    assert asked.next_plan_at is not None
    assert asked.next_plan_at < NOON + 2 * MINUTE


async def test_an_owner_that_names_nothing_leaves_no_row(replica: Replica, owner: Owner) -> None:
    await replica.scopes.put([wish(rule=Hook())])
    await start_at(replica, NOON + SECOND)
    await replica.run()

    assert len(owner.questions) == 1
    assert await replica.ledger() == []
    # It is asked again, a minute later and not before.
    await start_at(replica, NOON + 50 * SECOND)
    await replica.run()
    assert len(owner.questions) == 1
    await start_at(replica, NOON + 2 * MINUTE)
    await replica.run()
    assert len(owner.questions) == 2


async def test_an_owner_that_fails_is_asked_again_and_nothing_is_recorded(
    replica: Replica, owner: Owner
) -> None:
    def broken(scope: pb.HookScope) -> pb.ScopePlan:
        raise RuntimeError("the owner has a bug")

    owner.plan = broken
    await replica.scopes.put([wish(rule=Hook())])
    await start_at(replica, NOON + SECOND)
    await replica.run()
    assert await replica.ledger() == []

    owner.plan = lambda scope: hook_plan(scope, NOON)
    await start_at(replica, NOON + MINUTE)
    await replica.run()
    assert len(owner.plans) == 1


async def test_a_hook_scope_that_is_edited_while_its_owner_is_asked_keeps_the_edit(
    replica: Replica, owner: Owner
) -> None:
    await replica.scopes.put([wish(rule=Hook())])
    await start_at(replica, NOON + SECOND)
    asked = await replica.plan_hooks.take("tidy", 10)
    assert asked is not None
    (edited,) = await replica.scopes.put([wish(rule=Hook(), revision=2, since=NOON - MINUTE)])
    owner.plan = lambda scope: hook_plan(scope, NOON)

    await replica.plan_hooks.ask(asked, replica.executor.start)
    await replica.executor.stop()
    assert owner.plans == []
    assert await replica.ledger() == []
    assert await replica.scopes.page("tidy", None, 10) == [edited]


async def test_two_replicas_ask_an_owner_once(
    replica: Replica, database: TestDatabase, rig: RpcRig, owner: Owner
) -> None:
    other = Replica(await database.open("scheduler"), rig, "other")
    owner.plan = lambda scope: hook_plan(scope, NOON, again=NOON + 5 * MINUTE)
    await replica.scopes.put([wish(f"scope-{n}", rule=Hook()) for n in range(20)])
    await start_at(replica, NOON + SECOND)
    await start_at(other, NOON + SECOND)
    await asyncio.gather(replica.run(), other.run())

    assert len(owner.questions) == 20
    assert len(owner.plans) == 20


async def test_a_paused_job_plans_nothing_and_catches_up_afterwards(
    replica: Replica, owner: Owner
) -> None:
    await replica.scopes.put([wish(cron="*/5 * * * *", since=NOON - MINUTE)])
    await replica.jobs.pause("tidy", "moving house")
    await start_at(replica, NOON + 2 * MINUTE)
    await replica.run()
    assert (owner.plans, await replica.ledger()) == ([], [])

    # The owner registers again at every start; that does not end the pause.
    assert (await replica.jobs.register(JOB)).pause_note == "moving house"
    await replica.run()
    assert owner.plans == []
    await replica.jobs.resume("tidy")
    await replica.run()
    assert [plan.plan_time.ToDatetime(tzinfo=UTC) for plan in owner.plans] == [NOON]


async def test_a_retry_does_not_fire_days_late_after_a_pause(
    replica: Replica, owner: Owner
) -> None:
    owner.answer = failed
    await replica.scopes.put([wish()])
    await start_at(replica, NOON + SECOND)
    await replica.run()
    await replica.jobs.pause("tidy", "a long weekend")
    await start_at(replica, NOON + timedelta(days=2, hours=3))
    await replica.run()
    assert (await replica.ledger())[-1].next_retry_at is not None
    await replica.jobs.resume("tidy")
    await replica.run()

    oldest = (await replica.ledger())[-1]
    assert len(owner.plans) == 1
    assert (oldest.state, oldest.reason) == (ExecutionState.FAILED, "retry_deadline")
    assert oldest.next_retry_at is None


async def test_jobs_do_not_wait_for_each_other(replica: Replica, owner: Owner) -> None:
    """A job whose handler is slow holds up nobody else's."""
    await replica.jobs.register(replace(JOB, name="slow"))
    await replica.scopes.put(
        [wish(job_name="slow", scope_id=f"slow-{n}") for n in range(20)] + [wish("quick")]
    )
    await start_at(replica, NOON + SECOND)
    claims = await replica.plan()
    slow_done = asyncio.Event()
    quick_done = asyncio.Event()

    async def run_plans(request: pb.RunPlansRequest, context: object) -> pb.RunPlansResponse:
        assert len({plan.job_name for plan in request.plans}) == 1
        if request.plans[0].job_name == "slow":
            await slow_done.wait()
        return pb.RunPlansResponse(results=[succeeded(plan) for plan in request.plans])

    owner.override = run_plans
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        for claim in claims:
            task = group.create_task(replica.hand_over(claim))
            if claim.job_name == "tidy":
                task.add_done_callback(lambda _: quick_done.set())
        await quick_done.wait()
        running = [each for each in await replica.ledger() if each.job_name == "slow"]
        slow_done.set()

    assert {each.state for each in running} == {ExecutionState.RUNNING}


async def test_a_full_batch_leaves_the_others_due_in_their_order(
    replica: Replica, owner: Owner
) -> None:
    """A batch takes so many occurrences; what it did not look at is taken next, nothing is lost."""
    await replica.jobs.register(replace(EVERY, plans_per_scope=3, max_plans_per_tick=3))
    await replica.scopes.put(
        [wish(f"scope-{n}", cron="*/5 * * * *", since=NOON - 14 * MINUTE) for n in range(10)]
    )
    await start_at(replica, NOON + SECOND)
    batches = []
    while (batch := await replica.plan_due("tidy", 4)).more:
        batches.append([claim.scope_id for claim in batch.claims])

    claimed = [name for names in batches for name in names]
    assert all(len(names) <= 4 for names in batches)
    assert len(claimed) == 30
    assert len(await replica.ledger()) == 30
    assert {claimed.count(f"scope-{n}") for n in range(10)} == {3}


async def test_late_slots_of_many_scopes_are_recorded_in_several_transactions(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They take up no place, so nothing else bounds how many a batch of scopes brings."""
    monkeypatch.setattr("reveille_scheduler.usecases.plan_due.MOST_RECORDED", 4)
    await replica.jobs.register(replace(EVERY, max_lateness=5 * MINUTE, max_plans_per_tick=3))
    await replica.scopes.put(
        [wish(f"scope-{n}", cron="*/5 * * * *", since=NOON - 31 * MINUTE) for n in range(5)]
    )
    await start_at(replica, NOON + SECOND)
    recorded = [0]
    while (await replica.plan_due("tidy", 10)).more:
        recorded.append(len(await replica.ledger()))
        assert recorded[-1] - recorded[-2] <= 6

    late = Counter(each.scope_id for each in await replica.ledger() if each.reason == "too_late")
    assert late == {f"scope-{n}": 6 for n in range(5)}
