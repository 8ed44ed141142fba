"""How a handler's call is read: each plan by itself, whatever happens to the call."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest
from google.protobuf import duration_pb2
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status
from tests.integration.scheduler.conftest import JOB, Owner, Replica, start_at, succeeded, wish

from reveille.scheduler.v1 import job_handler_service_pb2 as pb
from reveille_runtime.errors import DomainError, InvalidArgument, ResourceExhausted
from reveille_scheduler.domain.occurrence import MOST_MESSAGE_CHARACTERS
from reveille_scheduler.domain.states import ExecutionState
from reveille_testkit.rpc import RpcRig

NOON = datetime(2030, 6, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


async def due(replica: Replica, *names: str) -> None:
    await replica.scopes.put([wish(name) for name in names])
    await start_at(replica, NOON + SECOND)


async def states(replica: Replica) -> dict[str, ExecutionState]:
    return {each.scope_id: each.state for each in await replica.ledger()}


async def test_a_plan_that_breaks_the_call_does_not_fail_the_others(
    replica: Replica, owner: Owner
) -> None:
    """The handler crashes on one plan; the others of its batch succeed."""

    def answer(plan: pb.Plan) -> pb.PlanResult:
        if plan.scope_id == "bad":
            raise RuntimeError("the handler has a bug")
        return succeeded(plan)

    owner.answer = answer
    names = [f"scope-{n}" for n in range(9)]
    await due(replica, *names, "bad")
    await replica.run()

    assert await states(replica) == {
        **dict.fromkeys(names, ExecutionState.SUCCESS),
        "bad": ExecutionState.FAILED,
    }
    bad = next(each for each in await replica.ledger() if each.scope_id == "bad")
    assert (bad.reason, bad.attempt) == ("handler_error", 1)


async def test_a_plan_whose_error_carries_rubbish_fails_alone_and_at_once(
    replica: Replica, owner: Owner
) -> None:
    status = status_pb2.Status(code=grpc.StatusCode.INTERNAL.value[0], message="oh")
    status.details.add().Pack(
        error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=10**15))
    )

    async def garble(request: pb.RunPlansRequest, context: Any) -> pb.RunPlansResponse:
        if any(plan.scope_id == "bad" for plan in request.plans):
            await context.abort_with_status(rpc_status.to_status(status))
        return pb.RunPlansResponse(results=[succeeded(plan) for plan in request.plans])

    owner.override = garble
    await due(replica, "good", "bad")
    await replica.run()

    assert await states(replica) == {"good": ExecutionState.SUCCESS, "bad": ExecutionState.FAILED}
    bad = next(each for each in await replica.ledger() if each.scope_id == "bad")
    assert (bad.reason, bad.attempt, bad.message) == ("handler_error", 1, "internal: oh")


async def test_an_answer_that_cannot_be_read_fails_the_plan_that_it_is_about(
    replica: Replica, rig: RpcRig
) -> None:
    """The handler does not speak the scheduler's protocol whenever it answers for one plan."""

    def read(raw: bytes) -> pb.RunPlansResponse:
        if b"of bad" in raw:
            raise DecodeError("Error parsing message")
        return pb.RunPlansResponse.FromString(raw)

    replica.handler.stub.RunPlans = rig.channel(rig.keys.service("scheduler")).unary_unary(
        "/reveille.scheduler.v1.JobHandlerService/RunPlans",
        request_serializer=pb.RunPlansRequest.SerializeToString,
        response_deserializer=read,
    )
    await due(replica, "good", "bad")
    await replica.run()

    assert await states(replica) == {"good": ExecutionState.SUCCESS, "bad": ExecutionState.FAILED}
    bad = next(each for each in await replica.ledger() if each.scope_id == "bad")
    assert (bad.reason, bad.attempt) == ("handler_error", 1)


@pytest.mark.parametrize(
    ("error", "attempt"),
    [
        (InvalidArgument.of("plans", "no"), 1),
        (DomainError("INTERNAL", "oh"), 1),
        (ResourceExhausted("OVERLOADED", "later"), 0),
    ],
)
async def test_a_refused_call_counts_and_a_busy_handler_does_not(
    replica: Replica, owner: Owner, error: DomainError, attempt: int
) -> None:
    async def refuse(request: pb.RunPlansRequest, context: object) -> pb.RunPlansResponse:
        raise error

    owner.override = refuse
    await due(replica, "one")
    await replica.run()

    execution = await replica.one()
    assert execution.state is ExecutionState.FAILED
    assert execution.attempt == attempt
    assert execution.next_retry_at is not None


async def test_a_handler_with_too_much_to_do_is_not_asked_plan_by_plan(
    replica: Replica, owner: Owner
) -> None:
    sizes: list[int] = []

    async def refuse(request: pb.RunPlansRequest, context: object) -> pb.RunPlansResponse:
        sizes.append(len(request.plans))
        raise ResourceExhausted("OVERLOADED", "later")

    owner.override = refuse
    names = [f"scope-{n}" for n in range(9)]
    await due(replica, *names)
    await replica.run()
    assert sizes == [9]
    assert {(each.state, each.attempt, each.message) for each in await replica.ledger()} == {
        (ExecutionState.FAILED, 0, "later")
    }

    # It is left alone for a while, then asked again.
    await replica.run()
    assert sizes == [9]
    owner.override = None
    await start_at(replica, NOON + timedelta(minutes=1))
    await replica.run()
    assert await states(replica) == dict.fromkeys(names, ExecutionState.SUCCESS)


async def test_a_handler_gets_its_jobs_run_timeout_and_no_attempt_is_lost(
    replica: Replica, owner: Owner
) -> None:
    """The deadline is the job's; a call without an answer may have done the work or not."""
    told: list[float] = []

    async def slow(request: pb.RunPlansRequest, context: object) -> pb.RunPlansResponse:
        told.append(context.time_remaining())  # type: ignore[attr-defined]  # a servicer's context
        await asyncio.Event().wait()
        raise AssertionError("unreachable: the deadline ends the wait")

    owner.override = slow
    await replica.jobs.register(replace(JOB, run_timeout=timedelta(milliseconds=300)))
    await due(replica, "one")
    await replica.run()

    execution = await replica.one()
    assert 0 < told[0] <= 0.35
    assert (execution.state, execution.attempt) == (ExecutionState.FAILED, 0)
    assert execution.reason == "handler_timeout"
    assert execution.next_retry_at is not None


async def test_a_plan_that_hangs_takes_the_others_of_its_call_with_it_only_at_first(
    replica: Replica, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reveille_scheduler.usecases.hand_over._MOST_TOGETHER", 8)

    async def hangs(request: pb.RunPlansRequest, context: object) -> pb.RunPlansResponse:
        if any(plan.scope_id == "bad" for plan in request.plans):
            await asyncio.Event().wait()
        return pb.RunPlansResponse(results=[succeeded(plan) for plan in request.plans])

    owner.override = hangs
    await replica.jobs.register(replace(JOB, run_timeout=timedelta(milliseconds=300)))
    names = [f"scope-{n}" for n in range(5)]
    await due(replica, *names, "bad")
    await replica.run()
    assert set((await states(replica)).values()) == {ExecutionState.FAILED}
    for _ in range(2):
        replica.database.move_clock(60)
        await replica.run()

    assert await states(replica) == {
        **dict.fromkeys(names, ExecutionState.SUCCESS),
        "bad": ExecutionState.FAILED,
    }


async def test_words_are_cut_at_a_character(replica: Replica, owner: Owner) -> None:
    def answer(plan: pb.Plan) -> pb.PlanResult:
        return pb.PlanResult(
            execution_id=plan.execution_id,
            outcome=pb.PLAN_OUTCOME_FAILED,
            error_message="é" * 3_000 + "𝄞" * 3_000 + "\x00",
        )

    owner.answer = answer
    await due(replica, "one")
    await replica.run()

    message = (await replica.one()).message
    assert len(message) == MOST_MESSAGE_CHARACTERS
    assert message.endswith("𝄞…")


async def test_a_handler_that_is_not_configured_costs_no_attempt(replica: Replica) -> None:
    await due(replica, "one")
    (claim,) = await replica.plan()
    await replica.hand_over(replace(claim, handler="elsewhere"))

    execution = await replica.one()
    assert (execution.state, execution.attempt) == (ExecutionState.FAILED, 0)
    assert "elsewhere" in execution.message


async def test_a_suspended_process_does_not_begin_what_others_may_have_taken_over(
    replica: Replica, owner: Owner
) -> None:
    """Between claim and call the process stood still for longer than its lease."""
    await due(replica, "one")
    (claim,) = await replica.plan()
    replica.elapsed += JOB.stale_timeout.total_seconds()
    await replica.hand_over(claim)

    assert owner.plans == []
    assert (await replica.one()).state is ExecutionState.RUNNING


async def test_no_half_of_a_call_is_begun_that_others_may_have_taken_over(
    replica: Replica, owner: Owner
) -> None:
    """The call failed for all after so long that its leases cannot be trusted any more."""

    async def dawdle(request: pb.RunPlansRequest, context: Any) -> pb.RunPlansResponse:
        replica.elapsed += JOB.stale_timeout.total_seconds()
        await context.abort(grpc.StatusCode.INTERNAL, "oh")
        raise AssertionError

    owner.override = dawdle
    await due(replica, "one", "two")
    await replica.run()

    assert len(owner.plans) == 2
    assert set((await states(replica)).values()) == {ExecutionState.RUNNING}


async def test_a_handler_that_answers_for_plans_it_was_not_given_is_not_believed(
    replica: Replica, owner: Owner
) -> None:
    async def confused(request: pb.RunPlansRequest, context: object) -> pb.RunPlansResponse:
        results = [succeeded(plan) for plan in request.plans if plan.scope_id != "forgotten"]
        results.append(pb.PlanResult(execution_id="x", outcome=pb.PLAN_OUTCOME_SUCCESS))
        return pb.RunPlansResponse(results=results)

    owner.override = confused
    await due(replica, "answered", "forgotten")
    await replica.run()

    assert await states(replica) == {
        "answered": ExecutionState.SUCCESS,
        "forgotten": ExecutionState.FAILED,
    }
