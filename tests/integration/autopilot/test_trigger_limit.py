"""How many triggers a rule may have: counted under its lock, and no obstacle to editing fewer."""

from __future__ import annotations

import asyncio
from typing import TypeAlias
from uuid import UUID

import asyncpg
import grpc
from tests.integration.autopilot.conftest import (
    CREATOR,
    Service,
    blocked,
    edit_trigger,
    make_schedule,
    refused,
)

from reveille.autopilot.v1 import autopilot_pb2 as rule_pb
from reveille.autopilot.v1 import autopilot_service_pb2 as pb
from reveille_autopilot.domain.accepting import MAX_TRIGGERS
from reveille_testkit.database import TestDatabase

Rows: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


async def multiply(rows: Rows, trigger: rule_pb.Trigger, copies: int) -> None:
    """Give a rule more triggers like one it has."""
    await rows.execute(
        "INSERT INTO triggers (id, autopilot_id, workspace_id, kind, enabled, label, cron,"
        " time_zone, publisher_user_id, synced_revision)"
        " SELECT gen_random_uuid(), autopilot_id, workspace_id, kind, enabled, label, cron,"
        " time_zone, publisher_user_id, revision FROM triggers, generate_series(1, $2)"
        " WHERE id = $1",
        UUID(trigger.trigger_id),
        copies,
    )


async def count(rows: Rows) -> int:
    number: int = await rows.fetchval("SELECT count(*) FROM triggers WHERE deleted_at IS NULL")
    return number


async def test_of_two_who_add_the_last_trigger_that_fits_one_is_refused(
    service: Service, autopilot: rule_pb.Autopilot, rows: Rows, database: TestDatabase
) -> None:
    rule_id = autopilot.autopilot_id
    await multiply(rows, await make_schedule(service, rule_id), MAX_TRIGGERS - 2)
    holder = await database.connect("reveille_autopilot_app")
    async with holder.transaction():
        await holder.execute("SELECT FROM autopilots WHERE id = $1 FOR UPDATE", UUID(rule_id))
        both = [asyncio.ensure_future(make_schedule(service, rule_id)) for _ in range(2)]
        await blocked(rows, 2)
    made, refusal = sorted(
        await asyncio.gather(*both, return_exceptions=True),
        key=lambda answer: isinstance(answer, BaseException),
    )
    assert isinstance(made, rule_pb.Trigger)
    assert isinstance(refusal, grpc.aio.AioRpcError)
    assert await count(rows) == MAX_TRIGGERS
    async with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD") as seen:
        await make_schedule(service, rule_id)
    assert [each.field for each in seen[0].violations] == ["autopilot_id"]
    assert str(MAX_TRIGGERS) in seen[0].violations[0].description


async def test_a_rule_that_has_more_is_edited_and_sheds_them(
    service: Service, autopilot: rule_pb.Autopilot, rows: Rows
) -> None:
    rule_id = autopilot.autopilot_id
    trigger = await make_schedule(service, rule_id)
    await multiply(rows, trigger, MAX_TRIGGERS)
    await edit_trigger(service, trigger, enabled=False)
    stub = service.as_user(CREATOR)
    async with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD"):
        await make_schedule(service, rule_id)
    for some_id in await rows.fetch("SELECT id FROM triggers LIMIT 2"):
        await stub.DeleteTrigger(pb.DeleteTriggerRequest(trigger_id=str(some_id["id"])))
    await make_schedule(service, rule_id)
    assert await count(rows) == MAX_TRIGGERS


async def test_a_repeat_of_the_creation_that_filled_the_rule_gets_its_answer(
    service: Service, autopilot: rule_pb.Autopilot, rows: Rows
) -> None:
    first = await make_schedule(service, autopilot.autopilot_id)
    await multiply(rows, first, MAX_TRIGGERS - 2)
    request = pb.CreateTriggerRequest(
        autopilot_id=autopilot.autopilot_id,
        schedule=rule_pb.ScheduleTrigger(cron="0 9 * * *"),
        request_id="last",
    )
    stub = service.as_user(CREATOR)
    made = await stub.CreateTrigger(request)
    assert (await stub.CreateTrigger(request)).trigger.trigger_id == made.trigger.trigger_id
    assert await count(rows) == MAX_TRIGGERS
