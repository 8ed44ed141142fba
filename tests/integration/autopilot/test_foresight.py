"""What heartbeat is asked ahead, while the rules are read: never believed for another question."""

from __future__ import annotations

import asyncio
from uuid import UUID

import asyncpg
import pytest
from tests.integration.autopilot.conftest import (
    CREATOR,
    Service,
    admit,
    edit_rule,
    facts,
    make_webhook,
)
from tests.integration.autopilot.peers import Gate, World

from reveille.autopilot.v1 import autopilot_pb2 as rule_pb
from reveille.autopilot.v1 import autopilot_service_pb2 as pb
from reveille.autopilot.v1 import dispatch_service_pb2 as dispatch_pb
from reveille.common.v1 import reason_pb2
from reveille_testkit.database import TestDatabase
from reveille_testkit.waiting import eventually

ACCEPTED = dispatch_pb.ADMIT_OUTCOME_ACCEPTED
SKIPPED = dispatch_pb.ADMIT_OUTCOME_SKIPPED


@pytest.fixture
async def admin(database: TestDatabase) -> asyncpg.Connection[asyncpg.Record]:
    """Lock what autopilot reads."""
    return await database.admin()


async def test_heartbeat_is_asked_while_the_rule_is_read_and_once(
    service: Service,
    world: World,
    autopilot: rule_pb.Autopilot,
    admin: asyncpg.Connection[asyncpg.Record],
) -> None:
    hook = await make_webhook(service, autopilot.autopilot_id)
    await admit(service, facts(hook.trigger))
    asked = world.calls["CheckInvocable"]
    async with admin.transaction():
        await admin.execute("LOCK TABLE autopilot.autopilots IN ACCESS EXCLUSIVE MODE")
        call = asyncio.create_task(admit(service, facts(hook.trigger)))

        async def ahead() -> bool:
            return world.calls["CheckInvocable"] > asked

        await eventually(ahead, "heartbeat is asked")
        assert not call.done()
    (answer,) = await call

    assert answer.outcome == ACCEPTED
    assert world.calls["CheckInvocable"] == asked + 1


@pytest.mark.parametrize("refused", ["former", "new"])
async def test_an_answer_about_a_former_agent_counts_for_nothing(
    refused: str, service: Service, world: World, workspace_id: UUID, autopilot: rule_pb.Autopilot
) -> None:
    hook = await make_webhook(service, autopilot.autopilot_id)
    await admit(service, facts(hook.trigger))
    agents = {"former": autopilot.agent_id, "new": str(world.add_agent(workspace_id))}
    read = await service.as_user(CREATOR).GetAutopilot(
        pb.GetAutopilotRequest(autopilot_id=autopilot.autopilot_id)
    )
    await edit_rule(service, read.autopilot, agent_id=agents["new"])
    world.refusals[agents[refused]] = reason_pb2.REASON_AGENT_PAUSED
    (answer,) = await admit(service, facts(hook.trigger))

    expected = {"former": (ACCEPTED, 0), "new": (SKIPPED, reason_pb2.REASON_AGENT_PAUSED)}
    assert (answer.outcome, answer.reason) == expected[refused]
    assert world.questions[-1].agent_id == agents["new"]


async def test_a_refusal_counts_from_the_next_occurrence_on(
    service: Service, world: World, autopilot: rule_pb.Autopilot
) -> None:
    hook = await make_webhook(service, autopilot.autopilot_id)
    outcomes = []
    for refusal in (None, reason_pb2.REASON_AGENT_PAUSED, None):
        world.refusals = {} if refusal is None else {autopilot.agent_id: refusal}
        outcomes += [each.outcome for each in await admit(service, facts(hook.trigger))]

    assert outcomes == [ACCEPTED, SKIPPED, ACCEPTED]


async def test_what_asks_nothing_any_more_is_not_asked_about(
    service: Service, world: World, autopilot: rule_pb.Autopilot
) -> None:
    filtered = rule_pb.EventFilter(event="issues")
    hook = await make_webhook(service, autopilot.autopilot_id, filtered)
    await admit(service, facts(hook.trigger))
    asked = world.calls["CheckInvocable"]
    for _ in range(3):
        await admit(service, facts(hook.trigger, event="push"))

    # The first of them could not be foreseen; its call may be dropped before it arrives.
    assert world.calls["CheckInvocable"] <= asked + 1


@pytest.mark.parametrize("kind", ["filtered", "known"])
async def test_what_needs_no_answer_waits_for_none(
    kind: str, service: Service, world: World, autopilot: rule_pb.Autopilot
) -> None:
    hook = await make_webhook(service, autopilot.autopilot_id, rule_pb.EventFilter(event="issues"))
    delivery = facts(hook.trigger)
    (first,) = await admit(service, delivery)
    gate = world.before["CheckInvocable"] = Gate()
    again = delivery if kind == "known" else facts(hook.trigger, event="push")
    async with asyncio.timeout(5):
        (answer,) = await admit(service, again)
    gate.release.set()

    if kind == "known":
        assert answer == first
    else:
        assert answer.outcome == dispatch_pb.ADMIT_OUTCOME_IGNORED


async def test_what_stays_open_is_not_asked_again(
    service: Service,
    world: World,
    autopilot: rule_pb.Autopilot,
    capfd: pytest.CaptureFixture[str],
) -> None:
    hook = await make_webhook(service, autopilot.autopilot_id)
    await admit(service, facts(hook.trigger))
    world.away = {"CheckInvocable"}
    (answer,) = await admit(service, facts(hook.trigger))

    assert answer.outcome == dispatch_pb.ADMIT_OUTCOME_UNAVAILABLE
    # A call repeats itself for a while; then it says so.
    assert capfd.readouterr().out.count("admit.undecidable") == 1
