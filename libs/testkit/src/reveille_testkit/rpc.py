"""Real gRPC servers and channels for tests: keys, callers, and the spans that really ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import grpc
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.trace import SpanKind

from reveille_runtime.access import CallerKind, Role
from reveille_runtime.client import Channels
from reveille_runtime.interceptors.validation import Validators
from reveille_runtime.server import GrpcServer
from reveille_runtime.telemetry import Telemetry
from reveille_runtime.tokens import (
    TokenMinter,
    TokenVerifier,
    TrustedKey,
    generate_key,
    save_trusted_keys,
)

ISSUERS = ("operator", "scheduler", "autopilot", "webhook-gateway", "heartbeat")


class Keyring:
    """A key for every issuer, in a folder of the test."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.trusted: tuple[TrustedKey, ...] = tuple(
            generate_key(self.private_key(issuer), issuer) for issuer in ISSUERS
        )
        self.trusted_file = folder / "trusted_keys.json"
        save_trusted_keys(self.trusted_file, self.trusted)
        self._minters = {
            issuer: TokenMinter(self.private_key(issuer), issuer) for issuer in ISSUERS
        }

    def private_key(self, issuer: str) -> Path:
        """Return the file of an issuer's private key."""
        return self.folder / f"{issuer}.pem"

    def minter(self, issuer: str) -> TokenMinter:
        """Return an issuer's minter."""
        return self._minters[issuer]

    def verifier(self) -> TokenVerifier:
        """Return a verifier that trusts every issuer."""
        return TokenVerifier(self.trusted)

    def service(self, name: str) -> str:
        """Return a service's token."""
        return self.minter(name).service_token()

    def user(
        self, subject: str, roles: Mapping[UUID, Role] | None = None, *, operator: bool = False
    ) -> str:
        """Return a user's token."""
        return self.minter("operator").mint(
            CallerKind.USER, subject, roles=roles, operator=operator
        )

    def run(self, run_id: UUID, workspace_id: UUID) -> str:
        """Return the token of a running agent."""
        return self.minter("heartbeat").mint(
            CallerKind.RUN, str(run_id), workspace_id=workspace_id, run_id=run_id
        )


@dataclass
class SpanLog(SpanProcessor):
    """Keeps every span that ended, and lets a test wait for one."""

    ended: list[ReadableSpan] = field(default_factory=list)
    _waiting: list[asyncio.Event] = field(default_factory=list)

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Ignore spans that have only begun."""

    def on_end(self, span: ReadableSpan) -> None:
        """Keep the span."""
        self.ended.append(span)
        for event in self._waiting:
            event.set()

    def named(self, name: str, kind: SpanKind | None = None) -> list[ReadableSpan]:
        """Return the spans of a name that have ended; a method's short name will do."""
        return [
            span
            for span in self.ended
            if (span.name == name or span.name.endswith(f"/{name}"))
            and (kind is None or span.kind is kind)
        ]

    async def wait(
        self, name: str, kind: SpanKind | None = None, timeout: float = 10.0
    ) -> ReadableSpan:
        """Return the first span of that name, once it has ended."""
        event = asyncio.Event()
        self._waiting.append(event)
        try:
            async with asyncio.timeout(timeout):
                while not (found := self.named(name, kind)):
                    event.clear()
                    await event.wait()
        finally:
            self._waiting.remove(event)
        return found[0]


class RpcRig:
    """One server with its servicers, and channels to it in anyone's name."""

    def __init__(
        self, keys: Keyring, *, validators: Validators | None = None, max_concurrent: int = 2000
    ) -> None:
        self.keys = keys
        self.spans = SpanLog()
        self.telemetry = Telemetry.of("test", [self.spans])
        self.server = GrpcServer(
            "127.0.0.1:0",
            telemetry=self.telemetry,
            verifier=keys.verifier(),
            validators=validators,
            reflect=True,
            max_concurrent=max_concurrent,
        )
        self._channels: list[Channels] = []

    def channels(
        self,
        token: str | None,
        *,
        idempotent: Iterable[str] = (),
        default_timeout: float = 10.0,
        telemetry: Telemetry | None = None,
    ) -> Channels:
        """Return channels whose target `server` is this server; None sends no credentials."""
        token_source: Callable[[], str] | None = None if token is None else lambda: token
        channels = Channels(
            {"server": self.server.address},
            telemetry=telemetry or self.telemetry,
            token=token_source,
            idempotent=idempotent,
            default_timeout=default_timeout,
        )
        self._channels.append(channels)
        return channels

    def channel(self, token: str | None) -> grpc.aio.Channel:
        """Return a channel that calls with this token."""
        return self.channels(token).get("server")

    async def close(self) -> None:
        """Close the channels and stop the server."""
        for channels in self._channels:
            await channels.close()
        await self.server.stop(grace=5.0)
        self.telemetry.shutdown()


@asynccontextmanager
async def serving(rig: RpcRig) -> AsyncIterator[RpcRig]:
    """Start the rig's server, ready to serve, and close everything at the end."""
    try:
        await rig.server.start()
        await rig.server.ready()
        yield rig
    finally:
        await rig.close()
