"""One service process: settings, telemetry, start in order, stop in order, exit code.

`run(Settings, build)` listens first (NOT_SERVING), then calls `build(app)`, which opens what the
service needs and registers servicers and loops, then serves. The end, on SIGTERM or SIGINT: loops
that claim work stop → health says NOT_SERVING → a pause → watch streams end → the server stops →
workers finish → resources close in reverse → telemetry is flushed. Each of these has its time, and
the failure of one keeps no other from its turn: the stop ends before whoever asked for it kills the
process. A second signal ends at once.

    async def build(app: App[Settings]) -> None:  # in wiring.py
        database = await app.resource(Database(app.settings.database, app.telemetry))
        channels = await app.channels({"heartbeat": app.settings.heartbeat_address}, IDEMPOTENT)
        agents = AgentServiceStub(channels.get("heartbeat"))
        app.server.add(add_DispatchServiceServicer_to_server, DispatchServicer(database, agents))
        app.works(Background("lease keeper", keeper.run))
        app.claims(Loop("dispatch sweep", sweep.step, interval=5.0, hint=bus.event("runs")))

    main(Settings, build)  # in __main__.py
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from enum import IntEnum
from typing import Any, Generic, TypeVar

from reveille_runtime import logs
from reveille_runtime.client import Channels
from reveille_runtime.config import ServiceSettings, load_settings
from reveille_runtime.interceptors.access import UndeclaredMethodsError
from reveille_runtime.lifecycle import Component, TaskScope
from reveille_runtime.server import GrpcServer, ListenError
from reveille_runtime.supervisor import MOMENT, Supervisor
from reveille_runtime.telemetry import Telemetry
from reveille_runtime.tokens import (
    KeyFileError,
    TokenMinter,
    TokenVerifier,
    load_trusted_keys,
)

T = TypeVar("T")
S = TypeVar("S", bound=ServiceSettings)

_log = logs.get_logger(__name__)
# How long each of the three stages of a stop may take beyond its grace, to cancel what is late.
SETTLING = 2.0
# And how long everything that is closed behind them; telemetry gets what resources leave of it.
CLOSING = 5.0
_RESOURCES = 3.0
# New objects between two looks of the garbage collector at the youngest.
_COLLECT_AFTER = 10_000


class ExitCode(IntEnum):
    """How a service process ends."""

    STOPPED = 0
    FAILED = 1
    BAD_CONFIGURATION = 2
    CANNOT_LISTEN = 3


class App(Generic[S]):
    """What `build` composes a service from."""

    def __init__(self, settings: S, telemetry: Telemetry | None = None) -> None:
        self.settings = settings
        self.name = settings.service_name
        self.telemetry = telemetry or Telemetry.from_env(self.name, otlp_dir=settings.otlp_dir)
        self.minter = TokenMinter(settings.service_key_file, self.name)
        self.verifier = TokenVerifier(load_trusted_keys(settings.trusted_keys_file))
        self.server = GrpcServer(
            settings.listen,
            telemetry=self.telemetry,
            verifier=self.verifier,
            reflect=settings.grpc_reflection,
        )
        self._claiming = Supervisor(self._report_health)
        self._working = Supervisor(self._report_health)
        self._resources = AsyncExitStack()
        self._on_drain: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._stopped = False

    async def resource(self, manager: AbstractAsyncContextManager[T]) -> T:
        """Open something that is closed after all work has ended, in reverse order."""
        return await self._resources.enter_async_context(manager)

    async def channels(
        self, targets: Mapping[str, str], idempotent: Iterable[str] = ()
    ) -> Channels:
        """Open the channels to other services, with our own token on every call."""
        return await self.resource(
            Channels(
                targets,
                telemetry=self.telemetry,
                token=self.minter.service_token,
                idempotent=idempotent,
            )
        )

    def claims(self, component: Component) -> None:
        """Run something that takes on new work: it stops first."""
        self._claiming.add(component)

    def works(self, component: Component) -> None:
        """Run something that finishes work (batchers, lease keepers): it stops after the server."""
        self._working.add(component)

    def on_drain(self, stop: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Stop another front end (HTTP) together with the gRPC server."""
        self._on_drain.append(stop)

    async def start(self, build: Callable[[App[S]], Awaitable[None]]) -> None:
        """Listen, build, serve."""
        await self.server.start()
        _log.info(
            "The service listens and is starting.",
            action="service.starting",
            address=self.server.address,
        )
        await build(self)
        await self._working.start()
        await self.server.ready()
        await self._claiming.start()
        _log.info("The service is ready.", action="service.ready", address=self.server.address)

    async def stop(self) -> None:
        """Stop in order; safe to call twice, and after a start that failed half-way."""
        if self._stopped:
            return
        self._stopped = True
        _log.info("The service is stopping.", action="service.stopping")
        pause, grace = self.settings.drain_pause, self.settings.drain_grace
        await self._stage("claims", grace + SETTLING, self._claiming.stop(grace))
        await self._stage("drain", pause + SETTLING, self.server.drain(pause))
        fronts = [stop() for stop in self._on_drain]
        await self._stage("calls", grace + SETTLING, self.server.stop(grace), *fronts)
        await self._stage("work", grace + SETTLING, self._working.stop(grace))
        loop = asyncio.get_running_loop()
        over = loop.time() + CLOSING
        await self._stage("resources", _RESOURCES, self._resources.aclose())
        # Exporters block; the loop has nothing else to do, but a signal must still be heard.
        if not await asyncio.to_thread(self.telemetry.shutdown, over - loop.time()):
            _log.warning("Telemetry was not written in time.", action="service.telemetry_lost")
        _log.info("The service has stopped.", action="service.stopped")

    async def _stage(self, name: str, limit: float, *works: Coroutine[Any, Any, None]) -> None:
        """Do a part of the stop within `limit` seconds, whatever becomes of it."""
        # The scope says what failed.
        scope = TaskScope(f"stop {name}")
        tasks = [scope.spawn(work) for work in works]
        _, late = await asyncio.wait(tasks, timeout=limit - MOMENT)
        if late:
            _log.warning(
                "A part of the stop takes too long; leaving it behind.",
                action="service.stop_overdue",
                part=name,
            )
            for task in late:
                task.cancel()
            await asyncio.wait(late, timeout=MOMENT)

    async def _report_health(self, _healthy: bool) -> None:
        await self.server.set_healthy(not (self._claiming.sick or self._working.sick))


def run(
    settings_class: type[S],
    build: Callable[[App[S]], Awaitable[None]],
    argv: Sequence[str] | None = None,
) -> int:
    """Run a service until it is told to stop, and return its exit code."""
    settings = load_settings(settings_class, argv)
    logs.configure(settings.service_name, settings.log_level)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_serve(settings, build))


async def _serve(settings: S, build: Callable[[App[S]], Awaitable[None]]) -> ExitCode:
    try:
        app = App(settings)
    except KeyFileError as error:
        _log.error("A key file is not usable.", action="service.bad_key_file", problem=str(error))
        return ExitCode.BAD_CONFIGURATION
    stopped = asyncio.Event()
    with _signals(stopped):
        starting = asyncio.ensure_future(app.start(build))
        told = asyncio.ensure_future(stopped.wait())
        code = ExitCode.STOPPED
        try:
            await asyncio.wait({starting, told}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                await starting
                _leave_alone()
                await told
        except ListenError as error:
            _log.error(str(error), action="service.cannot_listen")
            code = ExitCode.CANNOT_LISTEN
        except UndeclaredMethodsError as error:
            _log.error(
                "The service may not start: methods without declared callers.",
                action="service.undeclared_methods",
                methods=list(error.methods),
            )
            code = ExitCode.FAILED
        except Exception:  # noqa: BLE001 (reported, and told by the exit code)
            _log.exception("The service could not start.", action="service.start_failed")
            code = ExitCode.FAILED
        finally:
            for task in (starting, told):
                task.cancel()
            # Not for ever: a start that waits for a silent database ends when its pool is closed.
            await asyncio.wait({starting, told}, timeout=MOMENT)
            if starting.done() and not starting.cancelled():
                # Looked at: what failed because we end is nothing to report.
                starting.exception()
            await app.stop()
    return code


def _leave_alone() -> None:
    """Spare the garbage collector what stays, and the thousands of objects that a batch is."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER)


@contextlib.contextmanager
def _signals(stopped: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    def heard(number: signal.Signals) -> None:
        if stopped.is_set():
            # The operator insists; recovery is made for processes that end like this.
            os._exit(128 + number)
        stopped.set()

    numbers = (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, heard, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def main(settings_class: type[S], build: Callable[[App[S]], Awaitable[None]]) -> None:
    """Run a service as its module's main program."""
    sys.exit(run(settings_class, build))
