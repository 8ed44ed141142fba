"""A body too large to travel is fetched from the gateway, which may be away for a while."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from tests.integration.heartbeat.conftest import Stage
from tests.integration.heartbeat.kit import ANSWER, World, marker, ran
from tests.integration.heartbeat.test_recovery import WAITING

from reveille.common.v1 import reason_pb2
from reveille.heartbeat.v1 import wakeup_pb2
from reveille.webhook.v1 import delivery_service_pb2 as pb
from reveille.webhook.v1.delivery_service_pb2_grpc import (
    DeliveryServiceServicer,
    add_DeliveryServiceServicer_to_server,
)
from reveille_heartbeat.pipeline.context import RunContext
from reveille_heartbeat.usecases.runs.loaded import Words
from reveille_runtime.errors import NotFound, Unavailable
from reveille_testkit.rpc import Keyring, RpcRig, serving
from reveille_testkit.waiting import eventually


@dataclass
class Gateway(DeliveryServiceServicer):
    """A gateway that holds bodies, and is away for its first few calls."""

    bodies: dict[str, bytes] = field(default_factory=dict)
    away: int = 0
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def GetDelivery(
        self, request: pb.GetDeliveryRequest, context: Any
    ) -> pb.GetDeliveryResponse:
        raise NotFound("NOT_FOUND", "no such delivery")

    async def ListDeliveries(
        self, request: pb.ListDeliveriesRequest, context: Any
    ) -> pb.ListDeliveriesResponse:
        return pb.ListDeliveriesResponse()

    async def GetDeliveryBody(
        self, request: pb.GetDeliveryBodyRequest, context: Any
    ) -> AsyncIterator[pb.GetDeliveryBodyResponse]:
        self.asked.set()
        if self.away > 0:
            self.away -= 1
            raise Unavailable("DATABASE_UNAVAILABLE", "not now")
        if request.delivery_id not in self.bodies:
            raise NotFound("NOT_FOUND", "no such delivery")
        body = self.bodies[request.delivery_id]
        for start in range(0, len(body), 1 << 20):
            yield pb.GetDeliveryBodyResponse(chunk=body[start : start + (1 << 20)])


@pytest.fixture
async def gateway(keys: Keyring) -> AsyncIterator[tuple[Gateway, str]]:
    gateway = Gateway()  # type: ignore[abstract]  # only what is asked of it
    rig = RpcRig(keys)
    rig.server.add(add_DeliveryServiceServicer_to_server, gateway)
    async with serving(rig):
        yield gateway, rig.server.address


async def test_a_large_body_reaches_the_agent_whole(
    stage: Stage, gateway: tuple[Gateway, str]
) -> None:
    there, address = gateway
    service = await stage.start(webhook_target=address)
    world = World(service.client, stage.folder)
    await world.put()
    delivery = str(uuid4())
    there.bodies[delivery] = json.dumps({"text": "x" * (3 << 20)}).encode()
    there.away = 2
    agent = await world.script(
        "import json, os, pathlib\n"
        "p = json.loads(pathlib.Path(os.environ['REVEILLE_PAYLOAD_FILE']).read_text())\n"
        "print(len(p['payload']['body']['text']), os.path.getsize(p['payload_file']))\n"
    )
    result = await world.wake(
        agent,
        f"webhook:{delivery}",
        payload=wakeup_pb2.Payload(content_type="application/json", delivery_id=delivery),
    )
    wakeup = await world.settled(result.wakeup_id)

    assert await world.log(wakeup.run_id) == f"{3 << 20} {len(there.bodies[delivery])}\n"


@pytest.mark.parametrize(("size", "aside"), [(100, False), (400_000, True)])
async def test_what_is_large_is_read_and_written_beside_the_event_loop(
    world: World, monkeypatch: pytest.MonkeyPatch, size: int, aside: bool
) -> None:
    """Payloads, result files and what is checked of them: everybody else is served meanwhile."""
    here = threading.current_thread()
    threads: dict[str, bool] = {}

    def noted(where: str, name: str) -> None:
        module = import_module(f"reveille_heartbeat.{where}")
        function = getattr(module, name)

        def note(*arguments: Any, **options: Any) -> Any:
            threads[name] = threading.current_thread() is not here
            return function(*arguments, **options)

        monkeypatch.setattr(module, name, note)

    noted("pipeline.payload", "build")
    noted("adapters.process.ending", "read_document")
    noted("pipeline.execute", "answer_of")
    result = await world.wake(
        await world.script(ANSWER),
        payload=wakeup_pb2.Payload(
            content_type="application/json", body=json.dumps({"text": "x" * size}).encode()
        ),
    )
    wakeup = await world.settled(result.wakeup_id)

    assert json.loads((await world.run(wakeup.run_id)).result)["result"]["body"] == {
        "text": "x" * size
    }
    assert threads == {"build": aside, "read_document": aside, "answer_of": aside}


async def test_what_an_agent_finds_in_its_folder_is_not_kept_in_memory_while_it_works(
    world: World, tmp_path: Path
) -> None:
    code = marker(tmp_path) + WAITING.format(go=str(tmp_path / "go")) + ANSWER
    body = json.dumps({"text": "x" * 100_000}).encode()
    result = await world.wake(
        await world.script(code),
        payload=wakeup_pb2.Payload(content_type="application/json", body=body),
    )

    async def at_work() -> list[str]:
        return ran(tmp_path)

    (run_id,) = await eventually(at_work, "the agent runs")
    contexts = [each for each in gc.get_objects() if type(each) is RunContext]
    (context,) = [each for each in contexts if str(each.run_id) == run_id]
    assert (context.document, context.loaded.words) == ({}, Words())
    (tmp_path / "go").touch()
    assert (await world.settled(result.wakeup_id)).state == wakeup_pb2.WAKEUP_STATE_COMPLETED
    assert json.loads((await world.run(run_id)).result)["result"]["body"] == {"text": "x" * 100_000}


async def test_a_body_that_is_gone_is_a_failed_set_up(
    stage: Stage, gateway: tuple[Gateway, str]
) -> None:
    _, address = gateway
    service = await stage.start(webhook_target=address)
    world = World(service.client, stage.folder)
    await world.put()
    result = await world.wake(
        await world.script(ANSWER),
        "webhook:1",
        payload=wakeup_pb2.Payload(delivery_id=str(uuid4())),
    )
    wakeup = await world.settled(result.wakeup_id)

    assert wakeup.state == wakeup_pb2.WAKEUP_STATE_FAILED
    assert wakeup.reason == reason_pb2.REASON_SETUP_FAILED
    assert "no such delivery" in wakeup.message


async def test_a_gateway_that_is_away_for_longer_than_an_agent_may_be_silent_is_waited_for(
    stage: Stage, gateway: tuple[Gateway, str], rows: asyncpg.Connection[asyncpg.Record]
) -> None:
    there, address = gateway
    service = await stage.start(webhook_target=address)
    world = World(service.client, stage.folder)
    await world.put()
    delivery = str(uuid4())
    there.bodies[delivery], there.away = b"{}", 1_000_000
    agent = await world.script(ANSWER, idle_timeout={"seconds": 2})
    result = await world.wake(agent, "webhook:1", payload=wakeup_pb2.Payload(delivery_id=delivery))

    async def long_enough() -> bool:
        query = "SELECT clock() - started_at > interval '5 s' FROM runs"
        return bool(await rows.fetchval(query))

    await eventually(long_enough, "it has waited")
    there.away = 0
    wakeup = await world.settled(result.wakeup_id)
    assert wakeup.state == wakeup_pb2.WAKEUP_STATE_COMPLETED
    told = await rows.fetch("SELECT message FROM run_events WHERE type = 'run.payload_awaited'")
    assert [row["message"] for row in told] == [
        "the gateway cannot give the payload now, and is asked again: not now"
    ]


async def test_a_run_that_waits_for_its_body_can_be_cancelled(
    stage: Stage, gateway: tuple[Gateway, str]
) -> None:
    there, address = gateway
    there.away = 1_000_000
    service = await stage.start(webhook_target=address)
    world = World(service.client, stage.folder)
    await world.put()
    result = await world.wake(
        await world.script(ANSWER),
        "webhook:1",
        payload=wakeup_pb2.Payload(delivery_id=str(uuid4())),
    )
    await there.asked.wait()
    await world.cancel("webhook:1")
    wakeup = await world.settled(result.wakeup_id)

    assert wakeup.state == wakeup_pb2.WAKEUP_STATE_CANCELLED
