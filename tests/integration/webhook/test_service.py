"""The service as a whole: its HTTP port, its health, and floods of what it refuses."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.integration.webhook.conftest import Gateway, Stage

from reveille_runtime.server import ListenError

BODY = b'{"action":"opened"}'


async def test_a_taken_http_port_is_told_at_start(stage: Stage) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ListenError, match="for HTTP"):
            async with stage.gateway(http_listen=address):
                pass


async def test_an_http_server_that_ends_by_itself_is_seen_and_serves_again(
    gateway: Gateway,
) -> None:
    health: Any = health_pb2_grpc.HealthStub(gateway.channel(""))
    watching = health.Watch(health_pb2.HealthCheckRequest())
    seen = [(await watching.read()).status]
    assert gateway.edge._server is not None

    gateway.edge._server.should_exit = True
    seen.append((await watching.read()).status)
    watching.cancel()

    assert seen == [
        health_pb2.HealthCheckResponse.SERVING,
        health_pb2.HealthCheckResponse.NOT_SERVING,
    ]
    hook = await gateway.hook()
    while True:
        try:
            assert (await gateway.post(hook, BODY)).status == 200
        except ConnectionError:
            continue
        break


async def test_of_a_flood_of_rejected_requests_a_sample_is_kept(stage: Stage) -> None:
    async with stage.gateway(rejected_rows=3) as gateway:
        hook, other = await gateway.hook(), await gateway.hook()
        answers = [await gateway.post(hook, BODY, secret=None) for _ in range(10)]
        answers.append(await gateway.post(other, BODY, secret=None))
        kept = await gateway.rows()

    assert {answer.status for answer in answers} == {401}
    assert {answer.json["reason"] for answer in answers} == {"missing_signature"}
    assert len(kept) == 3 + 1
    assert sum("delivery_id" in answer.json for answer in answers) == 3 + 1
