"""How calls end: what the handler, both spans and the metrics say about it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from reveille.events.v1 import event_service_pb2 as events
from reveille.events.v1 import event_service_pb2_grpc as events_grpc
from reveille.heartbeat.v1 import workspace_replica_service_pb2 as replica
from reveille.heartbeat.v1 import workspace_replica_service_pb2_grpc as replica_grpc
from reveille_runtime import semconv
from reveille_runtime.client import stream
from reveille_runtime.errors import NotFound, Unavailable
from reveille_runtime.interceptors.errors import to_grpc_status
from reveille_runtime.telemetry import Telemetry
from reveille_testkit.rpc import Keyring, RpcRig, SpanLog, serving

UNARY = "PutWorkspace"
STREAM = "WatchEvents"
Behaviour = Callable[[Any], Awaitable[None]]


class Replica(replica_grpc.WorkspaceReplicaServiceServicer):
    """Does what the test says, and shows how it went."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.behaviour: Behaviour | None = None

    async def PutWorkspace(
        self, request: replica.PutWorkspaceRequest, context: Any
    ) -> replica.PutWorkspaceResponse:
        self.entered.set()
        try:
            if self.behaviour is not None:
                await self.behaviour(context)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return replica.PutWorkspaceResponse()


class Events(events_grpc.EventServiceServicer):
    """A stream that sends one message and then waits, or fails as the test says."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.behaviour: Behaviour | None = None
        self.flood = False

    async def WatchEvents(
        self, request: events.WatchEventsRequest, context: Any
    ) -> AsyncIterator[events.WatchEventsResponse]:
        try:
            yield events.WatchEventsResponse()
            while self.flood:
                yield events.WatchEventsResponse()
            if self.behaviour is not None:
                await self.behaviour(context)
            else:
                await forever(context)
        finally:
            self.ended.set()


async def forever(_context: object) -> None:
    await asyncio.Event().wait()


async def read_all(call: Any) -> None:
    async with stream(call) as replies:
        async for _ in replies:
            pass


class Rig(RpcRig):
    def __init__(self, keys: Keyring) -> None:
        super().__init__(keys)
        self.metrics = InMemoryMetricReader()
        self.replica = Replica()
        self.events = Events()
        self.server.add(replica_grpc.add_WorkspaceReplicaServiceServicer_to_server, self.replica)
        self.server.add(events_grpc.add_EventServiceServicer_to_server, self.events)

    def unary(self, timeout: float | None = None) -> Any:
        channel = self.channel(self.keys.service("autopilot"))
        stub = replica_grpc.WorkspaceReplicaServiceStub(channel)
        return stub.PutWorkspace(replica.PutWorkspaceRequest(), timeout=timeout)

    def watch(self, timeout: float | None = None) -> Any:
        channel = self.channel(self.keys.service("autopilot"))
        return events_grpc.EventServiceStub(channel).WatchEvents(
            events.WatchEventsRequest(), timeout=timeout
        )

    async def both(self, name: str) -> tuple[ReadableSpan, ReadableSpan]:
        return (
            await self.spans.wait(name, SpanKind.CLIENT),
            await self.spans.wait(name, SpanKind.SERVER),
        )


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with serving(Rig(Keyring(tmp_path / "keys"))) as rig:
        assert isinstance(rig, Rig)
        yield rig


def status_of(span: ReadableSpan) -> object:
    return (span.attributes or {}).get(semconv.RPC_STATUS_CODE)


async def test_a_call_makes_one_trace_with_both_sides(rig: Rig) -> None:
    await rig.unary()

    client, server = await rig.both(UNARY)
    assert client.context is not None
    assert server.parent is not None
    assert server.parent.span_id == client.context.span_id
    assert server.name == "reveille.heartbeat.v1.WorkspaceReplicaService/PutWorkspace"
    assert (status_of(client), status_of(server)) == ("OK", "OK")
    assert client.status.status_code is StatusCode.UNSET
    assert server.status.status_code is StatusCode.UNSET


async def test_a_cancelled_client_task_cancels_the_handler(rig: Rig) -> None:
    rig.replica.behaviour = forever

    async def call() -> None:
        await rig.unary(timeout=30)

    task = asyncio.ensure_future(call())
    await rig.replica.entered.wait()
    task.cancel()

    async with asyncio.timeout(2):
        await rig.replica.cancelled.wait()
        client, server = await rig.both(UNARY)
    assert (status_of(client), status_of(server)) == ("CANCELLED", "CANCELLED")
    assert client.status.status_code is StatusCode.ERROR
    assert server.status.status_code is StatusCode.UNSET
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_client_that_stops_waiting_cancels_the_handler(rig: Rig) -> None:
    rig.replica.behaviour = forever

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(rig.unary(timeout=30), 0.1)

    async with asyncio.timeout(2):
        await rig.replica.cancelled.wait()
        client, server = await rig.both(UNARY)
    assert (status_of(client), status_of(server)) == ("CANCELLED", "CANCELLED")


async def test_a_deadline_is_told_apart_from_a_cancellation(rig: Rig) -> None:
    rig.replica.behaviour = forever

    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await rig.unary(timeout=0.2)

    client, server = await rig.both(UNARY)
    assert refused.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert (status_of(client), status_of(server)) == ("DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED")
    assert server.status.status_code is StatusCode.ERROR


async def abort(context: Any) -> None:
    await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no")


async def abort_with_status(context: Any) -> None:
    await context.abort_with_status(to_grpc_status(Unavailable("AWAY", "later")))


async def refuse(_context: object) -> None:
    raise NotFound("RUN_NOT_FOUND", "no such run")


async def crash(_context: object) -> None:
    raise ZeroDivisionError("a secret: awt_abcdefgh")


@pytest.mark.parametrize("name", [UNARY, STREAM])
@pytest.mark.parametrize(
    ("behaviour", "code", "fault"),
    [
        (abort, "FAILED_PRECONDITION", False),
        (abort_with_status, "UNAVAILABLE", True),
        (refuse, "NOT_FOUND", False),
        (crash, "INTERNAL", True),
    ],
)
async def test_every_ending_has_its_status_in_both_spans(
    rig: Rig, name: str, behaviour: Behaviour, code: str, fault: bool
) -> None:
    rig.replica.behaviour = behaviour
    rig.events.behaviour = behaviour

    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await (rig.unary() if name == UNARY else read_all(rig.watch()))

    client, server = await rig.both(name)
    assert refused.value.code().name == code
    assert (status_of(client), status_of(server)) == (code, code)
    assert client.status.status_code is StatusCode.ERROR
    assert server.status.status_code is (StatusCode.ERROR if fault else StatusCode.UNSET)
    assert len(rig.spans.named(name, SpanKind.SERVER)) == 1


async def test_a_bug_shows_the_caller_nothing_but_an_id(rig: Rig) -> None:
    rig.replica.behaviour = crash

    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await rig.unary()

    _, server = await rig.both(UNARY)
    assert server.context is not None
    assert refused.value.details() == (
        f"internal error, logged under the id {server.context.trace_id:032x}"
    )


async def test_a_stream_left_early_ends_on_both_sides(rig: Rig) -> None:
    async with stream(rig.watch()) as replies:
        async for _ in replies:
            break

    async with asyncio.timeout(2):
        await rig.events.ended.wait()
        client, server = await rig.both(STREAM)
    assert (status_of(client), status_of(server)) == ("CANCELLED", "CANCELLED")


async def test_a_stream_is_cancelled_also_while_it_sends(rig: Rig) -> None:
    rig.events.flood = True

    async with stream(rig.watch()) as replies:
        async for _ in replies:
            break

    async with asyncio.timeout(2):
        await rig.events.ended.wait()
        _, server = await rig.both(STREAM)
    assert status_of(server) == "CANCELLED"


async def test_a_cancelled_reader_of_a_stream_reaches_the_server(rig: Rig) -> None:
    read = asyncio.Event()

    async def reader() -> None:
        async with stream(rig.watch()) as replies:
            async for _ in replies:
                read.set()

    task = asyncio.ensure_future(reader())
    await read.wait()
    task.cancel()

    async with asyncio.timeout(2):
        await rig.events.ended.wait()
        client, server = await rig.both(STREAM)
    assert (status_of(client), status_of(server)) == ("CANCELLED", "CANCELLED")
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_stream_has_a_deadline_only_when_asked(rig: Rig) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await read_all(rig.watch(timeout=0.2))

    client, server = await rig.both(STREAM)
    assert refused.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert (status_of(client), status_of(server)) == ("DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED")


async def test_a_peer_that_is_away_ends_the_client_span(tmp_path: Path, rig: Rig) -> None:
    channel = rig.channel(rig.keys.service("autopilot"))
    await rig.server.stop(grace=0)
    stub = replica_grpc.WorkspaceReplicaServiceStub(channel)

    with pytest.raises(grpc.aio.AioRpcError):
        await stub.PutWorkspace(replica.PutWorkspaceRequest(), timeout=2)

    client = await rig.spans.wait(UNARY, SpanKind.CLIENT)
    assert status_of(client) == "UNAVAILABLE"


async def test_durations_are_recorded_by_method_and_status(tmp_path: Path) -> None:
    keys = Keyring(tmp_path / "keys")
    rig = RpcRig(keys)
    reader = InMemoryMetricReader()
    measured = Telemetry.of("client", [SpanLog()], [reader])
    servicer = Replica()
    rig.server.add(replica_grpc.add_WorkspaceReplicaServiceServicer_to_server, servicer)
    async with serving(rig):
        channels = rig.channels(keys.service("autopilot"), telemetry=measured)
        stub = replica_grpc.WorkspaceReplicaServiceStub(channels.get("server"))
        await stub.PutWorkspace(replica.PutWorkspaceRequest())
        await channels.close()

    data = reader.get_metrics_data()
    assert data is not None
    (metric,) = data.resource_metrics[0].scope_metrics[0].metrics
    (point,) = metric.data.data_points
    assert metric.name == semconv.RPC_CLIENT_DURATION
    assert metric.unit == "s"
    assert dict(point.attributes or {})[semconv.RPC_STATUS_CODE] == "OK"
    measured.shutdown()
