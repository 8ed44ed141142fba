"""A server's life: starting, ready, draining, stopped; and the probes that watch it."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from reveille.events.v1 import event_service_pb2 as events
from reveille.events.v1 import event_service_pb2_grpc as events_grpc
from reveille.heartbeat.v1 import agent_pb2
from reveille.heartbeat.v1 import workspace_replica_service_pb2 as replica
from reveille.heartbeat.v1 import workspace_replica_service_pb2_grpc as replica_grpc
from reveille_runtime.client import reads_of, service_config, stream
from reveille_runtime.errors import ResourceExhausted, Unavailable
from reveille_runtime.healthcheck import main as healthcheck
from reveille_runtime.rpc_errors import as_domain_errors
from reveille_runtime.server import OPTIONS, ListenError, draining_error
from reveille_testkit.rpc import Keyring, RpcRig, serving

SERVICE = "reveille.events.v1.EventService"


class Events(events_grpc.EventServiceServicer):
    """Streams until the server drains."""

    def __init__(self, rig: RpcRig) -> None:
        self.rig = rig

    async def WatchEvents(
        self, request: events.WatchEventsRequest, context: Any
    ) -> AsyncIterator[events.WatchEventsResponse]:
        yield events.WatchEventsResponse()
        await self.rig.server.draining.wait()
        raise draining_error()


class Replica(replica_grpc.WorkspaceReplicaServiceServicer):
    """Works until it is let go."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.release = asyncio.Event()
        self.cleaned_up = False

    async def PutWorkspace(
        self, request: replica.PutWorkspaceRequest, context: Any
    ) -> replica.PutWorkspaceResponse:
        self.entered.set()
        try:
            await self.release.wait()
        finally:
            self.cleaned_up = True
        return replica.PutWorkspaceResponse()


class Rig(RpcRig):
    def __init__(self, keys: Keyring, *, max_concurrent: int = 2000) -> None:
        super().__init__(keys, max_concurrent=max_concurrent)
        self.replica = Replica()
        self.server.add(events_grpc.add_EventServiceServicer_to_server, Events(self))
        self.server.add(replica_grpc.add_WorkspaceReplicaServiceServicer_to_server, self.replica)

    async def health(self, service: str = "") -> str:
        async with grpc.aio.insecure_channel(self.server.address) as channel:
            stub: Any = health_pb2_grpc.HealthStub(channel)
            reply = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=5)
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status))

    def put(self) -> Any:
        channel = self.channel(self.keys.service("autopilot"))
        return replica_grpc.WorkspaceReplicaServiceStub(channel).PutWorkspace(
            replica.PutWorkspaceRequest()
        )


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    rig = Rig(Keyring(tmp_path / "keys"))
    try:
        yield rig
    finally:
        await rig.close()


async def test_it_listens_before_it_serves(rig: Rig) -> None:
    port = await rig.server.start()

    assert port > 0
    assert await rig.health() == "NOT_SERVING"
    with pytest.raises(Unavailable) as refused, as_domain_errors():
        await rig.put()
    assert refused.value.reason == "NOT_SERVING"

    rig.replica.release.set()
    await rig.server.ready()

    assert await rig.health() == "SERVING"
    assert await rig.health(SERVICE) == "SERVING"
    await rig.put()


async def test_a_service_that_is_still_being_built_refuses_nobody_for_good(
    tmp_path: Path,
) -> None:
    bare = RpcRig(Keyring(tmp_path / "keys"))
    try:
        await bare.server.start()
        stub = replica_grpc.WorkspaceReplicaServiceStub(
            bare.channel(bare.keys.service("autopilot"))
        )
        with pytest.raises(Unavailable) as refused, as_domain_errors():
            await stub.PutWorkspace(replica.PutWorkspaceRequest())
    finally:
        await bare.close()

    assert refused.value.reason == "NOT_SERVING"


async def test_a_dead_loop_shows_in_health_and_so_does_its_recovery(rig: Rig) -> None:
    await rig.server.start()
    await rig.server.set_healthy(False)
    await rig.server.ready()

    assert await rig.health() == "NOT_SERVING"

    await rig.server.set_healthy(True)

    assert await rig.health() == "SERVING"


async def test_draining_ends_watches_and_lets_work_finish(rig: Rig) -> None:
    await rig.server.start()
    await rig.server.ready()
    channel = rig.channel(rig.keys.service("autopilot"))
    work = asyncio.ensure_future(rig.put())
    await rig.replica.entered.wait()

    async with stream(
        events_grpc.EventServiceStub(channel).WatchEvents(events.WatchEventsRequest())
    ) as replies:
        reader = replies.__aiter__()
        await anext(reader)
        await rig.server.drain()
        assert await rig.health() == "NOT_SERVING"
        with pytest.raises(Unavailable) as ended, as_domain_errors():
            await anext(reader)
    assert ended.value.reason == "NOT_SERVING"

    stopping = asyncio.ensure_future(rig.server.stop(grace=20))
    rig.replica.release.set()
    await work
    await stopping
    assert rig.server.in_flight == 0


async def test_work_beyond_the_grace_is_cancelled_and_cleans_up(rig: Rig) -> None:
    await rig.server.start()
    await rig.server.ready()
    work = asyncio.ensure_future(rig.put())
    await rig.replica.entered.wait()

    await rig.server.stop(grace=0.05)

    assert rig.replica.cleaned_up
    with pytest.raises(grpc.aio.AioRpcError):
        await work


async def test_a_server_that_is_full_refuses_calls_and_still_answers_probes(tmp_path: Path) -> None:
    """One that looks dead is restarted, and what it was doing falls on the others."""
    rig = Rig(Keyring(tmp_path / "keys"), max_concurrent=1)
    async with serving(rig):
        work = asyncio.ensure_future(rig.put())
        await rig.replica.entered.wait()

        with pytest.raises(ResourceExhausted) as refused, as_domain_errors():
            await rig.put()
        assert refused.value.reason == "OVERLOADED"
        assert refused.value.retry_after
        assert await rig.health() == "SERVING"

        rig.replica.release.set()
        await work
        await rig.put()


async def test_a_stream_ends_of_its_age_and_a_call_does_not(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reveille_runtime.interceptors.chain.STREAM_AGE", 0.05)
    await rig.server.start()
    await rig.server.ready()
    stub = events_grpc.EventServiceStub(rig.channel(rig.keys.service("autopilot")))

    async with stream(stub.WatchEvents(events.WatchEventsRequest())) as replies:
        await anext(aiter(replies))
        with pytest.raises(Unavailable, match="connect again") as ended, as_domain_errors():
            await anext(aiter(replies))

    assert ended.value.reason == "NOT_SERVING"
    # That of a connection moves new calls to another one, and ends none that is at work.
    assert "grpc.max_connection_age_ms" in dict(OPTIONS)
    assert "grpc.max_connection_age_grace_ms" not in dict(OPTIONS)


async def test_an_open_health_watch_does_not_hold_up_the_stop(rig: Rig) -> None:
    await rig.server.start()
    async with grpc.aio.insecure_channel(rig.server.address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        async with stream(stub.Watch(health_pb2.HealthCheckRequest())) as replies:
            await anext(aiter(replies))
            async with asyncio.timeout(5):
                await rig.server.stop(grace=30)


async def test_it_can_be_stopped_before_it_starts_and_twice(rig: Rig) -> None:
    await rig.server.stop()
    await rig.server.stop()


async def test_a_taken_port_is_a_clear_error(rig: Rig) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        rig.server.listen = f"127.0.0.1:{taken.getsockname()[1]}"

        with pytest.raises(ListenError, match=r"cannot listen on 127\.0\.0\.1:\d+: the port is"):
            await rig.server.start()


def _reflection_stub(channel: Any) -> Any:
    return reflection_pb2_grpc.ServerReflectionStub(channel)


async def test_reflection_lists_our_services(rig: Rig) -> None:
    await rig.server.start()
    await rig.server.ready()

    async with grpc.aio.insecure_channel(rig.server.address) as channel:
        stub = _reflection_stub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        async with stream(stub.ServerReflectionInfo(iter([request]))) as replies:
            reply = await anext(aiter(replies))

    assert SERVICE in {each.name for each in reply.list_services_response.service}


async def test_the_health_check_program_says_how_it_is(rig: Rig) -> None:
    await rig.server.start()
    address = rig.server.address

    assert await asyncio.to_thread(healthcheck, [address]) == 1

    await rig.server.ready()

    assert await asyncio.to_thread(healthcheck, [address]) == 0
    assert await asyncio.to_thread(healthcheck, [address, "--service", SERVICE]) == 0
    assert await asyncio.to_thread(healthcheck, [address, "--service", "unknown"]) == 1

    await rig.server.stop()

    assert await asyncio.to_thread(healthcheck, [address, "--timeout", "1"]) == 1


def test_the_health_check_is_a_program() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    ended = subprocess.run(
        [sys.executable, "-m", "reveille_runtime.healthcheck", f"127.0.0.1:{port}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )

    assert ended.returncode == 1
    assert "UNREACHABLE" in ended.stderr
    assert ended.stdout == ""


def test_only_reads_are_repeatable_by_default() -> None:
    agents = agent_pb2.DESCRIPTOR.services_by_name["AgentService"].full_name
    reads = reads_of(agents)

    assert f"{agents}/GetAgent" in reads
    assert f"{agents}/CreateAgent" not in reads


def test_the_service_config_never_holds_a_timeout() -> None:
    config = service_config(["a.B", "a.C/Get"])

    assert '"timeout"' not in config
    assert '{"service": "a.B"}' in config
    assert '{"service": "a.C", "method": "Get"}' in config
    assert "methodConfig" not in service_config([])
