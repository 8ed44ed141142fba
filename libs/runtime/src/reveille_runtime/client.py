"""Channels to the other services: one per target, with our interceptors and retry rules."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

import grpc
from google.protobuf import descriptor_pool

from reveille_runtime.interceptors.access import ClientCredentials
from reveille_runtime.interceptors.chain import ClientChain, ClientStage
from reveille_runtime.interceptors.deadline import DEFAULT_TIMEOUT, ClientDeadline
from reveille_runtime.interceptors.telemetry import ClientTelemetry
from reveille_runtime.server import MAX_MESSAGE
from reveille_runtime.telemetry import Telemetry

# Methods that change nothing, by how they are named.
READ_PREFIXES = ("Get", "List", "Watch", "Read", "Preview", "Explain", "Check", "Wait")
_OPTIONS: tuple[tuple[str, str | int], ...] = (
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # A peer that restarts is found again quickly.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # What another channel heard at an address says nothing about who listens there now.
    ("grpc.use_local_subchannel_pool", 1),
    # Our services are neighbours; a proxy of the environment is for the outside.
    ("grpc.enable_http_proxy", 0),
)
_RETRY_POLICY = {
    "maxAttempts": 4,
    "initialBackoff": "0.1s",
    "maxBackoff": "1s",
    "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE"],
}

T_co = TypeVar("T_co", covariant=True)


def reads_of(service: str) -> tuple[str, ...]:
    """List a service's methods that only read, as `package.Service/Method`."""
    methods = descriptor_pool.Default().FindServiceByName(service).methods
    return tuple(
        f"{service}/{method.name}" for method in methods if method.name.startswith(READ_PREFIXES)
    )


def service_config(idempotent: Iterable[str]) -> str:
    """Build a channel's service config: which methods are repeated when a server is away.

    Entries are `package.Service` or `package.Service/Method`. Deadlines are not in it: gRPC fires
    the ones given here a second early.
    """
    names: list[dict[str, str]] = []
    for entry in idempotent:
        service, _, method = entry.partition("/")
        names.append({"service": service, "method": method} if method else {"service": service})
    config: dict[str, Any] = {"loadBalancingConfig": [{"round_robin": {}}]}
    if names:
        config["methodConfig"] = [{"name": names, "retryPolicy": _RETRY_POLICY}]
    return json.dumps(config)


class Channels:
    """The channels of one process; made inside its event loop, closed once at the end.

    `targets` maps names to addresses: `channels.get("autopilot")`. `idempotent` names the methods
    that may be repeated after UNAVAILABLE: ours take ids or keys made by the caller, so that is
    usually every service called.
    """

    def __init__(
        self,
        targets: Mapping[str, str],
        *,
        telemetry: Telemetry,
        token: Callable[[], str] | None = None,
        idempotent: Iterable[str] = (),
        default_timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        self._targets = dict(targets)
        self._telemetry = telemetry
        self._token = token
        self._config = service_config(idempotent)
        self._default_timeout = default_timeout
        self._open: dict[str, tuple[grpc.aio.Channel, ClientChain]] = {}

    def get(self, target: str) -> grpc.aio.Channel:
        """Return the channel to a named target."""
        if target not in self._open:
            self._open[target] = self._connect(self._targets[target])
        return self._open[target][0]

    async def close(self) -> None:
        """Close every channel and finish the spans of its calls; safe to call twice."""
        channels, self._open = self._open, {}
        for channel, chain in channels.values():
            await channel.close()
            await chain.settled()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def _connect(self, address: str) -> tuple[grpc.aio.Channel, ClientChain]:
        stages: list[ClientStage] = [
            ClientTelemetry(self._telemetry, address),
            ClientDeadline(self._default_timeout),
        ]
        if self._token is not None:
            stages.append(ClientCredentials(self._token))
        chain = ClientChain(stages)
        channel = grpc.aio.insecure_channel(
            f"dns:///{address}",
            options=(*_OPTIONS, ("grpc.service_config", self._config)),
            interceptors=chain.interceptors(),
        )
        return channel, chain


class StreamCall(Protocol[T_co]):
    """What a stub returns for a method that streams answers."""

    def __aiter__(self) -> AsyncIterator[T_co]:
        """Iterate over the answers."""

    def cancel(self) -> bool:
        """End the call."""


@asynccontextmanager
async def stream(call: StreamCall[T_co]) -> AsyncIterator[StreamCall[T_co]]:
    """Hold a streaming call and cancel it at the end, whatever happens.

    `async with stream(stub.WatchRun(request)) as replies: async for reply in replies: …`
    A stream that is merely dropped ends on neither side.
    """
    try:
        yield call
    finally:
        call.cancel()
