"""Planned occurrences: one run each, on the planned date, and every answer that the ledger gets."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import asyncpg
import grpc
import pytest
from tests.integration.autopilot.conftest import (
    ADMIN,
    CREATOR,
    Service,
    make_autopilot,
    make_schedule,
    make_webhook,
    plan,
    refused,
    run_now,
    run_plan,
    whole_second,
)
from tests.integration.autopilot.peers import Gate, World

from reveille.autopilot.v1 import autopilot_pb2 as rule_pb
from reveille.autopilot.v1 import autopilot_service_pb2 as pb
from reveille.autopilot.v1 import run_pb2
from reveille.common.v1 import reason_pb2
from reveille.heartbeat.v1 import issue_pb2, wakeup_pb2
from reveille.scheduler.v1 import job_handler_service_pb2 as plan_pb
from reveille.scheduler.v1.job_handler_service_pb2_grpc import JobHandlerServiceStub
from reveille_autopilot.domain.deadlines import LATE


def facts_of(result: plan_pb.PlanResult) -> dict[str, str]:
    assert result.outcome == plan_pb.PLAN_OUTCOME_SUCCESS, result
    facts: dict[str, str] = json.loads(result.result)
    return facts


async def test_a_plan_becomes_one_run_under_its_canonical_key(
    service: Service, world: World, autopilot: rule_pb.Autopilot
) -> None:
    trigger = await make_schedule(service, autopilot.autopilot_id)
    planned_at = whole_second()
    first, again = await asyncio.gather(
        run_plan(service, plan(trigger, planned_at)),
        run_plan(service, plan(trigger, planned_at, attempt=2)),
    )
    other = await run_plan(service, plan(trigger, planned_at + timedelta(days=1)))

    facts = facts_of(first[0])
    assert facts["run_state"] == "running"
    assert facts_of(again[0])["run_id"] == facts["run_id"]
    assert facts_of(other[0])["run_id"] != facts["run_id"]
    run = await service.run_of(facts["run_id"])
    assert run.occurrence_key == (
        f"schedule:{trigger.trigger_id}:{planned_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    )
    assert run.planned_time.ToDatetime(tzinfo=UTC) == planned_at
    assert run.source == run_pb2.RUN_SOURCE_SCHEDULE
    assert len(world.made) == 2


async def test_the_title_has_the_planned_date_in_the_triggers_zone(
    service: Service, world: World, workspace_id: UUID
) -> None:
    autopilot = await make_autopilot(service, world, workspace_id, issue=True)
    trigger = await make_schedule(service, autopilot.autopilot_id, zone="Asia/Tokyo")
    # Retried the next day in UTC, and still a different day in Tokyo when it was planned.
    result = await run_plan(service, plan(trigger, datetime(2026, 3, 1, 16, tzinfo=UTC)))
    run = await service.run_of(facts_of(result[0])["run_id"])
    assert run.title == "Triage of 2026-03-02"


async def test_what_must_not_run_is_a_success_with_a_reason_and_no_run(
    service: Service, autopilot: rule_pb.Autopilot, rows: asyncpg.Connection[asyncpg.Record]
) -> None:
    trigger = await make_schedule(service, autopilot.autopilot_id)
    hook = await make_webhook(service, autopilot.autopilot_id)
    now = whole_second()
    unknown = rule_pb.Trigger(trigger_id=str(uuid4()))
    answers = await run_plan(service, plan(unknown, now), plan(hook.trigger, now))
    assert [facts_of(each)["skipped_reason"] for each in answers] == ["trigger_not_found"] * 2

    stub = service.as_user(CREATOR)
    await stub.PauseAutopilot(pb.PauseAutopilotRequest(autopilot_id=autopilot.autopilot_id))
    (paused,) = await run_plan(service, plan(trigger, now))
    assert facts_of(paused) == {"skipped_reason": "autopilot_paused"}
    await stub.ResumeAutopilot(pb.ResumeAutopilotRequest(autopilot_id=autopilot.autopilot_id))
    await stub.DeleteTrigger(pb.DeleteTriggerRequest(trigger_id=trigger.trigger_id))
    (deleted,) = await run_plan(service, plan(trigger, now))
    assert facts_of(deleted) == {"skipped_reason": "trigger_not_found"}
    assert await rows.fetchval("SELECT count(*) FROM runs") == 0


async def test_a_refusal_after_the_gate_is_a_skipped_run(
    service: Service, world: World, autopilot: rule_pb.Autopilot
) -> None:
    trigger = await make_schedule(service, autopilot.autopilot_id)
    world.refusal = reason_pb2.REASON_AGENT_RUNTIME_REQUIRED
    (result,) = await run_plan(service, plan(trigger, whole_second()))
    facts = facts_of(result)
    assert facts["run_state"] == "skipped"
    assert facts["skipped_reason"] == "agent_runtime_required"
    run = await service.run_of(facts["run_id"])
    assert run.reason == reason_pb2.REASON_AGENT_RUNTIME_REQUIRED


async def test_an_outage_gives_the_attempt_back_and_the_retry_finishes_the_same_run(
    service: Service,
    world: World,
    autopilot: rule_pb.Autopilot,
    rows: asyncpg.Connection[asyncpg.Record],
) -> None:
    trigger = await make_schedule(service, autopilot.autopilot_id)
    planned_at = whole_second()
    world.away = {"CheckInvocable"}
    (undecided,) = await run_plan(service, plan(trigger, planned_at))
    assert undecided.outcome == plan_pb.PLAN_OUTCOME_UNAVAILABLE
    assert await rows.fetchval("SELECT count(*) FROM runs") == 0

    world.away = {"EnqueueWakeups"}
    (pending,) = await run_plan(service, plan(trigger, planned_at))
    assert pending.outcome == plan_pb.PLAN_OUTCOME_UNAVAILABLE
    assert await rows.fetchval("SELECT state FROM runs") == "pending"

    world.away = set()
    (done,) = await run_plan(service, plan(trigger, planned_at, attempt=2))
    assert facts_of(done)["run_state"] == "running"
    assert await rows.fetchval("SELECT count(*) FROM runs") == 1


async def test_a_run_is_given_up_only_after_its_key_was_cancelled_and_a_retry_makes_a_clean_one(
    service: Service,
    world: World,
    autopilot: rule_pb.Autopilot,
    rows: asyncpg.Connection[asyncpg.Record],
) -> None:
    trigger = await make_schedule(service, autopilot.autopilot_id)
    planned_at = whole_second()
    world.away = {"EnqueueWakeups", "CancelWakeups"}
    await run_plan(service, plan(trigger, planned_at))
    service.move_clock(3700)
    await service.tick("sweep")
    # It cannot be cancelled, so it cannot be given up either.
    assert await rows.fetchval("SELECT state FROM runs") == "pending"

    world.away = {"EnqueueWakeups"}
    service.move_clock(120)
    await service.tick("sweep")
    row = await rows.fetchrow(
        "SELECT id, state, reason, occurrence_key, planned_at, given_up_planned_at FROM runs"
    )
    assert row is not None
    assert (row["state"], row["reason"]) == ("failed", "dispatch_incomplete")
    assert (row["planned_at"], row["given_up_planned_at"]) == (None, planned_at)
    key = row["occurrence_key"]
    assert world.made[key].state == wakeup_pb2.WAKEUP_STATE_CANCELLED

    world.away = set()
    (retried,) = await run_plan(service, plan(trigger, planned_at, attempt=2))
    facts = facts_of(retried)
    assert facts["run_id"] != str(row["id"])
    clean = await service.run_of(facts["run_id"])
    assert clean.occurrence_key == f"{key}#2"
    assert clean.state == run_pb2.RUN_STATE_RUNNING
    assert (await service.run_of(str(row["id"]))).planned_time.ToDatetime(tzinfo=UTC) == planned_at


async def test_a_plan_whose_run_is_given_up_while_it_waits_is_asked_for_again(
    service: Service,
    world: World,
    autopilot: rule_pb.Autopilot,
    rows: asyncpg.Connection[asyncpg.Record],
) -> None:
    trigger = await make_schedule(service, autopilot.autopilot_id)
    planned_at = whole_second() - timedelta(hours=2)
    gate = world.before["EnqueueWakeups"] = Gate()
    calling = asyncio.create_task(run_plan(service, plan(trigger, planned_at)))
    await gate.reached.wait()
    service.move_clock(LATE.total_seconds() + 1)
    await service.tick("sweep")
    given_up = await rows.fetchrow("SELECT id, reason, occurrence_key FROM runs")
    assert given_up is not None
    assert given_up["reason"] == "dispatch_incomplete"
    gate.release.set()
    (unsettled,) = await calling
    assert unsettled.outcome == plan_pb.PLAN_OUTCOME_UNAVAILABLE

    (done,) = await run_plan(service, plan(trigger, planned_at, attempt=2))
    clean = await service.run_of(facts_of(done)["run_id"])
    assert clean.occurrence_key == f"{given_up['occurrence_key']}#2"
    assert clean.state == run_pb2.RUN_STATE_RUNNING


async def test_a_dispatch_that_meets_its_key_while_it_is_given_up_does_not_use_the_occurrence_up(
    service: Service,
    world: World,
    autopilot: rule_pb.Autopilot,
    rows: asyncpg.Connection[asyncpg.Record],
) -> None:
    trigger = await make_schedule(service, autopilot.autopilot_id)
    planned_at = whole_second() - timedelta(hours=2)
    enqueue = world.before["EnqueueWakeups"] = Gate()
    calling = asyncio.create_task(run_plan(service, plan(trigger, planned_at)))
    await enqueue.reached.wait()
    # The key is cancelled already, and who gives the run up does not know it yet.
    cancel = world.after["CancelWakeups"] = Gate()
    service.move_clock(LATE.total_seconds() + 1)
    sweeping = asyncio.create_task(service.tick("sweep"))
    await cancel.reached.wait()
    enqueue.release.set()
    (unsettled,) = await calling
    assert unsettled.outcome == plan_pb.PLAN_OUTCOME_UNAVAILABLE
    cancel.release.set()
    await sweeping
    assert await rows.fetchval("SELECT reason FROM runs") == "dispatch_incomplete"

    (done,) = await run_plan(service, plan(trigger, planned_at, attempt=2))
    clean = await service.run_of(facts_of(done)["run_id"])
    assert clean.occurrence_key.endswith("#2")
    assert clean.state == run_pb2.RUN_STATE_RUNNING


@pytest.mark.parametrize("issue", [False, True])
async def test_an_event_that_overtakes_the_sweep_does_not_use_the_occurrence_up(
    issue: bool,
    service: Service,
    world: World,
    workspace_id: UUID,
    rows: asyncpg.Connection[asyncpg.Record],
) -> None:
    rule = await make_autopilot(service, world, workspace_id, issue=issue)
    trigger = await make_schedule(service, rule.autopilot_id)
    planned_at = whole_second()
    # It is made, but the answer is lost until the run's time is over.
    world.mute = {"EnqueueWakeups", "CreateIssue"}
    await run_plan(service, plan(trigger, planned_at))
    made = world.only()
    cancel = world.after["CancelWakeups"] = Gate()
    service.move_clock(3700)
    sweeping = asyncio.create_task(service.tick("sweep"))
    await cancel.reached.wait()
    # Heartbeat has cancelled it for the sweep, which has not heard of that when the feed brings it.
    await world.emit(
        world.settled(made, wakeup_pb2.WAKEUP_STATE_CANCELLED),
        *([world.moved(made, issue_pb2.ISSUE_STATUS_CANCELLED)] if issue else []),
    )
    await followed(service, world, workspace_id)
    assert (
        await rows.fetchval("SELECT state FROM runs WHERE occurrence_key = $1", made.key)
        == "pending"
    )
    cancel.release.set()
    await sweeping
    row = await rows.fetchrow(
        "SELECT state, reason, planned_at FROM runs WHERE occurrence_key = $1", made.key
    )
    assert row is not None
    assert tuple(row) == ("failed", "dispatch_incomplete", None)

    world.mute = set()
    (done,) = await run_plan(service, plan(trigger, planned_at, attempt=2))
    clean = await service.run_of(facts_of(done)["run_id"])
    assert clean.occurrence_key == f"{made.key}#2"


async def followed(service: Service, world: World, workspace_id: UUID) -> None:
    """Wait until everything in the feed so far was acted on: the end of another run comes last."""
    world.mute, muted = set(), world.mute
    other = await make_autopilot(service, world, workspace_id)
    run = await run_now(service, other.autopilot_id)
    made = world.made[run.occurrence_key]
    await world.emit(world.settled(made, wakeup_pb2.WAKEUP_STATE_COMPLETED))
    await service.ended(run.run_id)
    world.mute = muted


async def test_a_plan_that_comes_hours_late_outlives_a_call_that_failed(
    service: Service,
    world: World,
    autopilot: rule_pb.Autopilot,
    rows: asyncpg.Connection[asyncpg.Record],
) -> None:
    trigger = await make_schedule(service, autopilot.autopilot_id)
    planned_at = whole_second() - timedelta(hours=20)
    world.away = {"EnqueueWakeups"}
    (pending,) = await run_plan(service, plan(trigger, planned_at))
    assert pending.outcome == plan_pb.PLAN_OUTCOME_UNAVAILABLE
    service.move_clock(15)
    await service.tick("sweep")
    assert await rows.fetchval("SELECT state FROM runs") == "pending"
    world.away = set()
    (done,) = await run_plan(service, plan(trigger, planned_at, attempt=2))
    assert facts_of(done)["run_state"] == "running"
    assert await rows.fetchval("SELECT count(*) FROM runs") == 1


async def test_a_run_whose_wakeup_had_ended_is_not_given_up_but_takes_its_outcome(
    service: Service, world: World, autopilot: rule_pb.Autopilot
) -> None:
    trigger = await make_schedule(service, autopilot.autopilot_id)
    # The wakeup is made and ends, but every answer about it is lost until the deadline.
    world.mute = {"EnqueueWakeups"}
    (pending,) = await run_plan(service, plan(trigger, whole_second()))
    assert pending.outcome == plan_pb.PLAN_OUTCOME_UNAVAILABLE
    made = world.only()
    made.state = wakeup_pb2.WAKEUP_STATE_COMPLETED
    made.result = {"summary": "done long ago"}
    service.move_clock(3700)
    await service.tick("sweep")
    service.move_clock(60)
    await service.tick("sweep")

    listed = await service.as_user(CREATOR).ListRuns(
        pb.ListRunsRequest(workspace_id=trigger.workspace_id)
    )
    (ended,) = listed.runs
    assert ended.state == run_pb2.RUN_STATE_COMPLETED
    whole = await service.run_of(ended.run_id)
    assert json.loads(whole.result)["summary"] == "done long ago"


async def test_an_edit_moves_responsibility_for_later_runs_only(
    service: Service, autopilot: rule_pb.Autopilot
) -> None:
    trigger = await make_schedule(service, autopilot.autopilot_id)
    now = whole_second()
    (before,) = await run_plan(service, plan(trigger, now))
    admin = service.as_user(ADMIN)
    await admin.PauseAutopilot(pb.PauseAutopilotRequest(autopilot_id=autopilot.autopilot_id))
    resumed = await admin.ResumeAutopilot(
        pb.ResumeAutopilotRequest(autopilot_id=autopilot.autopilot_id)
    )
    (after,) = await run_plan(service, plan(trigger, now + timedelta(hours=1)))

    old = await service.run_of(facts_of(before)["run_id"])
    new = await service.run_of(facts_of(after)["run_id"])
    assert (old.accountable_user_id, new.accountable_user_id) == (CREATOR, ADMIN)
    assert new.rule_version_id == resumed.autopilot.rule_version_id != old.rule_version_id


async def test_a_publisher_who_left_is_replaced_by_the_next_in_the_chain(
    service: Service,
    world: World,
    autopilot: rule_pb.Autopilot,
    rows: asyncpg.Connection[asyncpg.Record],
    workspace_id: UUID,
) -> None:
    trigger = await make_schedule(service, autopilot.autopilot_id)
    await rows.execute("DELETE FROM members WHERE user_id = $1", CREATOR)
    now = whole_second()
    (result,) = await run_plan(service, plan(trigger, now))
    run = await service.run_of(facts_of(result)["run_id"], ADMIN)
    assert run.accountable_user_id == "agent-owner"
    assert run.attribution_source == run_pb2.ATTRIBUTION_SOURCE_OWNER_FALLBACK
    # Whether the agent was the publisher's to wake is asked all the same.
    asked = world.questions[-1]
    assert (asked.principal_user_id, asked.principal_is_member) == (CREATOR, True)

    await rows.execute("UPDATE workspaces SET attribution_fail_closed = true")
    (blocked,) = await run_plan(service, plan(trigger, now + timedelta(hours=1)))
    run = await service.run_of(facts_of(blocked)["run_id"], ADMIN)
    assert run.state == run_pb2.RUN_STATE_SKIPPED
    assert run.reason == reason_pb2.REASON_ATTRIBUTION_BLOCKED


async def test_an_agent_that_was_not_theirs_to_wake_is_not_woken_because_they_left(
    service: Service,
    world: World,
    autopilot: rule_pb.Autopilot,
    rows: asyncpg.Connection[asyncpg.Record],
) -> None:
    world.private.add(autopilot.agent_id)
    trigger = await make_schedule(service, autopilot.autopilot_id)
    now = whole_second()
    (before,) = await run_plan(service, plan(trigger, now))
    await rows.execute("DELETE FROM members WHERE user_id = $1", CREATOR)
    (after,) = await run_plan(service, plan(trigger, now + timedelta(hours=1)))

    for result in (before, after):
        run = await service.run_of(facts_of(result)["run_id"], ADMIN)
        assert run.reason == reason_pb2.REASON_INVOCATION_NOT_ALLOWED
    assert not world.made


async def test_plans_that_make_no_sense_fail_alone(
    service: Service, autopilot: rule_pb.Autopilot
) -> None:
    trigger = await make_schedule(service, autopilot.autopilot_id)
    good = plan(trigger, whole_second())
    foreign = plan(trigger, whole_second())
    foreign.job_name = "retention"
    bad_scope = plan(rule_pb.Trigger(trigger_id="nonsense"), whole_second())
    crooked = plan(trigger, datetime(2026, 3, 1, 9, 0, 0, 1000, tzinfo=UTC))
    finer = plan(trigger, whole_second())
    finer.plan_time.nanos = 1
    results = await run_plan(service, foreign, bad_scope, crooked, finer, good)
    assert [result.error_code for result in results] == [
        "unknown_job",
        "bad_scope",
        "bad_plan_time",
        "bad_plan_time",
        "",
    ]
    assert results[4].outcome == plan_pb.PLAN_OUTCOME_SUCCESS


async def test_only_the_scheduler_may_hand_plans_over(service: Service) -> None:
    stub = JobHandlerServiceStub(service.channel(service.keys.service("heartbeat")))
    async with refused(grpc.StatusCode.PERMISSION_DENIED, "CALLER_NOT_ALLOWED"):
        await stub.RunPlans(plan_pb.RunPlansRequest())
