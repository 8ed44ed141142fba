"""What comes in while people close a breaker: it is held and found, or it is not held at all."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from tests.integration.webhook.conftest import (
    SECRET,
    Gateway,
    Hook,
    Stage,
    read_response,
    signature,
)
from tests.integration.webhook.peer import FakeAutopilot
from tests.integration.webhook.test_options import BODY, options, send, states
from tests.integration.webhook.test_pacing import blocked

from reveille.explain.v1 import explain_service_pb2 as explain_pb
from reveille.webhook.v1 import delivery_service_pb2 as pb
from reveille_runtime.access import Role
from reveille_testkit.waiting import eventually
from reveille_webhook.store import deliveries
from reveille_webhook.usecases import autopilot

# Another sender's row under the same id, which is not committed yet.
RIVAL = """
INSERT INTO deliveries (id, endpoint_id, workspace_id, provider, event, action, dedupe_key,
    signature_state, state, body, body_bytes, body_sha256, response_status, available_at,
    received_at, last_received_at, queued_at)
SELECT gen_random_uuid(), $1, $2, 'github', 'issues', '', $3, 'valid', 'queued', '', 0,
    decode(repeat('00', 32), 'hex'), 200, t, t, t, t
FROM clock() AS t
"""


async def tripped(gateway: Gateway) -> Hook:
    """Make a hook whose breaker is open, with one delivery held."""
    hook = await gateway.hook(options=options(hourly_budget=1))
    await send(gateway, hook, 2)
    await gateway.work()
    assert await states(gateway) == ["dispatched", "held"]
    return hook


async def decide(gateway: Gateway, hook: Hook, deed: str) -> int:
    """Have an administrator release or purge what is held."""
    admin = gateway.stage.keys.user("ada", {hook.workspace_id: Role.ADMIN})
    stub = gateway.deliveries(admin)
    answer: Any = (
        await stub.ReleaseHeldDeliveries(pb.ReleaseHeldDeliveriesRequest(endpoint_id=str(hook.id)))
        if deed == "release"
        else await stub.PurgeHeldDeliveries(pb.PurgeHeldDeliveriesRequest(endpoint_id=str(hook.id)))
    )
    return int(answer.deliveries)


@pytest.mark.parametrize("deed", ["release", "purge"])
async def test_a_request_that_was_under_way_while_people_decided_is_not_held(
    gateway: Gateway, peer: FakeAutopilot, deed: str
) -> None:
    hook = await tripped(gateway)
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.edge.port)
    writer.write(
        f"POST /hooks/{hook.token} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(BODY)}\r\nX-GitHub-Event: issues\r\nX-GitHub-Delivery: late\r\n"
        f"X-Hub-Signature-256: {signature(SECRET, BODY)}\r\nExpect: 100-continue\r\n\r\n".encode()
    )
    # By now the hook was looked up, and its breaker was open.
    async with asyncio.timeout(20):
        assert b" 100 " in await reader.readuntil(b"\r\n\r\n")
    decided = await decide(gateway, hook, deed)
    writer.write(BODY)
    async with asyncio.timeout(20):
        answer = await read_response(reader)
    writer.close()
    await gateway.work()

    assert decided == 1
    assert (answer.status, answer.json["status"]) == (200, "accepted")
    row = next(each for each in await gateway.rows() if each["dedupe_key"] == "late")
    assert (row["state"], row["reason"], row["message"]) == ("dispatched", "", "")


@pytest.mark.parametrize("deed", ["release", "purge"])
async def test_people_who_decide_while_a_row_is_stored_as_held_find_it(
    stage: Stage, gateway: Gateway, peer: FakeAutopilot, deed: str
) -> None:
    hook = await tripped(gateway)
    rival = await stage.database.connect("reveille_webhook_app")
    undone = rival.transaction()
    await undone.start()
    await rival.execute(RIVAL, hook.id, hook.workspace_id, "late")

    posting = asyncio.ensure_future(gateway.post(hook, BODY, delivery="late"))
    # It has the hook's breaker and waits for what becomes of the rival.
    await blocked(gateway, 1)
    deciding = asyncio.ensure_future(decide(gateway, hook, deed))
    await blocked(gateway, 2)
    await undone.rollback()
    answer, decided = await posting, await deciding
    await gateway.work()

    assert (answer.status, answer.json["status"]) == (202, "held")
    assert decided == 2
    ended = "dispatched" if deed == "release" else "ignored"
    assert await states(gateway) == ["dispatched", ended, ended]


async def test_a_row_that_comes_while_a_breaker_is_being_closed_waits_and_is_not_held(
    stage: Stage, gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await tripped(gateway)
    closing = await stage.database.connect("reveille_webhook_app")
    async with closing.transaction():
        await closing.execute("UPDATE endpoints SET tripped_at = NULL WHERE id = $1", hook.id)
        posting = asyncio.ensure_future(gateway.post(hook, BODY, delivery="late"))
        await blocked(gateway, 1)
    answer = await posting

    assert (answer.status, answer.json["status"]) == (200, "accepted")
    row = next(each for each in await gateway.rows() if each["dedupe_key"] == "late")
    assert (row["state"], row["admission"]) == ("queued", "accepted")


async def test_the_oldest_are_released_first(gateway: Gateway) -> None:
    hook = await gateway.hook(options=options(hourly_budget=1))
    for number in range(3):
        await gateway.post(hook, BODY, delivery=f"d-{number}")
    await gateway.work()

    async with gateway.database.session() as tx:
        assert await deliveries.release_held(tx, hook.id, 1) == 1

    assert [row["state"] for row in await gateway.rows()] == ["dispatched", "queued", "held"]


async def test_what_was_released_while_a_purge_asked_autopilot_is_not_ended(
    gateway: Gateway,
) -> None:
    hook = await tripped(gateway)
    async with gateway.database.session() as tx:
        held = await deliveries.held(tx, hook.id, 10)
    await decide(gateway, hook, "release")

    async with gateway.database.session() as tx:
        purged = await deliveries.purge_held(tx, held)

    assert (len(held), purged) == (1, 0)
    assert await states(gateway) == ["dispatched", "queued"]


async def test_a_run_that_is_made_while_its_delivery_is_purged_is_ended_too(
    stage: Stage, peer: FakeAutopilot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autopilot, "ADMIT_TIMEOUT", 60.0)
    async with stage.gateway(admission_budget=0.05) as gateway:
        hook = await gateway.hook(options=options(hourly_budget=1))
        await gateway.post(hook, BODY, delivery="first")
        await eventually(gateway.row, "the judgement", until=lambda row: row["admission"])
        await gateway.work()
        # Judging it takes longer than the worker waits for that.
        peer.may_admit.clear()
        await gateway.post(hook, BODY, delivery="late")
        gateway.database.move_clock(3)
        await gateway.work()
        (held,) = [str(row["id"]) for row in await gateway.rows() if row["state"] == "held"]
        seen: list[list[str]] = []

        async def look() -> None:
            seen.append(await states(gateway))

        async def withdrawn_later() -> list[str]:
            return peer.withdrawn[2:]

        peer.at_withdrawal = look
        await decide(gateway, hook, "purge")
        # What was judged between the first call and the end of the delivery has no run any more.
        assert seen == [["dispatched", "held"], ["dispatched", "ignored"]]
        assert peer.withdrawn == [held] * 2
        # And what is judged only now.
        peer.at_withdrawal = None
        peer.may_admit.set()
        await eventually(withdrawn_later, "the run that was made late is ended")
        assert peer.withdrawn == [held] * 3


async def test_what_is_held_behind_a_closed_breaker_is_told(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await tripped(gateway)
    peer.away = grpc.StatusCode.UNAVAILABLE
    with pytest.raises(grpc.aio.AioRpcError):
        await decide(gateway, hook, "purge")

    found = (await gateway.explains().Explain(explain_pb.ExplainRequest(id=str(hook.id)))).findings

    endpoint = next(each for each in found if each.subject == "hook")
    assert (endpoint.state, endpoint.command) == (
        "accepting",
        f"reveille deliveries release {hook.id}",
    )
    assert "1 that it held are still to be released or purged" in endpoint.text
