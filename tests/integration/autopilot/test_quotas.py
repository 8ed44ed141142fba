"""Quotas: how many runs a workspace may have in a period; the run row is the reservation."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TypeAlias
from uuid import UUID

import asyncpg
from tests.integration.autopilot.conftest import (
    CREATOR,
    Service,
    Stage,
    admit,
    blocked,
    facts,
    make_autopilot,
    make_schedule,
    make_webhook,
    plan,
    run_now,
    run_plan,
    set_quota,
    whole_second,
)
from tests.integration.autopilot.peers import World

from reveille.autopilot.v1 import autopilot_pb2 as rule_pb
from reveille.autopilot.v1 import autopilot_service_pb2 as pb
from reveille.autopilot.v1 import dispatch_service_pb2 as dispatch_pb
from reveille.autopilot.v1 import run_pb2
from reveille.autopilot.v1 import workspace_service_pb2 as workspace_pb
from reveille.common.v1 import reason_pb2
from reveille.heartbeat.v1 import issue_pb2, wakeup_pb2
from reveille_testkit.database import TestDatabase

Rows: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
OFF, OBSERVE, ENFORCE = (
    workspace_pb.QUOTA_ACTION_OFF,
    workspace_pb.QUOTA_ACTION_OBSERVE,
    workspace_pb.QUOTA_ACTION_ENFORCE,
)


async def usage(service: Service, workspace_id: UUID) -> pb.GetUsageResponse:
    response: pb.GetUsageResponse = await service.as_user(CREATOR).GetUsage(
        pb.GetUsageRequest(workspace_id=str(workspace_id))
    )
    return response


async def test_off_counts_nothing(
    service: Service, workspace_id: UUID, autopilot: rule_pb.Autopilot, rows: Rows
) -> None:
    await run_now(service, autopilot.autopilot_id)
    told = await usage(service, workspace_id)
    assert (told.action, told.used, told.limit) == (OFF, 0, 0)
    assert not told.HasField("period_start_time")
    assert await rows.fetchval("SELECT count(*) FROM quota_periods") == 0
    assert await rows.fetchval("SELECT count(quota_period_start) FROM runs") == 0


async def test_of_many_at_once_exactly_the_limit_runs(
    service: Service,
    stage: Stage,
    database: TestDatabase,
    workspace_id: UUID,
    autopilot: rule_pb.Autopilot,
    rows: Rows,
) -> None:
    other = await stage.start()
    await set_quota(service, workspace_id, ENFORCE, 5)
    await run_now(service, autopilot.autopilot_id, request_id="0")
    holder = await database.connect("reveille_autopilot_app")
    async with holder.transaction():
        await holder.execute("SELECT FROM quota_periods FOR UPDATE")
        running = [
            asyncio.ensure_future(
                run_now(
                    (service, other)[number % 2], autopilot.autopilot_id, request_id=str(number)
                )
            )
            for number in range(25)
        ]
        await blocked(rows, 2)
    found = await asyncio.gather(*running)
    assert Counter(run.state for run in found) == {
        run_pb2.RUN_STATE_RUNNING: 5,
        run_pb2.RUN_STATE_SKIPPED: 20,
    }
    assert {run.reason for run in found if run.state == run_pb2.RUN_STATE_SKIPPED} == {
        reason_pb2.REASON_QUOTA_EXCEEDED
    }
    # The same request gets the same run, quota or no quota.
    assert (await run_now(service, autopilot.autopilot_id, request_id="0")).run_id == found[
        0
    ].run_id
    told = await usage(service, workspace_id)
    assert (told.used, told.limit, dict(told.blocked_counts)) == (5, 5, {"manual": 20})


async def test_observing_refuses_nothing_until_it_is_enforced(
    service: Service, world: World, workspace_id: UUID, autopilot: rule_pb.Autopilot
) -> None:
    await set_quota(service, workspace_id, OBSERVE, 1)
    runs = [await run_now(service, autopilot.autopilot_id) for _ in range(3)]
    assert {run.state for run in runs} == {run_pb2.RUN_STATE_RUNNING}
    assert (await usage(service, workspace_id)).used == 3
    await set_quota(service, workspace_id, ENFORCE, 3)
    refused = await run_now(service, autopilot.autopilot_id)
    assert refused.reason == reason_pb2.REASON_QUOTA_EXCEEDED
    # A run that ends without having made anything gives its place back, whatever is counted then.
    await set_quota(service, workspace_id, OFF)
    made = world.made[runs[0].occurrence_key]
    await world.emit(world.settled(made, wakeup_pb2.WAKEUP_STATE_FAILED, reason="run_timeout"))
    await service.ended(runs[0].run_id)
    await set_quota(service, workspace_id, ENFORCE, 3)
    assert (await usage(service, workspace_id)).used == 2
    assert (await run_now(service, autopilot.autopilot_id)).state == run_pb2.RUN_STATE_RUNNING


async def test_an_issue_that_was_made_stays_counted_in_its_own_period(
    service: Service, world: World, workspace_id: UUID
) -> None:
    rule = await make_autopilot(service, world, workspace_id, issue=True)
    await set_quota(service, workspace_id, ENFORCE, 1)
    run = await run_now(service, rule.autopilot_id)
    made = world.made[run.occurrence_key]
    await world.emit(world.moved(made, issue_pb2.ISSUE_STATUS_CANCELLED))
    await service.ended(run.run_id)
    assert (await usage(service, workspace_id)).used == 1
    again = await run_now(service, rule.autopilot_id)
    assert again.reason == reason_pb2.REASON_QUOTA_EXCEEDED
    # The next day has a limit of its own.
    service.move_clock(86_400)
    told = await usage(service, workspace_id)
    assert (told.used, dict(told.blocked_counts)) == (0, {})
    assert (await run_now(service, rule.autopilot_id)).state == run_pb2.RUN_STATE_ISSUE_CREATED


async def test_every_source_over_quota_leaves_a_skipped_run_and_is_counted(
    service: Service, workspace_id: UUID, autopilot: rule_pb.Autopilot
) -> None:
    await set_quota(service, workspace_id, ENFORCE, 0)
    trigger = await make_schedule(service, autopilot.autopilot_id)
    hook = await make_webhook(service, autopilot.autopilot_id)
    (planned,) = await run_plan(service, plan(trigger, whole_second()))
    assert b'"skipped_reason": "quota_exceeded"' in planned.result
    (answer,) = await admit(service, facts(hook.trigger))
    assert answer.outcome == dispatch_pb.ADMIT_OUTCOME_SKIPPED
    assert answer.reason == reason_pb2.REASON_QUOTA_EXCEEDED
    assert (await run_now(service, autopilot.autopilot_id)).state == run_pb2.RUN_STATE_SKIPPED
    by_program = await service.as_service().RunAutopilot(
        pb.RunAutopilotRequest(autopilot_id=autopilot.autopilot_id)
    )
    assert by_program.run.state == run_pb2.RUN_STATE_SKIPPED
    told = await usage(service, workspace_id)
    assert dict(told.blocked_counts) == {"schedule": 1, "webhook": 1, "manual": 1, "api": 1}


async def test_workspaces_do_not_share_a_quota(
    service: Service, world: World, workspace_id: UUID, autopilot: rule_pb.Autopilot
) -> None:
    await set_quota(service, workspace_id, ENFORCE, 0)
    other = (
        await service.workspaces().CreateWorkspace(
            workspace_pb.CreateWorkspaceRequest(
                name="Other", issue_prefix="OTH", owner_user_id=CREATOR
            )
        )
    ).workspace
    rule = await make_autopilot(service, world, UUID(other.workspace_id))
    assert (await run_now(service, rule.autopilot_id)).state == run_pb2.RUN_STATE_RUNNING
    assert (await run_now(service, autopilot.autopilot_id)).state == run_pb2.RUN_STATE_SKIPPED
