"""From due to settled: one occurrence, one execution, one explained end."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

import pytest
from opentelemetry.sdk.trace import ReadableSpan
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
from reveille_runtime.carrier import SpanSeed
from reveille_scheduler.domain.rule import CronRule
from reveille_scheduler.domain.states import ExecutionState
from reveille_testkit.database import TestDatabase
from reveille_testkit.rpc import RpcRig, SpanLog

NOON = datetime(2030, 6, 1, 12, tzinfo=UTC)


def unavailable(plan: pb.Plan) -> pb.PlanResult:
    return pb.PlanResult(
        execution_id=plan.execution_id,
        outcome=pb.PLAN_OUTCOME_UNAVAILABLE,
        error_message="a neighbour is away",
    )


async def test_a_due_scope_is_handed_over_once_and_settled(replica: Replica, owner: Owner) -> None:
    await start_at(replica, NOON - timedelta(hours=1))
    await replica.scopes.put([wish()])
    await replica.run()
    assert owner.plans == []

    await start_at(replica, NOON + timedelta(seconds=1))
    await replica.run()
    await replica.run()

    execution = await replica.one()
    assert [plan.scope_id for plan in owner.plans] == ["nightly"]
    assert execution.plan_time == NOON
    assert execution.state is ExecutionState.SUCCESS
    assert execution.attempt == 1
    assert execution.result == {"run_id": "of nightly"}


async def test_two_replicas_planning_at_once_claim_an_occurrence_once(
    replica: Replica, database: TestDatabase, rig: RpcRig, owner: Owner
) -> None:
    other = Replica(await database.open("scheduler"), rig, "other")
    await replica.scopes.put([wish(f"scope-{n}") for n in range(50)])
    await start_at(replica, NOON + timedelta(seconds=1))
    await start_at(other, NOON + timedelta(seconds=1))

    await asyncio.gather(replica.run(), other.run(), replica.run(), other.run())

    assert sorted(plan.scope_id for plan in owner.plans) == sorted(f"scope-{n}" for n in range(50))
    assert len(await replica.ledger()) == 50


async def test_what_is_found_too_late_is_recorded_and_not_executed(
    replica: Replica, owner: Owner
) -> None:
    await replica.scopes.put([wish()])
    await start_at(replica, NOON + timedelta(minutes=6))
    await replica.run()

    execution = await replica.one()
    assert owner.plans == []
    assert execution.state is ExecutionState.SKIPPED
    assert execution.reason == "too_late"
    assert "360 s after its time" in execution.message


async def test_folded_occurrences_are_counted_in_the_one_that_runs(replica: Replica) -> None:
    await replica.scopes.put([wish(cron="*/5 * * * *", since=NOON - timedelta(hours=1))])
    await start_at(replica, NOON + timedelta(seconds=1))
    await replica.run()

    execution = await replica.one()
    assert execution.plan_time == NOON
    assert execution.collapsed == 11


async def test_a_failed_attempt_is_tried_again_at_its_own_plan_time(
    replica: Replica, owner: Owner
) -> None:
    owner.answer = failed
    await replica.scopes.put([wish()])
    await start_at(replica, NOON + timedelta(seconds=1))
    await replica.run()

    first = await replica.one()
    assert first.state is ExecutionState.FAILED
    assert first.reason == "handler_error"
    assert first.message == "disk_full: no space"
    assert first.next_retry_at is not None

    await replica.run()
    assert len(owner.plans) == 1

    owner.answer = succeeded
    await start_at(replica, first.next_retry_at + timedelta(seconds=1))
    await replica.run()

    second = await replica.one()
    assert second.state is ExecutionState.SUCCESS
    assert second.attempt == 2
    assert second.plan_time == NOON
    assert second.message == ""


async def test_the_attempts_end(replica: Replica, owner: Owner) -> None:
    owner.answer = failed
    await replica.scopes.put([wish()])
    moment = NOON + timedelta(seconds=1)
    for _ in range(5):
        await start_at(replica, moment)
        await replica.run()
        moment += timedelta(minutes=6)

    execution = await replica.one()
    assert len(owner.plans) == JOB.max_attempts
    assert execution.state is ExecutionState.FAILED
    assert execution.next_retry_at is None
    assert execution.attempt == JOB.max_attempts


async def test_what_cannot_be_decided_costs_no_attempt(replica: Replica, owner: Owner) -> None:
    owner.answer = unavailable
    await replica.scopes.put([wish()])
    moment = NOON + timedelta(seconds=1)
    for _ in range(6):
        await start_at(replica, moment)
        await replica.run()
        moment += timedelta(minutes=2)

    execution = await replica.one()
    assert len(owner.plans) == 6
    assert execution.attempt == 0
    assert execution.next_retry_at is not None

    owner.answer = succeeded
    await start_at(replica, moment)
    await replica.run()

    assert (await replica.one()).attempt == 1


async def test_giving_back_ends_with_the_retry_deadline(replica: Replica, owner: Owner) -> None:
    owner.answer = unavailable
    await replica.scopes.put([wish()])
    await start_at(replica, NOON + timedelta(seconds=1))
    await replica.run()
    await start_at(replica, NOON + JOB.retry_deadline)
    await replica.run()

    execution = await replica.one()
    assert execution.state is ExecutionState.FAILED
    assert execution.next_retry_at is None
    assert execution.reason == "retry_deadline"
    assert "a neighbour is away" in execution.message


@pytest.mark.parametrize("edit", ["changed", "switched off", "deleted"])
async def test_a_retry_that_its_rule_has_overtaken_is_skipped(
    replica: Replica, owner: Owner, edit: str
) -> None:
    owner.answer = failed
    await replica.scopes.put([wish()])
    await start_at(replica, NOON + timedelta(seconds=1))
    await replica.run()
    match edit:
        case "changed":
            await replica.scopes.put([wish(revision=2, cron="0 18 * * *", since=None)])
        case "switched off":
            await replica.scopes.put([wish(revision=2, enabled=False)])
        case _:
            from reveille_scheduler.domain.scope import ScopeDeletion

            await replica.scopes.delete([ScopeDeletion("tidy", "folder", "nightly", 2)])
    await start_at(replica, NOON + timedelta(minutes=2))
    await replica.run()

    execution = await replica.one()
    assert len(owner.plans) == 1
    assert execution.state is ExecutionState.SKIPPED
    assert execution.reason == "superseded"


async def test_a_scope_runs_one_occurrence_at_a_time(replica: Replica, owner: Owner) -> None:
    owner.may_answer.clear()
    await replica.scopes.put([wish(cron="* * * * *", since=NOON - timedelta(seconds=1))])
    await start_at(replica, NOON + timedelta(seconds=1))
    claims = await replica.plan()
    work = asyncio.ensure_future(replica.hand_over(claims[0]))
    await owner.called.wait()

    await start_at(replica, NOON + timedelta(minutes=2, seconds=1))
    assert await replica.plan() == []

    owner.may_answer.set()
    await work
    (following,) = await replica.plan()
    assert following.plan_time == NOON + timedelta(minutes=2)


async def test_a_bad_rule_stops_nobody_else(
    replica: Replica, database: TestDatabase, owner: Owner
) -> None:
    await replica.scopes.put([wish("good"), wish("bad")])
    admin = await database.admin()
    await admin.execute("UPDATE scheduler.scopes SET cron = '99 * * * *' WHERE scope_id = 'bad'")
    await start_at(replica, NOON + timedelta(seconds=1))
    await replica.run()

    assert [plan.scope_id for plan in owner.plans] == ["good"]
    scopes = {scope.id: scope for scope in await replica.scopes.page("tidy", None, 10)}
    assert "minute" in scopes["bad"].plan_error
    assert scopes["bad"].next_plan_at is None


async def test_an_older_revision_changes_nothing_also_after_a_deletion(replica: Replica) -> None:
    from reveille_scheduler.domain.scope import ScopeDeletion

    await replica.scopes.put([wish(revision=3)])
    await replica.scopes.put([wish(revision=2, cron="0 1 * * *")])
    await replica.scopes.delete([ScopeDeletion("tidy", "folder", "nightly", 1)])
    (kept,) = await replica.scopes.page("tidy", None, 10)
    assert (kept.rule, kept.deleted) == (CronRule("0 12 * * *", "UTC"), False)

    await replica.scopes.delete([ScopeDeletion("tidy", "folder", "nightly", 4)])
    (stored,) = await replica.scopes.put([wish(revision=3)])
    assert stored.deleted


@pytest.mark.parametrize(
    ("raw", "kept"),
    [
        (b'{"a":1}', {"a": 1}),
        (b"", {}),
        (b"[1]", {"truncated": True, "bytes": 3, "excerpt": "[1]"}),
        (b'{"a":1e999}', {"truncated": True, "bytes": 11, "excerpt": '{"a":1e999}'}),
        (
            json.dumps({"x": "é" * 20_000}).encode(),
            {"truncated": True, "bytes": 120_009},
        ),
        (b'{"x":"\\u0000"}', {"truncated": True, "bytes": 14}),
    ],
)
async def test_a_result_of_any_shape_is_kept_or_marked(
    replica: Replica, owner: Owner, raw: bytes, kept: dict[str, object]
) -> None:
    def answer(plan: pb.Plan) -> pb.PlanResult:
        result = succeeded(plan)
        result.result = raw
        return result

    owner.answer = answer
    await replica.scopes.put([wish()])
    await start_at(replica, NOON + timedelta(seconds=1))
    await replica.run()

    execution = await replica.one()
    assert execution.state is ExecutionState.SUCCESS
    assert kept.items() <= dict(execution.result).items()


async def test_a_plan_that_the_answer_leaves_out_has_failed(replica: Replica, owner: Owner) -> None:
    def answer(plan: pb.Plan) -> pb.PlanResult:
        return pb.PlanResult(execution_id="something else")

    owner.answer = answer
    await replica.scopes.put([wish()])
    await start_at(replica, NOON + timedelta(seconds=1))
    await replica.run()

    assert (await replica.one()).reason == "handler_error"


async def test_one_trace_holds_the_occurrence_its_attempts_and_what_the_handler_gets(
    replica: Replica, owner: Owner, spans: SpanLog
) -> None:
    owner.answer = failed
    await replica.scopes.put([wish()])
    await start_at(replica, NOON + timedelta(seconds=1))
    await replica.run()
    owner.answer = succeeded
    await start_at(replica, NOON + timedelta(minutes=2))
    await replica.run()

    seed = SpanSeed.from_carrier((await replica.one()).carrier)
    assert seed is not None
    (root,) = spans.named("schedule tidy")
    attempts = spans.named("process tidy")
    assert _span_id(root) == seed.span_id
    assert len(attempts) == 2
    for span, plan in zip(attempts, owner.plans, strict=True):
        assert span.parent is not None
        assert span.parent.span_id == seed.span_id
        told = SpanSeed.from_carrier(dict(plan.trace_carrier))
        assert told is not None
        assert (told.trace_id, told.span_id) == (
            seed.trace_id,
            _span_id(span),
        )


def _span_id(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id
