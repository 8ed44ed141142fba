"""Edits that come between the look at a rule and the write: it is judged as it is then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeAlias
from uuid import UUID, uuid4

import asyncpg
import pytest
from tests.integration.autopilot.conftest import (
    CREATOR,
    Service,
    admit,
    blocked,
    edit_rule,
    edit_trigger,
    facts,
    make_autopilot,
    make_webhook,
    run_now,
    set_quota,
)
from tests.integration.autopilot.peers import Gate, World

from reveille.autopilot.v1 import autopilot_pb2 as rule_pb
from reveille.autopilot.v1 import autopilot_service_pb2 as pb
from reveille.autopilot.v1 import dispatch_service_pb2 as dispatch_pb
from reveille.autopilot.v1 import run_pb2
from reveille.autopilot.v1 import workspace_service_pb2 as workspace_pb
from reveille.common.v1 import reason_pb2
from reveille_autopilot.store import admission
from reveille_testkit.database import TestDatabase

Rows: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Asked: TypeAlias = "asyncio.Task[list[dispatch_pb.AdmitResult]]"
ALLOW, SKIP, BUFFER, REPLACE = (
    rule_pb.OVERLAP_POLICY_ALLOW,
    rule_pb.OVERLAP_POLICY_SKIP,
    rule_pb.OVERLAP_POLICY_BUFFER_ONE,
    rule_pb.OVERLAP_POLICY_CANCEL_OTHER,
)
ACCEPTED, IGNORED, SKIPPED = (
    dispatch_pb.ADMIT_OUTCOME_ACCEPTED,
    dispatch_pb.ADMIT_OUTCOME_IGNORED,
    dispatch_pb.ADMIT_OUTCOME_SKIPPED,
)
ENFORCE = workspace_pb.QUOTA_ACTION_ENFORCE


@asynccontextmanager
async def half_judged(
    service: Service, world: World, *deliveries: dispatch_pb.DeliveryFacts
) -> AsyncIterator[Asked]:
    """Let deliveries wait for heartbeat, their rules read; at the end it answers."""
    gate = world.before["CheckInvocable"] = Gate()
    asked = asyncio.create_task(admit(service, *deliveries))
    # These triggers ask for the first time, so they are not asked about ahead.
    await gate.reached.wait()
    del world.before["CheckInvocable"]
    try:
        yield asked
    finally:
        gate.release.set()


async def read(service: Service, rule: rule_pb.Autopilot) -> rule_pb.Autopilot:
    response = await service.as_user(CREATOR).GetAutopilot(
        pb.GetAutopilotRequest(autopilot_id=rule.autopilot_id)
    )
    found: rule_pb.Autopilot = response.autopilot
    return found


@pytest.mark.parametrize("policy", [ALLOW, SKIP])
@pytest.mark.parametrize("edit", ["paused", "archived", "switched off", "deleted"])
async def test_what_is_out_of_force_by_then_is_ignored(
    edit: str,
    policy: rule_pb.OverlapPolicy.ValueType,
    service: Service,
    world: World,
    workspace_id: UUID,
    rows: Rows,
) -> None:
    rule = await make_autopilot(service, world, workspace_id, overlap_policy=policy)
    hook = await make_webhook(service, rule.autopilot_id)
    user = service.as_user(CREATOR)
    async with half_judged(service, world, facts(hook.trigger)) as asked:
        if edit == "paused":
            await user.PauseAutopilot(pb.PauseAutopilotRequest(autopilot_id=rule.autopilot_id))
        elif edit == "archived":
            await user.ArchiveAutopilot(pb.ArchiveAutopilotRequest(autopilot_id=rule.autopilot_id))
        elif edit == "deleted":
            gone = pb.DeleteTriggerRequest(trigger_id=hook.trigger.trigger_id)
            await user.DeleteTrigger(gone)
        else:
            await edit_trigger(service, hook.trigger, "enabled", enabled=False)
    (answer,) = await asked
    reasons = {
        "paused": reason_pb2.REASON_AUTOPILOT_PAUSED,
        "archived": reason_pb2.REASON_AUTOPILOT_ARCHIVED,
        "switched off": reason_pb2.REASON_TRIGGER_DISABLED,
        "deleted": reason_pb2.REASON_TRIGGER_NOT_FOUND,
    }
    outcome = dispatch_pb.ADMIT_OUTCOME_UNKNOWN_ENDPOINT if edit == "deleted" else IGNORED
    assert (answer.outcome, answer.reason) == (outcome, reasons[edit])
    assert await rows.fetchval("SELECT count(*) FROM runs") == 0


@pytest.mark.parametrize(
    ("before", "after", "outcome", "states"),
    [
        (ALLOW, SKIP, SKIPPED, ["running", "skipped"]),
        (ALLOW, BUFFER, ACCEPTED, ["buffered", "running"]),
        (SKIP, ALLOW, ACCEPTED, ["pending", "running"]),
        (SKIP, REPLACE, ACCEPTED, ["pending", "cancelled"]),
    ],
)
async def test_the_overlap_policy_of_then_decides(
    before: rule_pb.OverlapPolicy.ValueType,
    after: rule_pb.OverlapPolicy.ValueType,
    outcome: dispatch_pb.AdmitOutcome.ValueType,
    states: list[str],
    service: Service,
    world: World,
    workspace_id: UUID,
    rows: Rows,
) -> None:
    rule = await make_autopilot(service, world, workspace_id, overlap_policy=before)
    hook = await make_webhook(service, rule.autopilot_id)
    earlier = await run_now(service, rule.autopilot_id)
    async with half_judged(service, world, facts(hook.trigger)) as asked:
        edited = await edit_rule(service, await read(service, rule), overlap_policy=after)
    (answer,) = await asked
    assert answer.outcome == outcome
    if after == REPLACE:
        await service.ended(earlier.run_id)
    found = await rows.fetch("SELECT state, rule_version_id FROM runs ORDER BY id")
    assert sorted(row["state"] for row in found) == sorted(states)
    # It says by which version it was judged.
    assert str(found[-1]["rule_version_id"]) == edited.rule_version_id


async def test_an_edit_whose_lock_is_waited_for_decides_too(
    service: Service, world: World, workspace_id: UUID, database: TestDatabase, rows: Rows
) -> None:
    rule = await make_autopilot(service, world, workspace_id, overlap_policy=SKIP)
    hook = await make_webhook(service, rule.autopilot_id)
    await run_now(service, rule.autopilot_id)
    editor = await database.connect("reveille_autopilot_app")
    async with editor.transaction():
        await editor.execute(
            "UPDATE autopilots SET overlap_policy = 'allow', rule_version_id = gen_random_uuid()"
        )
        asked = asyncio.create_task(admit(service, facts(hook.trigger)))
        await blocked(rows, 1)
    (answer,) = await asked
    assert answer.outcome == ACCEPTED


@pytest.mark.parametrize(
    ("before", "after", "outcome", "reason"),
    [
        (5, 0, SKIPPED, reason_pb2.REASON_QUOTA_EXCEEDED),
        (0, 5, ACCEPTED, reason_pb2.REASON_UNSPECIFIED),
    ],
)
async def test_the_quota_of_then_decides(
    before: int,
    after: int,
    outcome: dispatch_pb.AdmitOutcome.ValueType,
    reason: reason_pb2.Reason.ValueType,
    service: Service,
    world: World,
    workspace_id: UUID,
    autopilot: rule_pb.Autopilot,
) -> None:
    hook = await make_webhook(service, autopilot.autopilot_id)
    await set_quota(service, workspace_id, ENFORCE, before)
    async with half_judged(service, world, facts(hook.trigger)) as asked:
        await set_quota(service, workspace_id, ENFORCE, after)
    (answer,) = await asked
    assert (answer.outcome, answer.reason) == (outcome, reason)


async def test_what_is_overtaken_takes_no_place_from_those_after_it(
    service: Service, world: World, workspace_id: UUID
) -> None:
    edited, other = [await make_autopilot(service, world, workspace_id) for _ in range(2)]
    hooks = [await make_webhook(service, rule.autopilot_id) for rule in (edited, other)]
    await set_quota(service, workspace_id, ENFORCE, 1)
    # They are judged in the order of their keys.
    first, second = sorted(str(uuid4()) for _ in range(2))
    deliveries = (
        facts(hooks[0].trigger, delivery_id=first),
        facts(hooks[1].trigger, delivery_id=second),
    )
    async with half_judged(service, world, *deliveries) as asked:
        await service.as_user(CREATOR).PauseAutopilot(
            pb.PauseAutopilotRequest(autopilot_id=edited.autopilot_id)
        )
    assert [each.outcome for each in await asked] == [IGNORED, ACCEPTED]


async def test_of_a_rule_that_is_edited_again_and_again_nothing_is_said(
    service: Service,
    autopilot: rule_pb.Autopilot,
    rows: Rows,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hook = await make_webhook(service, autopilot.autopilot_id)
    delivery = facts(hook.trigger)
    load, looks = admission.load_rules, 0

    async def load_and_be_late(*given: Any) -> Any:
        nonlocal looks
        looks += 1
        found = await load(*given)
        await edit_rule(service, await read(service, autopilot), prompt=f"text {looks}")
        return found

    monkeypatch.setattr(admission, "load_rules", load_and_be_late)
    (answer,) = await admit(service, delivery)
    assert answer.outcome == dispatch_pb.ADMIT_OUTCOME_UNAVAILABLE
    assert looks == 3
    assert await rows.fetchval("SELECT count(*) FROM runs") == 0
    monkeypatch.undo()
    (later,) = await admit(service, delivery)
    run = await service.run_of(later.run_id)
    assert (later.outcome, run.state) == (ACCEPTED, run_pb2.RUN_STATE_PENDING)
    assert run.rule_version_id == (await read(service, autopilot)).rule_version_id
