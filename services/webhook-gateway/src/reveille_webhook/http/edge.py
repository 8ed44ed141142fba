"""The HTTP server of the gateway, inside the service's own event loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import uvicorn

from reveille_runtime import logs
from reveille_runtime.lifecycle import TaskScope
from reveille_runtime.server import ListenError
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
    """Listens, serves and ends with the service.

    Whose request came through which proxy is judged by the application: the server believes no
    forwarding header.
    """

    def __init__(
        self,
        listen: str,
        application: Application,
        *,
        limits: Limits,
        idle_timeout: int,
        most_connections: int,
        grace: float,
    ) -> None:
        self.listen = listen
        self.port = 0
        self.connections = Connections(limits)
        self._server = _Server(
            uvicorn.Config(
                application,
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
                limit_concurrency=most_connections,
                timeout_keep_alive=idle_timeout,
                timeout_graceful_shutdown=max(1, round(grace)),
            )
        )
        self._tasks = TaskScope("http")
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen and serve.

        Raises:
            ListenError: the address cannot be listened on.
        """
        host, _, port = self.listen.rpartition(":")
        try:
            listener = socket.create_server(
                (host.strip("[]"), int(port)),
                family=socket.AF_INET6 if ":" in host else socket.AF_INET,
                backlog=_BACKLOG,
            )
        except OSError as error:
            raise ListenError(
                f"cannot listen on {self.listen} for HTTP: {error.strerror or error}"
            ) from error
        self.port = listener.getsockname()[1]
        self._serving = self._tasks.spawn(self._server.serve(sockets=[listener]), "serve")
        self._tasks.spawn(self._sweep(), "deadlines")
        _log.info("Hooks are served.", action="http.listening", address=f"{host}:{self.port}")

    async def stop(self) -> None:
        """Take no new requests, finish those that run; safe to call twice, or before `start`."""
        self._server.should_exit = True
        if self._serving is not None:
            await asyncio.wait({self._serving})
        await self._tasks.close()

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_SWEEP)
            self.connections.sweep(loop.time())
