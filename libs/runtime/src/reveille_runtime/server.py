"""The gRPC server of a service: routing, health, reflection, and an orderly end.

It listens before the service is ready, so that probes get NOT_SERVING instead of a refused
connection while the database is waited for; until then every other call is UNAVAILABLE.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from reveille_runtime import logs
from reveille_runtime.errors import ResourceExhausted, Unavailable
from reveille_runtime.interceptors.access import AccessTable, ServerAccess
from reveille_runtime.interceptors.chain import (
    EXEMPT_SERVICES,
    Handler,
    RpcCall,
    ServerChain,
)
from reveille_runtime.interceptors.deadline import ServerDeadline
from reveille_runtime.interceptors.errors import ServerErrors, to_grpc_status
from reveille_runtime.interceptors.telemetry import ServerTelemetry
from reveille_runtime.interceptors.validation import ServerValidation, Validators
from reveille_runtime.telemetry import Telemetry
from reveille_runtime.tokens import TokenVerifier

MAX_MESSAGE = 4 * 1024 * 1024
OPTIONS = (
    # Two processes on one port is nearly always a mistake.
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    # Clients look up the address anew now and then; gRPC adds the jitter. Without a grace: it would
    # cut calls that take long, a job's for instance. Streams have an age of their own.
    ("grpc.max_connection_age_ms", 300_000),
    # Our clients ping every 30 s, also without calls; the default would hang up on them.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 20_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
)

S = TypeVar("S")
_log = logs.get_logger(__name__)


class ListenError(Exception):
    """The address cannot be listened on."""


class GrpcServer:
    """Serves the added services on one address.

    `draining` is set when the service is about to stop: every watch stream waits on it too, and
    ends with `draining_error()`. Of `max_concurrent` calls and streams at once, a further one is
    RESOURCE_EXHAUSTED.
    """

    def __init__(
        self,
        listen: str,
        *,
        telemetry: Telemetry,
        verifier: TokenVerifier,
        validators: Validators | None = None,
        reflect: bool = False,
        max_concurrent: int = 2000,
    ) -> None:
        self.listen = listen
        self.draining = asyncio.Event()
        self.port = 0
        self._reflect = reflect
        self._router = _Router()
        self._access = AccessTable()
        self._in_flight = InFlight(max_concurrent)
        self._health = health.aio.HealthServicer()
        self._healthy = True
        self._stopped = False
        self._validation = ServerValidation(validators or {})
        self._server = grpc.aio.server(
            interceptors=[
                _Gate(self._router),
                ServerChain(
                    [
                        self._in_flight,
                        ServerTelemetry(telemetry),
                        ServerErrors(),
                        ServerDeadline(),
                        ServerAccess(self._access, verifier),
                        self._validation,
                    ]
                ),
            ],
            options=OPTIONS,
            # Behind our own limit, which spares the probes: it bounds those too, and what comes in
            # faster than it can be refused.
            maximum_concurrent_rpcs=2 * max_concurrent,
        )
        self._server.add_generic_rpc_handlers((self._router,))

    @property
    def address(self) -> str:
        """Where it listens, with the port that was really bound."""
        return f"{self.listen.rpartition(':')[0]}:{self.port}"

    @property
    def services(self) -> tuple[str, ...]:
        """The full names of the services served."""
        return tuple(self._router.services)

    @property
    def in_flight(self) -> int:
        """How many calls are being served."""
        return self._in_flight.count

    def add(self, register: Callable[[S, Any], None], servicer: S) -> None:
        """Serve a servicer: `server.add(add_XServicer_to_server, XServicer(...))`.

        Raises `UndeclaredMethodsError` when a method does not declare who may call it.
        """
        recorder = _Recorder()
        register(servicer, recorder)
        for service, handlers in recorder.handlers.items():
            if not service.startswith(EXEMPT_SERVICES):
                self._access.add(service)
            self._router.add(service, handlers)

    def validate(self, validators: Validators) -> None:
        """Add request validators."""
        self._validation.add(validators)

    async def start(self) -> int:
        """Listen, not serving yet, and return the bound port."""
        self.add(health_pb2_grpc.add_HealthServicer_to_server, self._health)
        await self._health.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
        try:
            self.port = self._server.add_insecure_port(self.listen)
        except RuntimeError as error:
            raise ListenError(
                f"cannot listen on {self.listen}: the port is in use, or the address is not ours"
            ) from error
        await self._server.start()
        return self.port

    async def ready(self) -> None:
        """Serve from now on."""
        if self._reflect:
            names = (*self.services, reflection.SERVICE_NAME)
            self.add(
                reflection_pb2_grpc.add_ServerReflectionServicer_to_server,
                reflection.aio.ReflectionServicer(names),
            )
        self._router.open = True
        await self._publish()

    async def set_healthy(self, healthy: bool) -> None:
        """Report whether the service's own loops are alive; calls are answered either way."""
        if healthy != self._healthy:
            self._healthy = healthy
            await self._publish()

    async def drain(self, pause: float = 0.0) -> None:
        """Say NOT_SERVING for good, give load balancers `pause` seconds, end watch streams."""
        if self.draining.is_set():
            return
        await self._health.enter_graceful_shutdown()
        if pause > 0:
            await asyncio.sleep(pause)
        self.draining.set()

    async def stop(self, grace: float = 10.0) -> None:
        """Refuse new calls, wait for those in flight up to `grace`, cancel the rest."""
        if self._stopped:
            return
        self._stopped = True
        self.draining.set()
        # The gate refuses new calls, and our own count tells when the work is done: gRPC's grace
        # period also waits for open health watches, and not for the clean-up of aborted handlers.
        # It is stopped once and without one: a second stop beside the first can touch the server
        # after the first has freed it.
        self._router.open = False
        if not await self._in_flight.idle(grace):
            _log.warning(
                "Calls are still running after the grace period; cancelling them.",
                action="server.grace_over",
                in_flight=self._in_flight.count,
            )
        await self._server.stop(None)
        await self._in_flight.idle(1.0)

    async def _publish(self) -> None:
        serving = self._router.open and self._healthy
        status = (
            health_pb2.HealthCheckResponse.SERVING
            if serving
            else health_pb2.HealthCheckResponse.NOT_SERVING
        )
        for name in ("", *self.services):
            await self._health.set(name, status)


def draining_error() -> Unavailable:
    """What a stream ends with when the server drains: connect again, resume where you were."""
    return Unavailable("NOT_SERVING", "the server is stopping; connect again", retry_after=0.2)


class InFlight:
    """Counts calls, from before the first stage to after the last, and refuses what is too much.

    Health probes never come here: a server that is full is not dead, and to restart it for that
    makes the others fuller.
    """

    def __init__(self, limit: int) -> None:
        self.count = 0
        self._limit = limit
        self._idle = asyncio.Event()
        self._idle.set()

    @asynccontextmanager
    async def around(self, call: RpcCall) -> AsyncIterator[None]:
        """Count one call, or refuse it."""
        if self.count >= self._limit:
            # Outside all other stages: a refusal must cost little.
            await call.context.abort_with_status(to_grpc_status(_full(self.count)))
        self.count += 1
        self._idle.clear()
        try:
            yield
        finally:
            self.count -= 1
            if self.count == 0:
                self._idle.set()

    async def idle(self, timeout: float) -> bool:
        """Wait until no call is in flight; False when the time is over first."""
        try:
            async with asyncio.timeout(timeout):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True


class _Recorder:
    """Stands in for the server when generated code registers a servicer."""

    def __init__(self) -> None:
        self.handlers: dict[str, Mapping[str, Handler]] = {}

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Ignore: the same handlers come by name below."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Handler]) -> None:
        """Note a service's handlers."""
        self.handlers[service] = handlers


class _Router(grpc.GenericRpcHandler):
    """Finds the handler of a method; may grow while the server already listens."""

    def __init__(self) -> None:
        self.open = False
        self.services: list[str] = []
        self._handlers: dict[str, Handler] = {}

    def add(self, service: str, handlers: Mapping[str, Handler]) -> None:
        """Route a service's methods."""
        if not service.startswith(EXEMPT_SERVICES):
            self.services.append(service)
        for name, handler in handlers.items():
            self._handlers[f"/{service}/{name}"] = handler

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler | None:
        """Return the handler of a method, if we have it."""
        return self._handlers.get(handler_call_details.method)


class _Gate(grpc.aio.ServerInterceptor):
    """Answers UNAVAILABLE until the server is ready, and again once it stops.

    It stands before every other stage: while a service is still being built, its methods are not
    yet known, and a caller must not be told that it may not call them.
    """

    def __init__(self, router: _Router) -> None:
        self._router = router

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Let the call through once we serve."""
        method = handler_call_details.method.removeprefix("/")
        if self._router.open or method.startswith(EXEMPT_SERVICES):
            return await continuation(handler_call_details)
        return grpc.unary_unary_rpc_method_handler(_not_ready)


def _full(count: int) -> ResourceExhausted:
    return ResourceExhausted(
        "OVERLOADED", f"the server has {count} calls at work already", retry_after=1.0
    )


async def _not_ready(_request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> None:
    error = Unavailable(
        "NOT_SERVING", "the service is starting or stopping; try again", retry_after=0.5
    )
    await context.abort_with_status(to_grpc_status(error))
