"""What an attacker gets: no fault, no forgery, and no word on which hooks there are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from tests.integration.webhook.conftest import Gateway, Hook, Stage, endpoint_of, read_response
from tests.integration.webhook.fuzz import SECRET, storm
from tests.integration.webhook.peer import FakeAutopilot

from reveille.autopilot.v1 import dispatch_service_pb2 as pb
from reveille.webhook.v1 import endpoint_service_pb2 as endpoint_pb
from reveille_runtime.db import Tx
from reveille_webhook.store import queue

BODY = b'{"action":"opened"}'
PROVIDERS = ("github", "slack", "stripe", "standardwebhooks", "twilio", "adyen", "zoom", "aws_sns")
SEED = 20260601


async def hooks_of_all(gateway: Gateway, providers: Iterable[str] = PROVIDERS) -> list[Hook]:
    return [await gateway.hook(provider, secret=SECRET) for provider in providers]


async def test_two_thousand_odd_requests_find_no_fault_and_forge_nothing(gateway: Gateway) -> None:
    hooks = await hooks_of_all(gateway)
    # One hook goes by its address alone.
    bearer = await gateway.hook("generic", secret=None)

    outcome = await storm(gateway, [*hooks, bearer], SEED, 2000)

    assert outcome.faults == []
    # The dice reach what they are for.
    assert {200, 400, 401, 404, 405, 413, 415} <= set(outcome.statuses)
    unsigned = [
        row
        for row in await gateway.rows()
        if row["signature_state"] == "not_required" and row["endpoint_id"] != bearer.id
    ]
    assert {row["reason"] for row in unsigned} <= {"body_too_large", "handshake"}


async def test_tokens_that_are_not_there_cost_the_same_statements(
    gateway: Gateway, peer: FakeAutopilot, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted, rotated, mismatched = [await gateway.hook() for _ in range(3)]
    await gateway.endpoints().DeleteEndpoint(
        endpoint_pb.DeleteEndpointRequest(endpoint_id=str(deleted.id), revision=2)
    )
    moved = Hook(rotated.id, rotated.workspace_id, "awt_the_new_one", rotated.secret_id)
    await gateway.endpoints().PutEndpoint(
        endpoint_pb.PutEndpointRequest(endpoint=endpoint_of(moved, revision=2))
    )
    peer.admits = lambda facts: pb.AdmitResult(
        delivery_id=facts.delivery_id, outcome=pb.ADMIT_OUTCOME_UNKNOWN_ENDPOINT
    )
    # Told once, it is as if it were not there.
    assert (await gateway.post(mismatched, BODY)).status == 404
    ran: list[str] = []
    original = Tx._observed

    async def counting(self: Tx, query: Any, call: Any, args: Any) -> Any:
        # What the process does for its own queue meanwhile is nobody's request.
        if query.name not in queue.Q:
            ran.append(query.name)
        return await original(self, query, call, args)

    monkeypatch.setattr(Tx, "_observed", counting)
    found = {}
    for name, token in {
        "unknown": "awt_nobody",
        "deleted": deleted.token,
        "rotated": rotated.token,
        "mismatched": mismatched.token,
        "no token": "",
        "more than a token": f"{moved.token}/",
        "too long": "x" * 5000,
    }.items():
        ran.clear()
        answer = await gateway.request("POST", f"/hooks/{token}", BODY)
        found[name] = (answer.status, answer.body, tuple(ran))

    assert set(found.values()) == {(404, found["unknown"][1], ("find_endpoints",))}


@pytest.mark.parametrize("address", ["[::1]", "127.0.0.1"])
async def test_both_families_of_addresses_are_served(stage: Stage, address: str) -> None:
    async with stage.gateway(http_listen=f"{address}:0", credential_debt=1) as gateway:
        answers = []
        for _ in range(2):
            async with asyncio.timeout(20):
                host = address.strip("[]")
                reader, writer = await asyncio.open_connection(host, gateway.edge.port)
                writer.write(
                    b"POST /hooks/x HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n"
                    b"X-Forwarded-For: 203.0.113.7\r\n\r\n"
                )
                answers.append((await read_response(reader)).status)
                writer.close()

    # What an untrusted peer says of itself evades nothing.
    assert answers == [404, 429]


async def test_guessing_at_a_question_makes_debt(stage: Stage) -> None:
    async with stage.gateway(credential_debt=2) as gateway:
        hook = await gateway.hook("meta")
        path = f"/hooks/{hook.token}?hub.mode=subscribe&hub.challenge=1&hub.verify_token=guess"

        answers = [(await gateway.request("GET", path)).status for _ in range(3)]

    assert answers == [403, 403, 429]


async def test_an_idle_connection_is_closed(stage: Stage) -> None:
    async with stage.gateway(http_idle_timeout=1) as gateway, asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.edge.port)
        writer.write(b"POST /hooks/x HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        assert (await read_response(reader)).status == 404
        assert await reader.read() == b""
        writer.close()
