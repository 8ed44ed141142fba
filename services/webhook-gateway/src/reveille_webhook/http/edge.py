"""The HTTP server of the gateway, inside the service's own event loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import uvicorn

from reveille_runtime import logs
from reveille_runtime.server import ListenError
from reveille_webhook.domain.client_address import Networks
from reveille_webhook.http.protocol import Connections, Limits

Application = Callable[[Any, Any, Any], Awaitable[None]]
_SWEEP = 0.25
_BACKLOG = 2048
_log = logs.get_logger(__name__)


class _Server(uvicorn.Server):
    """The server without its own handling of signals: the service has one already."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


class HttpEdge:
    """Listens first, so that a taken port is told at start; serves under the service's supervisor.

    Whose request came through which proxy is judged by the application: the server believes no
    forwarding header.
    """

    def __init__(
        self,
        listen: str,
        application: Application,
        *,
        limits: Limits,
        trusted: Networks,
        idle_timeout: int,
        grace: float,
    ) -> None:
        self._address = listen
        self.port = 0
        self.connections = Connections(limits, trusted)
        self._application = application
        self._idle_timeout = idle_timeout
        self._grace = grace
        self._listener: socket.socket | None = None
        self._server: _Server | None = None
        self._stopping = False
        self._ended = asyncio.Event()
        self._ended.set()

    def listen(self) -> None:
        """Take the address; what connects waits until it is served.

        Raises:
            ListenError: the address cannot be listened on.
        """
        host, _, port = self._address.rpartition(":")
        try:
            self._listener = socket.create_server(
                (host.strip("[]"), self.port or int(port)),
                family=socket.AF_INET6 if ":" in host else socket.AF_INET,
                backlog=_BACKLOG,
            )
        except OSError as error:
            raise ListenError(
                f"cannot listen on {self._address} for HTTP: {error.strerror or error}"
            ) from error
        self.port = self._listener.getsockname()[1]
        _log.info("Hooks are served.", action="http.listening", address=f"{host}:{self.port}")

    async def serve(self) -> None:
        """Serve; after `stop` wait to be cancelled, since only a failure may end a component."""
        if self._listener is None and not self._stopping:
            self.listen()
        listener, self._listener = self._listener, None
        if listener is not None and not self._stopping:
            self._server = server = _Server(self._config())
            self._ended.clear()
            sweeping = asyncio.ensure_future(self._sweep())
            try:
                await server.serve(sockets=[listener])
            finally:
                sweeping.cancel()
                listener.close()
                self._ended.set()
        if not self._stopping:
            raise RuntimeError("the HTTP server ended by itself")
        await asyncio.Event().wait()

    async def stop(self) -> None:
        """Take no new requests, finish those that run; safe to call twice, or before `serve`."""
        self._stopping = True
        if self._server is not None:
            self._server.should_exit = True
        await self._ended.wait()
        if self._listener is not None:
            self._listener.close()

    def _config(self) -> uvicorn.Config:
        return uvicorn.Config(
            self._application,
            http=self.connections.protocol(),
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            # Its warnings are one for each malformed request, which is what floods are made of.
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=self._idle_timeout,
            timeout_graceful_shutdown=max(1, round(self._grace)),
        )

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_SWEEP)
            self.connections.sweep(loop.time())
