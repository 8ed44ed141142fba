"""What operators ask for: another attempt, a piece of the past, a pause."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from tests.integration.scheduler.conftest import (
    JOB,
    Owner,
    Replica,
    failed,
    succeeded,
    wish,
)

from reveille.scheduler.v1 import scheduler_service_pb2 as pb
from reveille_runtime.errors import FailedPrecondition, InvalidArgument, NotFound
from reveille_runtime.rpc_errors import as_domain_errors
from reveille_runtime.validation import to_timestamp
from reveille_scheduler.domain.rule import Hook
from reveille_scheduler.domain.scope import ScopeDeletion
from reveille_scheduler.domain.states import ExecutionState
from reveille_testkit.database import TestDatabase

if TYPE_CHECKING:
    from reveille.scheduler.v1.scheduler_service_pb2_grpc import SchedulerServiceAsyncStub

NOON = datetime(2030, 6, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


async def at(database: TestDatabase, replica: Replica, moment: datetime) -> None:
    """Move the clock of the replica and of the API alike."""
    database.move_clock((moment - await replica.database.now()).total_seconds())


async def fail_for_good(database: TestDatabase, replica: Replica, owner: Owner) -> str:
    owner.answer = failed
    await replica.jobs.register(replace(JOB, max_attempts=1))
    await replica.scopes.put([wish()])
    await at(database, replica, NOON + SECOND)
    await replica.run()
    execution = await replica.one()
    assert execution.next_retry_at is None
    return str(execution.id)


def backfill(
    start: datetime, end: datetime, *, scope_id: str = "nightly", request_id: str = ""
) -> pb.BackfillScopeRequest:
    return pb.BackfillScopeRequest(
        job_name="tidy",
        kind="folder",
        scope_id=scope_id,
        start_time=to_timestamp(start),
        end_time=to_timestamp(end),
        request_id=request_id,
    )


async def test_a_final_failure_gets_new_attempts_days_later(
    stub: SchedulerServiceAsyncStub, replica: Replica, owner: Owner, database: TestDatabase
) -> None:
    execution_id = await fail_for_good(database, replica, owner)
    # The rule has changed since: the operator's word counts all the same.
    await replica.scopes.put([wish(cron="0 3 * * *", revision=2, since=None)])
    await at(database, replica, NOON + timedelta(days=3))
    answer = await stub.RetryExecution(pb.RetryExecutionRequest(execution_id=execution_id))
    assert answer.execution.HasField("next_retry_time")
    assert answer.execution.HasField("request_time")
    assert answer.execution.max_attempts == 2

    owner.answer = succeeded
    await replica.run()
    again = next(each for each in await replica.ledger() if str(each.id) == execution_id)
    assert (again.state, again.attempt, again.plan_time) == (ExecutionState.SUCCESS, 2, NOON)


async def test_a_retry_that_fails_again_ends_again(
    stub: SchedulerServiceAsyncStub, replica: Replica, owner: Owner, database: TestDatabase
) -> None:
    execution_id = await fail_for_good(database, replica, owner)
    await stub.RetryExecution(pb.RetryExecutionRequest(execution_id=execution_id))
    await replica.run()

    execution = await replica.one()
    assert (execution.state, execution.attempt) == (ExecutionState.FAILED, 2)
    assert (execution.next_retry_at, execution.reason) == (None, "attempts_exhausted")


async def test_only_a_final_failure_can_be_retried(
    stub: SchedulerServiceAsyncStub, replica: Replica, owner: Owner, database: TestDatabase
) -> None:
    await replica.scopes.put([wish()])
    await at(database, replica, NOON + SECOND)
    (claim,) = await replica.plan()
    running = await refusal(stub, str(claim.id))
    await replica.hand_over(claim)
    done = await refusal(stub, str(claim.id))

    assert "runs" in running
    assert "succeeded" in done
    with pytest.raises(NotFound), as_domain_errors():
        await stub.RetryExecution(
            pb.RetryExecutionRequest(execution_id="01890000-0000-7000-8000-000000000000")
        )


async def refusal(stub: SchedulerServiceAsyncStub, execution_id: str) -> str:
    with pytest.raises(FailedPrecondition) as refused, as_domain_errors():
        await stub.RetryExecution(pb.RetryExecutionRequest(execution_id=execution_id))
    assert refused.value.reason == "WRONG_STATE"
    return refused.value.message


async def test_what_waits_for_its_retry_or_has_no_scope_left_is_refused(
    stub: SchedulerServiceAsyncStub, replica: Replica, owner: Owner, database: TestDatabase
) -> None:
    execution_id = await fail_for_good(database, replica, owner)
    await stub.RetryExecution(pb.RetryExecutionRequest(execution_id=execution_id))
    assert "by itself" in await refusal(stub, execution_id)
    await replica.scopes.delete([ScopeDeletion("tidy", "folder", "nightly", 9)])
    assert "deleted" in await refusal(stub, execution_id)
    # What was promised before the deletion is not executed either.
    await replica.run()
    assert (await replica.one()).reason == "superseded"
    assert len(owner.plans) == 1


async def test_a_repeated_request_is_answered_once(
    stub: SchedulerServiceAsyncStub, replica: Replica, owner: Owner, database: TestDatabase
) -> None:
    execution_id = await fail_for_good(database, replica, owner)
    request = pb.RetryExecutionRequest(execution_id=execution_id, request_id="again-1")
    first = await stub.RetryExecution(request)
    await replica.run()

    assert await stub.RetryExecution(request) == first
    assert len(owner.plans) == 2


async def test_a_backfill_executes_what_was_missed_and_nothing_twice(
    stub: SchedulerServiceAsyncStub, replica: Replica, owner: Owner, database: TestDatabase
) -> None:
    """10:00 fired, 11:00 was too late, 12:00 to 14:00 folded into 15:00, which fired."""
    await replica.scopes.put([wish(cron="0 * * * *", since=NOON - 2 * HOUR - SECOND)])
    for moment in (NOON - 2 * HOUR + SECOND, NOON - 50 * MINUTE, NOON + 3 * HOUR + SECOND):
        await at(database, replica, moment)
        await replica.run()
    assert [plan.plan_time.ToDatetime(tzinfo=UTC).hour for plan in owner.plans] == [10, 15]

    answer = await stub.BackfillScope(backfill(NOON - 2 * HOUR, NOON + 3 * HOUR))
    assert (answer.new, answer.done, answer.refused) == (4, 2, 0)
    assert len(answer.execution_ids) == 4
    for _ in range(6):
        await replica.run()

    hours = [plan.plan_time.ToDatetime(tzinfo=UTC).hour for plan in owner.plans]
    assert hours == [10, 15, 11, 12, 13, 14]
    again = await stub.BackfillScope(backfill(NOON - 2 * HOUR, NOON + 3 * HOUR))
    assert (again.new, again.done, again.refused) == (0, 6, 0)
    assert {each.state for each in await replica.ledger()} == {ExecutionState.SUCCESS}


async def test_a_backfill_gives_way_to_what_its_scope_is_due_for(
    stub: SchedulerServiceAsyncStub, replica: Replica, owner: Owner, database: TestDatabase
) -> None:
    await replica.scopes.put([wish(cron="0 * * * *", since=NOON)])
    await at(database, replica, NOON + 30 * SECOND)
    assert (await stub.BackfillScope(backfill(NOON - 3 * HOUR, NOON))).new == 4
    await replica.run()
    await at(database, replica, NOON + HOUR + SECOND)
    for _ in range(4):
        await replica.run()

    hours = [plan.plan_time.ToDatetime(tzinfo=UTC).hour for plan in owner.plans]
    assert hours == [9, 13, 10, 11, 12]


async def test_both_ends_of_a_range_belong_to_it(
    stub: SchedulerServiceAsyncStub, replica: Replica, owner: Owner, database: TestDatabase
) -> None:
    await replica.scopes.put([wish(cron="0 * * * *", since=NOON)])
    await at(database, replica, NOON + 30 * SECOND)
    answer = await stub.BackfillScope(backfill(NOON - 3 * HOUR, NOON))

    assert (answer.new, answer.done, answer.refused) == (4, 0, 0)


async def test_what_planning_has_not_reached_is_left_to_it(
    stub: SchedulerServiceAsyncStub, replica: Replica, owner: Owner, database: TestDatabase
) -> None:
    await replica.scopes.put([wish(cron="0 * * * *", since=NOON - HOUR)])
    await at(database, replica, NOON + SECOND)
    answer = await stub.BackfillScope(backfill(NOON - HOUR, NOON + 2 * HOUR))
    assert (answer.new, answer.done, answer.refused) == (1, 0, 3)

    await replica.run()
    await replica.run()
    hours = sorted(plan.plan_time.ToDatetime(tzinfo=UTC).hour for plan in owner.plans)
    assert hours == [11, 12]


async def test_a_backfill_of_a_switched_off_scope_works_and_a_superseded_slot_does_not(
    stub: SchedulerServiceAsyncStub, replica: Replica, owner: Owner, database: TestDatabase
) -> None:
    owner.answer = failed
    await replica.scopes.put([wish(cron="0 * * * *", since=NOON - SECOND)])
    await at(database, replica, NOON + SECOND)
    await replica.run()
    await replica.scopes.put([wish(cron="0 * * * *", revision=2, enabled=False)])
    await at(database, replica, NOON + 2 * HOUR + SECOND)
    await replica.run()
    assert (await replica.one()).reason == "superseded"
    owner.answer = succeeded

    answer = await stub.BackfillScope(backfill(NOON, NOON + 2 * HOUR))
    assert (answer.new, answer.done, answer.refused) == (2, 0, 1)
    for _ in range(3):
        await replica.run()
    assert [each.state for each in await replica.ledger()] == [
        ExecutionState.SUCCESS,
        ExecutionState.SUCCESS,
        ExecutionState.SKIPPED,
    ]


async def test_a_long_backfill_does_not_run_out_of_its_retry_deadline(
    stub: SchedulerServiceAsyncStub, replica: Replica, owner: Owner, database: TestDatabase
) -> None:
    """The second of two missed slots gets its turn, and its retries, a day after it was asked."""
    await replica.scopes.put([wish(cron="0 * * * *", since=NOON)])
    await at(database, replica, NOON + SECOND)
    await stub.BackfillScope(backfill(NOON - HOUR, NOON))
    await replica.run()
    await replica.scopes.put([wish(cron="0 * * * *", revision=2, enabled=False)])
    await at(database, replica, NOON + timedelta(days=1))
    owner.answer = failed
    await replica.run()
    second = (await replica.ledger())[0]
    assert second.state is ExecutionState.FAILED
    assert second.next_retry_at is not None
    owner.answer = succeeded
    await at(database, replica, second.next_retry_at + SECOND)
    await replica.run()

    assert [each.state for each in await replica.ledger()] == [ExecutionState.SUCCESS] * 2


@pytest.mark.parametrize(
    ("start", "end", "field"),
    [
        (NOON, NOON - SECOND, "end_time"),
        (NOON - timedelta(days=91), NOON, "start_time"),
        (NOON - timedelta(days=1), NOON, "end_time"),
    ],
)
async def test_a_range_that_cannot_be_judged_is_refused(
    stub: SchedulerServiceAsyncStub,
    replica: Replica,
    database: TestDatabase,
    start: datetime,
    end: datetime,
    field: str,
) -> None:
    await replica.scopes.put([wish(cron="* * * * *", since=NOON)])
    await at(database, replica, NOON + SECOND)
    with pytest.raises(InvalidArgument) as refused, as_domain_errors():
        await stub.BackfillScope(backfill(start, end))

    assert [each.field for each in refused.value.violations] == [field]
    assert await replica.ledger() == []


async def test_a_backfill_names_what_it_cannot_find(
    stub: SchedulerServiceAsyncStub, replica: Replica
) -> None:
    await replica.scopes.put([wish("hooked", rule=Hook())])
    with pytest.raises(NotFound, match="nowhere"), as_domain_errors():
        await stub.BackfillScope(backfill(NOON, NOON, scope_id="nowhere"))
    now = await replica.database.now()
    with pytest.raises(FailedPrecondition, match="owner"), as_domain_errors():
        await stub.BackfillScope(backfill(now - HOUR, now, scope_id="hooked"))
    with pytest.raises(InvalidArgument) as refused, as_domain_errors():
        await stub.BackfillScope(pb.BackfillScopeRequest(job_name="tidy"))
    assert {each.field for each in refused.value.violations} == {
        "kind",
        "scope_id",
        "start_time",
        "end_time",
    }


async def test_a_backfill_is_safe_to_repeat(
    stub: SchedulerServiceAsyncStub, replica: Replica, database: TestDatabase
) -> None:
    await replica.scopes.put([wish(cron="0 * * * *", since=NOON)])
    await at(database, replica, NOON + SECOND)
    request = backfill(NOON - 2 * HOUR, NOON, request_id="past-1")
    first = await stub.BackfillScope(request)

    assert await stub.BackfillScope(request) == first
    assert first.new == 3


async def test_a_job_is_paused_with_a_note_and_resumed(
    stub: SchedulerServiceAsyncStub, replica: Replica
) -> None:
    paused = (await stub.PauseJob(pb.PauseJobRequest(name="tidy", note="disk full"))).job
    assert (paused.paused, paused.pause_note) == (True, "disk full")
    assert paused.HasField("pause_time")
    renoted = (await stub.PauseJob(pb.PauseJobRequest(name="tidy", note="still full"))).job
    assert (renoted.pause_note, renoted.pause_time) == ("still full", paused.pause_time)
    resumed = (await stub.ResumeJob(pb.ResumeJobRequest(name="tidy"))).job
    read = (await stub.GetJob(pb.GetJobRequest(name="tidy"))).job

    assert (resumed.paused, resumed.pause_note) == (False, "")
    assert read == resumed
    with pytest.raises(InvalidArgument), as_domain_errors():
        await stub.PauseJob(pb.PauseJobRequest(name="tidy"))
    for call in (
        stub.GetJob(pb.GetJobRequest(name="nobody")),
        stub.PauseJob(pb.PauseJobRequest(name="nobody", note="x")),
        stub.ResumeJob(pb.ResumeJobRequest(name="nobody")),
    ):
        with pytest.raises(NotFound), as_domain_errors():
            await call
