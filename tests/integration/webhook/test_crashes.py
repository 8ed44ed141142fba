"""Death at every durable boundary: one delivery and one run afterwards, whatever died where.

The gateway is a real process here, and the point ends it as kill -9 would. Its sender does what
senders do: it sends the request again, and another replica gets it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass

import grpc
import pytest
from tests.integration.webhook.conftest import (
    SECRET,
    Gateway,
    Hook,
    Response,
    Rows,
    Stage,
    read_response,
    signature,
)
from tests.integration.webhook.peer import FakeAutopilot, run_of

from reveille.scheduler.v1 import job_handler_service_pb2 as handler_pb
from reveille.scheduler.v1.job_handler_service_pb2_grpc import JobHandlerServiceStub
from reveille.webhook.v1 import delivery_service_pb2 as delivery_pb
from reveille.webhook.v1 import endpoint_service_pb2 as endpoint_pb
from reveille.webhook.v1.delivery_service_pb2_grpc import DeliveryServiceStub
from reveille_runtime.access import Role
from reveille_runtime.client import Channels
from reveille_runtime.crash import KILLED, POINT_VARIABLE
from reveille_runtime.telemetry import Telemetry
from reveille_webhook.crash_points import (
    AFTER_ADMIT,
    AFTER_DISPATCH,
    AFTER_HELD,
    AFTER_PRUNED,
    AFTER_REPLAY,
    AFTER_STORE,
    AFTER_WITHDRAWAL,
    BEFORE_ADMIT,
    BEFORE_STORE,
    CRASH_POINTS,
)
from reveille_webhook.usecases.retention import JOB

BODY = b'{"action":"opened"}'
# Where death meets the request, which then gets no answer.
OF_THE_REQUEST = frozenset({BEFORE_STORE, AFTER_STORE, BEFORE_ADMIT, AFTER_ADMIT})
# Where it meets what people and the scheduler ask for.
ASKED_FOR = (AFTER_REPLAY, AFTER_HELD, AFTER_WITHDRAWAL, AFTER_PRUNED)


@dataclass
class GatewayProcess:
    """`python -m reveille_webhook`, listening."""

    process: asyncio.subprocess.Process
    http_port: int
    address: str

    async def post(self, hook: Hook) -> Response | None:
        """Post; None when the process died before it answered."""
        request = (
            f"POST /hooks/{hook.token} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(BODY)}\r\nX-GitHub-Event: issues\r\nX-GitHub-Delivery: d-1\r\n"
            f"X-Hub-Signature-256: {signature(SECRET, BODY)}\r\n\r\n"
        ).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.http_port)
        try:
            writer.write(request + BODY)
            return await read_response(reader)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        finally:
            writer.close()

    async def ended(self) -> int:
        async with asyncio.timeout(20):
            return await self.process.wait()


@contextlib.asynccontextmanager
async def running(stage: Stage, point: str = "") -> AsyncIterator[GatewayProcess]:
    """Run a gateway that dies at a point; without one, end it in order."""
    values = stage.settings(
        lease_renewal=0.2, worker_interval=0.05, admission_budget=5.0, drain_grace=5.0
    ).model_dump(mode="json", exclude_none=True)
    environment = {
        "PATH": os.environ["PATH"],
        POINT_VARIABLE: point,
        **{
            f"REVEILLE_{name}".upper(): value if isinstance(value, str) else json.dumps(value)
            for name, value in values.items()
        },
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "reveille_webhook",
        env=environment,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    port, address = 0, ""
    async with asyncio.timeout(40):
        async for line in process.stderr:
            told = json.loads(line)
            if told["action"] == "http.listening":
                port = int(told["address"].rpartition(":")[2])
            if told["action"] == "service.ready":
                address = told["address"]
                break
    assert port, "the gateway did not start"
    # Nobody reads on: the pipe is large enough for what a test logs.
    try:
        yield GatewayProcess(process, port, address)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(20):
                await process.communicate()


@pytest.mark.parametrize("point", [each for each in CRASH_POINTS if each not in ASKED_FOR])
async def test_after_death_at_a_point_there_is_one_delivery_and_one_run(
    stage: Stage, peer: FakeAutopilot, point: str
) -> None:
    async with stage.gateway(lease_renewal=0.2, worker_interval=0.05) as other:
        hook = await other.hook()
        rows: Rows = await stage.database.admin()
        async with running(stage, point) as victim:
            first = await victim.post(hook)
            status = await victim.ended()
        again = first or await other.post(hook, BODY, delivery="d-1")
        other.resume()
        # Only there has the victim handed it over already, without writing so.
        heard = 2 if point == AFTER_DISPATCH else 1
        await peer.until(lambda peer: len(peer.bodies) >= heard)
    # It ended in order, so whatever it had claimed is settled.
    (row,) = await rows.fetch("SELECT * FROM webhook.deliveries")

    assert status == KILLED
    assert (first is None) == (point in OF_THE_REQUEST)
    assert again.status == 200
    assert again.json["delivery_id"] == str(row["id"])
    assert row["state"] == "dispatched"
    assert row["attempt_count"] == (1 if first is not None or point == BEFORE_STORE else 2)
    assert str(row["run_id"]) == run_of(str(row["id"]))
    assert row["lease_token"] is None
    # Autopilot may hear of it twice, but always as the same delivery and the same run.
    assert {each.delivery_id for each in peer.admitted} == {str(row["id"])}
    assert {(each.delivery_id, each.run_id, each.body) for each in peer.bodies} == {
        (str(row["id"]), run_of(str(row["id"])), BODY)
    }


@pytest.mark.parametrize("point", ASKED_FOR)
async def test_what_people_and_the_scheduler_ask_for_is_whole_after_a_death(
    stage: Stage, peer: FakeAutopilot, point: str
) -> None:
    async with stage.gateway() as other:
        hook = await other.hook(options=endpoint_pb.EndpointOptions(hourly_budget=1))
        first = (await other.post(hook, BODY, delivery="d-1")).json["delivery_id"]
        await other.work()
        await other.post(hook, BODY, delivery="d-2")
        await other.work()
        admin = stage.keys.user("ada", {hook.workspace_id: Role.ADMIN})
        scheduler = stage.keys.service("scheduler")

        async def ask(address: str) -> None:
            async with contextlib.AsyncExitStack() as stack:
                token = scheduler if point == AFTER_PRUNED else admin
                channels = Channels(
                    {"server": address}, telemetry=Telemetry.off(), token=lambda: token
                )
                stack.push_async_callback(channels.close)
                channel = channels.get("server")
                if point == AFTER_PRUNED:
                    plan = handler_pb.Plan(execution_id="1", job_name=JOB)
                    await JobHandlerServiceStub(channel).RunPlans(
                        handler_pb.RunPlansRequest(plans=[plan])
                    )
                elif point == AFTER_HELD:
                    await DeliveryServiceStub(channel).ReleaseHeldDeliveries(
                        delivery_pb.ReleaseHeldDeliveriesRequest(endpoint_id=str(hook.id))
                    )
                elif point == AFTER_WITHDRAWAL:
                    await DeliveryServiceStub(channel).PurgeHeldDeliveries(
                        delivery_pb.PurgeHeldDeliveriesRequest(endpoint_id=str(hook.id))
                    )
                else:
                    await DeliveryServiceStub(channel).ReplayDelivery(
                        delivery_pb.ReplayDeliveryRequest(delivery_id=first, request_id="once")
                    )

        async with running(stage, point) as victim:
            with pytest.raises(grpc.aio.AioRpcError):
                await ask(victim.address)
            status = await victim.ended()
        await ask(other.app.server.address)
        states = sorted(row["state"] for row in await other.rows())

    assert status == KILLED
    assert (
        states
        == {
            AFTER_REPLAY: ["dispatched", "held", "queued"],
            AFTER_HELD: ["dispatched", "queued"],
            AFTER_WITHDRAWAL: ["dispatched", "ignored"],
            AFTER_PRUNED: ["dispatched", "held"],
        }[point]
    )


async def test_a_stopped_gateway_finishes_what_it_has_begun(
    stage: Stage, peer: FakeAutopilot, gateway: Gateway
) -> None:
    hook = await gateway.hook()
    peer.may_admit.clear()

    async with running(stage) as process:
        posting = asyncio.ensure_future(process.post(hook))
        await peer.until(lambda peer: bool(peer.admitted))
        process.process.send_signal(signal.SIGTERM)
        peer.may_admit.set()
        answer = await posting
        code = await process.ended()

    assert answer is not None
    assert answer.json["status"] == "accepted"
    assert code == 0
