"""Which calls a channel repeats by itself, and which it does not."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.trace import SpanKind

from reveille.heartbeat.v1 import workspace_replica_service_pb2 as replica
from reveille.heartbeat.v1 import workspace_replica_service_pb2_grpc as replica_grpc
from reveille_runtime.client import Channels
from reveille_runtime.errors import Aborted, DomainError, Unavailable
from reveille_runtime.rpc_errors import as_domain_errors
from reveille_runtime.telemetry import Telemetry
from reveille_testkit.rpc import Keyring, RpcRig, serving

SERVICE = "reveille.heartbeat.v1.WorkspaceReplicaService"


class Replica(replica_grpc.WorkspaceReplicaServiceServicer):
    """Fails as often as the test says."""

    def __init__(self) -> None:
        self.failures: list[DomainError] = []
        self.calls = 0

    async def PutWorkspace(
        self, request: replica.PutWorkspaceRequest, context: Any
    ) -> replica.PutWorkspaceResponse:
        self.calls += 1
        if self.failures:
            raise self.failures.pop()
        return replica.PutWorkspaceResponse()


@pytest.fixture
def servicer() -> Replica:
    return Replica()


@pytest.fixture
async def rig(tmp_path: Path, servicer: Replica) -> AsyncIterator[RpcRig]:
    rig = RpcRig(Keyring(tmp_path / "keys"))
    rig.server.add(replica_grpc.add_WorkspaceReplicaServiceServicer_to_server, servicer)
    async with serving(rig):
        yield rig


async def put(rig: RpcRig, idempotent: tuple[str, ...]) -> None:
    channels = rig.channels(rig.keys.service("autopilot"), idempotent=idempotent)
    stub = replica_grpc.WorkspaceReplicaServiceStub(channels.get("server"))
    with as_domain_errors():
        await stub.PutWorkspace(replica.PutWorkspaceRequest())


@pytest.mark.parametrize("entry", [SERVICE, f"{SERVICE}/PutWorkspace"])
async def test_an_idempotent_call_is_repeated_in_one_client_span(
    rig: RpcRig, servicer: Replica, entry: str
) -> None:
    servicer.failures = [Unavailable("AWAY", retry_after=0.0)] * 2

    await put(rig, (entry,))

    assert servicer.calls == 3
    await rig.spans.wait("PutWorkspace", SpanKind.CLIENT)
    assert len(rig.spans.named("PutWorkspace", SpanKind.CLIENT)) == 1


async def test_other_calls_are_not_repeated(rig: RpcRig, servicer: Replica) -> None:
    servicer.failures = [Unavailable("AWAY")]

    with pytest.raises(Unavailable):
        await put(rig, (f"{SERVICE}/Other",))

    assert servicer.calls == 1


async def test_a_refusal_is_not_repeated(rig: RpcRig, servicer: Replica) -> None:
    servicer.failures = [Aborted("LEASE_LOST")]

    with pytest.raises(Aborted):
        await put(rig, (SERVICE,))

    assert servicer.calls == 1


async def test_a_callers_own_credentials_are_kept(rig: RpcRig, servicer: Replica) -> None:
    stub = replica_grpc.WorkspaceReplicaServiceStub(rig.channel("nonsense"))

    await stub.PutWorkspace(
        replica.PutWorkspaceRequest(),
        metadata=(("authorization", f"Bearer {rig.keys.service('autopilot')}"),),
    )

    assert servicer.calls == 1


async def test_one_channel_per_target_and_closed_twice(rig: RpcRig) -> None:
    channels = rig.channels(None)

    assert channels.get("server") is channels.get("server")
    with pytest.raises(KeyError):
        channels.get("elsewhere")
    await channels.close()
    await channels.close()


async def test_a_new_channel_knows_nothing_of_who_was_not_there(servicer: Replica) -> None:
    with socket.socket() as reserved:
        # Ours, though nobody listens yet.
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{reserved.getsockname()[1]}"

        async def ask(channels: Channels) -> None:
            stub = replica_grpc.WorkspaceReplicaServiceStub(channels.get("server"))
            with as_domain_errors():
                await stub.PutWorkspace(replica.PutWorkspaceRequest())

        def channels() -> Channels:
            return Channels({"server": address}, telemetry=Telemetry.off(), token=str)

        async with channels() as early, channels() as late:
            with pytest.raises(Unavailable):
                await ask(early)
            server = grpc.aio.server()
            replica_grpc.add_WorkspaceReplicaServiceServicer_to_server(servicer, server)
            server.add_insecure_port(address)
            await server.start()
            try:
                await ask(late)
            finally:
                await server.stop(None)

    assert servicer.calls == 1
