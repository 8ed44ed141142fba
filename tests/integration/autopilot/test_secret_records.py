"""Signing secrets: a version tells of what the gateway has done, once, and of nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeAlias

import asyncpg
import grpc
import pytest
from tests.integration.autopilot.conftest import (
    ADMIN,
    CREATOR,
    Service,
    keep_up,
    make_webhook,
    refused,
)
from tests.integration.autopilot.peers import Gate, World

from reveille.autopilot.v1 import autopilot_pb2 as rule_pb
from reveille.autopilot.v1 import autopilot_service_pb2 as pb

Rows: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
ADDED, REMOVED = ("secret_added", CREATOR), ("secret_removed", CREATOR)


@pytest.fixture
async def trigger_id(service: Service, autopilot: rule_pb.Autopilot) -> str:
    return (await make_webhook(service, autopilot.autopilot_id)).trigger.trigger_id


async def recorded(rows: Rows) -> list[tuple[str, str]]:
    """What the versions tell of secrets, and of whom."""
    found = await rows.fetch(
        "SELECT change, publisher_user_id FROM rule_versions"
        " WHERE change IN ('secret_added', 'secret_removed') ORDER BY sequence"
    )
    return [(row["change"], row["publisher_user_id"]) for row in found]


def addition(trigger_id: str, request_id: str = "") -> pb.AddSigningSecretRequest:
    return pb.AddSigningSecretRequest(
        trigger_id=trigger_id, secret=b"a-signing-secret-abcd", request_id=request_id
    )


async def added(service: Service, trigger_id: str) -> pb.RemoveSigningSecretRequest:
    """Add a secret; gives the request that removes it."""
    made = await service.as_user(CREATOR).AddSigningSecret(addition(trigger_id))
    return pb.RemoveSigningSecretRequest(
        trigger_id=trigger_id, secret_id=made.signing_secret.secret_id
    )


async def unheard(world: World, method: str, call: Awaitable[Any]) -> None:
    """Have the gateway do something of which neither the service nor its caller ever hears."""
    gate = world.after[method] = Gate()
    asking = asyncio.ensure_future(call)
    await gate.reached.wait()
    del world.after[method]
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


async def test_what_the_gateway_refuses_to_add_is_not_recorded(
    service: Service, world: World, rows: Rows, trigger_id: str
) -> None:
    stub = service.as_user(CREATOR)
    gate = world.before["AddSecret"] = Gate()
    adding = asyncio.ensure_future(stub.AddSigningSecret(addition(trigger_id, "r")))
    await gate.reached.wait()
    # A gateway that loses its endpoints, and is told of them again.
    lost = world.endpoints.pop(trigger_id)
    gate.release.set()
    async with refused(grpc.StatusCode.NOT_FOUND, "NOT_FOUND"):
        await adding
    assert await recorded(rows) == []
    world.endpoints[trigger_id] = lost
    made = await stub.AddSigningSecret(addition(trigger_id, "r"))
    assert await recorded(rows) == [ADDED]
    assert list(world.secrets[trigger_id]) == [made.signing_secret.secret_id]


async def test_an_addition_whose_success_nobody_heard_of_is_recorded_by_its_repeat(
    service: Service, world: World, rows: Rows, trigger_id: str
) -> None:
    stub = service.as_user(CREATOR)
    await unheard(world, "AddSecret", stub.AddSigningSecret(addition(trigger_id, "r")))
    assert await recorded(rows) == []
    first = await stub.AddSigningSecret(addition(trigger_id, "r"))
    assert await recorded(rows) == [ADDED]
    assert await stub.AddSigningSecret(addition(trigger_id, "r")) == first
    assert await recorded(rows) == [ADDED]
    assert len(world.secrets[trigger_id]) == 1


async def test_the_next_edit_records_what_nobody_heard_of_under_its_editors_name(
    service: Service, world: World, rows: Rows, trigger_id: str
) -> None:
    stub = service.as_user(CREATOR)
    await unheard(world, "AddSecret", stub.AddSigningSecret(addition(trigger_id)))
    await service.as_user(ADMIN).AddSigningSecret(addition(trigger_id))
    assert await recorded(rows) == [ADDED, ("secret_added", ADMIN)]
    assert len(world.secrets[trigger_id]) == 2


async def test_what_nobody_heard_of_nor_asks_for_again_is_recorded_all_the_same(
    service: Service, world: World, rows: Rows, trigger_id: str
) -> None:
    stub = service.as_user(CREATOR)
    removal = await added(service, trigger_id)
    world.away = {"AddSecret"}
    async with refused(grpc.StatusCode.UNAVAILABLE, "DEPENDENCY_UNAVAILABLE"):
        await stub.AddSigningSecret(addition(trigger_id))
    await unheard(world, "RemoveSecret", stub.RemoveSigningSecret(removal))
    # Its caller may be under way still; then the gateway cannot be asked.
    await service.tick("secrets")
    service.move_clock(120)
    world.away = {"ListSecrets"}
    await service.tick("secrets")
    assert await recorded(rows) == [ADDED]
    world.away = set()
    for _ in range(2):
        await service.tick("secrets")
        assert await recorded(rows) == [ADDED, REMOVED]


@pytest.mark.parametrize(
    ("since", "answers"), [(None, CREATOR), ("trigger", ADMIN), ("rule", ADMIN)]
)
async def test_what_is_recorded_late_takes_the_trigger_from_nobody_who_edited_it_since(
    since: str | None,
    answers: str,
    service: Service,
    world: World,
    autopilot: rule_pb.Autopilot,
    rows: Rows,
    trigger_id: str,
) -> None:
    """Whoever asked for the secret may have left meanwhile, and the trigger would be nobody's."""
    rotation = pb.RotateWebhookTokenRequest(trigger_id=trigger_id)
    await service.as_user(ADMIN).RotateWebhookToken(rotation)
    stub = service.as_user(CREATOR)
    await unheard(world, "AddSecret", stub.AddSigningSecret(addition(trigger_id)))
    if since == "trigger":
        await service.as_user(ADMIN).RotateWebhookToken(rotation)
    elif since == "rule":
        pause = pb.PauseAutopilotRequest(autopilot_id=autopilot.autopilot_id)
        await service.as_user(ADMIN).PauseAutopilot(pause)
    service.move_clock(120)
    await service.tick("secrets")
    assert await recorded(rows) == [ADDED]
    assert await rows.fetchval("SELECT publisher_user_id FROM triggers") == answers
    told = await rows.fetchval("SELECT triggers FROM rule_versions ORDER BY sequence DESC LIMIT 1")
    assert [each["publisher_user_id"] for each in told] == [answers]


async def test_a_removal_that_was_not_made_is_not_recorded(
    service: Service, world: World, rows: Rows, trigger_id: str
) -> None:
    removal = await added(service, trigger_id)
    world.away = {"RemoveSecret"}
    async with refused(grpc.StatusCode.UNAVAILABLE, "DEPENDENCY_UNAVAILABLE"):
        await service.as_user(CREATOR).RemoveSigningSecret(removal)
    assert await recorded(rows) == [ADDED]
    world.away = set()
    # Whoever removes it is who is recorded, not whoever failed to.
    await service.as_user(ADMIN).RemoveSigningSecret(removal)
    assert await recorded(rows) == [ADDED, ("secret_removed", ADMIN)]
    assert not world.secrets[trigger_id]


async def test_a_removal_whose_success_nobody_heard_of_is_recorded_by_its_repeat(
    service: Service, world: World, rows: Rows, trigger_id: str
) -> None:
    removal = await added(service, trigger_id)
    stub = service.as_user(CREATOR)
    await unheard(world, "RemoveSecret", stub.RemoveSigningSecret(removal))
    assert not world.secrets[trigger_id]
    assert await recorded(rows) == [ADDED]
    await stub.RemoveSigningSecret(removal)
    assert await recorded(rows) == [ADDED, REMOVED]
    async with refused(grpc.StatusCode.NOT_FOUND, "NOT_FOUND"):
        await stub.RemoveSigningSecret(removal)
    assert await recorded(rows) == [ADDED, REMOVED]


async def test_a_secret_that_another_removes_meanwhile_is_recorded_as_removed_once(
    service: Service, world: World, rows: Rows, trigger_id: str
) -> None:
    removal = await added(service, trigger_id)
    gate = world.after["ListSecrets"] = Gate()
    late = asyncio.ensure_future(service.as_user(ADMIN).RemoveSigningSecret(removal))
    await gate.reached.wait()
    del world.after["ListSecrets"]
    await service.as_user(CREATOR).RemoveSigningSecret(removal)
    # It was there when the other looked, and is gone and recorded when it goes on.
    gate.release.set()
    await late
    assert await recorded(rows) == [ADDED, REMOVED]


async def test_the_same_addition_twice_at_once_is_one(
    service: Service, world: World, rows: Rows, trigger_id: str
) -> None:
    gate = world.after["AddSecret"] = Gate()
    stub = service.as_user(CREATOR)
    calls = [
        asyncio.ensure_future(stub.AddSigningSecret(addition(trigger_id, "r"))) for _ in range(2)
    ]
    await gate.reached.wait()
    gate.release.set()
    first, second = await asyncio.gather(*calls)
    assert first == second
    assert await recorded(rows) == [ADDED]
    assert list(world.secrets[trigger_id]) == [first.signing_secret.secret_id]


async def test_a_repeated_addition_does_not_bring_a_removed_secret_back(
    service: Service, world: World, rows: Rows, trigger_id: str
) -> None:
    """It would be live again, and no version would tell of it."""
    stub = service.as_user(CREATOR)
    made = await stub.AddSigningSecret(addition(trigger_id, "r"))
    removal = pb.RemoveSigningSecretRequest(
        trigger_id=trigger_id, secret_id=made.signing_secret.secret_id
    )
    await unheard(world, "RemoveSecret", stub.RemoveSigningSecret(removal))
    async with refused(grpc.StatusCode.NOT_FOUND, "NOT_FOUND"):
        await stub.AddSigningSecret(addition(trigger_id, "r"))
    assert not world.secrets[trigger_id]
    assert await recorded(rows) == [ADDED, REMOVED]


async def test_what_was_made_is_recorded_though_the_rule_was_archived_meanwhile(
    service: Service,
    world: World,
    autopilot: rule_pb.Autopilot,
    rows: Rows,
    trigger_id: str,
) -> None:
    gate = world.after["AddSecret"] = Gate()
    stub = service.as_user(CREATOR)
    adding = asyncio.ensure_future(stub.AddSigningSecret(addition(trigger_id)))
    await gate.reached.wait()
    await stub.ArchiveAutopilot(pb.ArchiveAutopilotRequest(autopilot_id=autopilot.autopilot_id))
    gate.release.set()
    await adding
    assert await recorded(rows) == [ADDED]


async def test_edits_of_secrets_are_forgotten_with_the_runs_of_their_time(
    service: Service, rows: Rows, trigger_id: str
) -> None:
    await added(service, trigger_id)
    service.move_clock(399 * 86_400)
    assert (await keep_up(service, "autopilot_retention"))["secret_edits_removed"] == 0
    service.move_clock(401 * 86_400)
    assert (await keep_up(service, "autopilot_retention"))["secret_edits_removed"] == 1
    assert await rows.fetchval("SELECT count(*) FROM secret_edits") == 0
