"""The gateway, wired as in production, over a real database and real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID, uuid4

import asyncpg
import grpc
import pytest_asyncio
from google.protobuf.timestamp_pb2 import Timestamp
from tests.integration.webhook.peer import FakeAutopilot

from reveille.autopilot.v1.dispatch_service_pb2_grpc import add_DispatchServiceServicer_to_server
from reveille.explain.v1.explain_service_pb2_grpc import ExplainServiceStub
from reveille.webhook.v1 import endpoint_service_pb2 as endpoint_pb
from reveille.webhook.v1.delivery_service_pb2_grpc import DeliveryServiceStub
from reveille.webhook.v1.endpoint_service_pb2_grpc import EndpointServiceStub
from reveille_runtime.app import App
from reveille_runtime.client import Channels
from reveille_runtime.crypto import Sealer, generate_key
from reveille_runtime.db import Database
from reveille_runtime.lease import LeaseKeeper
from reveille_runtime.lifecycle import Component, Loop
from reveille_runtime.telemetry import Telemetry
from reveille_testkit.database import TestDatabase
from reveille_testkit.rpc import Keyring, RpcRig, SpanLog, serving
from reveille_webhook import wiring
from reveille_webhook.config import Settings
from reveille_webhook.http.edge import HttpEdge
from reveille_webhook.usecases.admit import Admit
from reveille_webhook.usecases.secrets import Secrets
from reveille_webhook.workers.dispatcher import Dispatcher

SECRET = b"a signing secret of the tests"
Rows: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


@dataclass(frozen=True)
class Response:
    """What came back over HTTP."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Hook:
    """An endpoint of a test, and the token that only its sender has."""

    id: UUID
    workspace_id: UUID
    token: str
    secret_id: UUID | None


class WatchedApp(App[Settings]):
    """The service's own composition, with its parts within reach."""

    def __init__(self, settings: Settings, telemetry: Telemetry) -> None:
        super().__init__(settings, telemetry)
        self.loops: dict[str, Loop] = {}
        self.database: Database | None = None
        self.edge: HttpEdge | None = None
        self.dispatcher: Dispatcher | None = None
        self.admit: Admit | None = None
        self.keeper: LeaseKeeper | None = None

    def works(self, component: Component) -> None:
        if isinstance(component, Dispatcher):
            self.dispatcher = component
            component._capacity = 0
            self.keeper = component._keeper
        super().works(component)

    def claims(self, component: Component) -> None:
        if isinstance(component, Loop):
            self.loops[component.name] = component
        super().claims(component)

    def on_drain(self, stop: Any) -> None:
        if isinstance(getattr(stop, "__self__", None), HttpEdge):
            self.edge = stop.__self__
        super().on_drain(stop)

    async def resource(self, manager: Any) -> Any:
        if isinstance(manager, Database):
            self.database = manager
        if isinstance(manager, Admit):
            self.admit = manager
        return await super().resource(manager)


class Stage:
    """Where gateways play: a database, keys, and an autopilot behind a real socket."""

    def __init__(
        self, folder: Path, database: TestDatabase, rig: RpcRig, peer: FakeAutopilot
    ) -> None:
        self.database = database
        self.rig = rig
        self.peer = peer
        self.keys = rig.keys
        self.sealing_key = folder / "sealing.key"
        self.sealing_key.write_text(generate_key() + "\n", encoding="ascii")

    def settings(self, **overrides: Any) -> Settings:
        password_file = self.database.settings("webhook").password_file
        values: dict[str, Any] = {
            "listen": "127.0.0.1:0",
            "http_listen": "127.0.0.1:0",
            "database_url": self.database.url("reveille_webhook_app"),
            "database_password_file": password_file,
            "trusted_keys_file": self.keys.trusted_file,
            "service_key_file": self.keys.private_key("webhook-gateway"),
            "sealing_key_file": self.sealing_key,
            "autopilot_target": self.rig.server.address,
            "scheduler_target": self.rig.server.address,
            "rate_per_minute": 0,
            "hourly_budget": 0,
            "admission_budget": 15.0,
            "ip_ceiling": 0,
            "credential_debt": 0,
            # Loops move when the test wakes them.
            "worker_interval": 3600.0,
            "drain_grace": 2.0,
        }
        return Settings(**{**values, **overrides})

    @contextlib.asynccontextmanager
    async def gateway(self, **overrides: Any) -> AsyncIterator[Gateway]:
        """Run a replica."""
        spans = SpanLog()
        app = WatchedApp(self.settings(**overrides), Telemetry.of("webhook-gateway", [spans]))
        gateway = Gateway(app, self, spans)
        try:
            await app.start(wiring.build)
            yield gateway
        finally:
            await gateway.close()


class Gateway:
    """One running replica, and callers of every kind."""

    def __init__(self, app: WatchedApp, stage: Stage, spans: SpanLog) -> None:
        self.app = app
        self.stage = stage
        self.spans = spans
        self._channels: list[Channels] = []
        self._rows: Rows | None = None

    @property
    def edge(self) -> HttpEdge:
        assert self.app.edge is not None
        return self.app.edge

    @property
    def database(self) -> Database:
        assert self.app.database is not None
        return self.app.database

    def channel(self, token: str) -> grpc.aio.Channel:
        channels = Channels(
            {"server": self.app.server.address}, telemetry=Telemetry.off(), token=lambda: token
        )
        self._channels.append(channels)
        return channels.get("server")

    def endpoints(self, caller: str = "autopilot") -> Any:
        return EndpointServiceStub(self.channel(self.stage.keys.service(caller)))

    def deliveries(self, token: str | None = None) -> Any:
        return DeliveryServiceStub(self.channel(token or self.stage.keys.service("heartbeat")))

    def explains(self, token: str | None = None) -> Any:
        return ExplainServiceStub(self.channel(token or self.stage.keys.service("heartbeat")))

    async def hook(
        self,
        provider: str = "github",
        *,
        secret: bytes | None = SECRET,
        max_body_bytes: int = 0,
        revision: int = 1,
        options: endpoint_pb.EndpointOptions | None = None,
        token: str = "",
        workspace_id: UUID | None = None,
    ) -> Hook:
        """Make an endpoint as autopilot would; a secret may be shorter than people's may."""
        hook = Hook(
            uuid4(),
            workspace_id or uuid4(),
            token or f"awt_{uuid4().hex}{uuid4().hex}",
            (secret and uuid4()) or None,
        )
        stub = self.endpoints()
        await stub.PutEndpoint(
            endpoint_pb.PutEndpointRequest(
                endpoint=endpoint_of(
                    hook,
                    provider=provider,
                    max_body_bytes=max_body_bytes,
                    revision=revision,
                    options=options,
                )
            )
        )
        if secret is not None:
            secrets = Secrets(self.database, Sealer(self.stage.sealing_key))
            await secrets.add(hook.id, hook.secret_id or uuid4(), secret, None)
        return hook

    async def post(
        self,
        hook: Hook,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        *,
        secret: bytes | None = SECRET,
        event: str = "issues",
        delivery: str = "",
    ) -> Response:
        """Post as GitHub does; `secret` None leaves the request unsigned."""
        all_headers = {
            "Content-Type": "application/json",
            "X-GitHub-Event": event,
            **({"X-GitHub-Delivery": delivery} if delivery else {}),
            **({"X-Hub-Signature-256": signature(secret, body)} if secret is not None else {}),
            **(headers or {}),
        }
        return await self.request("POST", f"/hooks/{hook.token}", body, list(all_headers.items()))

    async def request(
        self, method: str, path: str, body: bytes = b"", headers: Sequence[tuple[str, str]] = ()
    ) -> Response:
        """Send one request on a connection of its own."""
        lines = [f"{method} {path} HTTP/1.1", "Host: hooks.test", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers]
        head = "\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1")
        return await self.raw(head + body)

    async def raw(self, data: bytes) -> Response:
        """Send bytes as they are and read the answer."""
        async with asyncio.timeout(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.edge.port)
            try:
                writer.write(data)
                return await read_response(reader)
            finally:
                writer.close()

    async def rows(self) -> list[asyncpg.Record]:
        """Read every delivery from behind the scenes, oldest first, once judgements are written."""
        await self.settled()
        if self._rows is None:
            self._rows = await self.stage.database.admin()
        return await self._rows.fetch("SELECT * FROM webhook.deliveries ORDER BY received_at, id")

    async def settled(self) -> None:
        """Wait for what is written behind answers."""
        assert self.app.admit is not None
        await self.app.admit.settled()

    async def row(self) -> asyncpg.Record:
        """Read the only delivery."""
        (found,) = await self.rows()
        return found

    async def work(self) -> None:
        """Let the worker claim what is due, and wait for the end of what it claimed."""
        await self.claim()
        await self.idle()

    async def claim(self) -> None:
        """Let the worker claim what is due; at other times it has room for nothing."""
        await self.settled()
        assert self.app.dispatcher is not None
        self.resume()
        await self.step("dispatcher claims")
        self.app.dispatcher._capacity = 0

    def resume(self) -> None:
        """Let the worker claim whenever something is due, as it does in production."""
        assert self.app.dispatcher is not None
        self.app.dispatcher._capacity = 400

    async def idle(self) -> None:
        """Wait until the worker holds nothing."""
        assert self.app.dispatcher is not None
        async with asyncio.timeout(20):
            while tasks := set(self.app.dispatcher._scope._tasks):
                await asyncio.wait(tasks)

    async def step(self, loop: str) -> None:
        """Let one loop look once."""
        self.app.loops[loop].wake()
        await self.app.loops[loop].ticked()

    async def sql(self, statement: str, *arguments: object) -> Any:
        """Look, or reach, behind the scenes."""
        if self._rows is None:
            self._rows = await self.stage.database.admin()
        return await self._rows.fetchval(statement, *arguments)

    async def close(self) -> None:
        for channels in self._channels:
            await channels.close()
        await self.app.stop()


def endpoint_of(
    hook: Hook,
    *,
    provider: str = "github",
    max_body_bytes: int = 0,
    revision: int = 1,
    options: endpoint_pb.EndpointOptions | None = None,
) -> endpoint_pb.Endpoint:
    return endpoint_pb.Endpoint(
        endpoint_id=str(hook.id),
        workspace_id=str(hook.workspace_id),
        token_sha256=hashlib.sha256(hook.token.encode()).digest(),
        provider=provider,
        max_body_bytes=max_body_bytes,
        revision=revision,
        options=options,
    )


def stamp(seconds: float) -> Timestamp:
    made = Timestamp()
    made.FromNanoseconds(int(seconds * 1e9))
    return made


def signature(secret: bytes, body: bytes) -> str:
    return "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest()


async def read_response(reader: asyncio.StreamReader) -> Response:
    """Read one answer with a declared length."""
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Response(int(first.split()[1]), headers, body)


@pytest_asyncio.fixture
async def stage(database: TestDatabase, tmp_path: Path) -> AsyncIterator[Stage]:
    peer = FakeAutopilot()
    rig = RpcRig(Keyring(tmp_path / "keys"))
    rig.server.add(add_DispatchServiceServicer_to_server, peer)
    async with serving(rig):
        yield Stage(tmp_path, database, rig, peer)


@pytest_asyncio.fixture
async def gateway(stage: Stage) -> AsyncIterator[Gateway]:
    async with stage.gateway() as running:
        yield running


@pytest_asyncio.fixture
async def peer(stage: Stage) -> FakeAutopilot:
    return stage.peer
