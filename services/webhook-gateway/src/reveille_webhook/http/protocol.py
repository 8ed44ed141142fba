"""HTTP/1.1 as strict as a door to the outside has to be.

The server's own protocol has no limit on headers and no deadline for requests; this one has, and
refuses what two parsers could read in two ways. Deadlines are enforced by one sweep over all
connections, which is cheaper than a timer for each request.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState


@dataclass(frozen=True, slots=True)
class Limits:
    """What a connection may do; times in seconds."""

    head_bytes: int = 32 * 1024
    head_count: int = 100
    head_timeout: float = 5.0
    request_timeout: float = 10.0
    # How much of a body is still read after its request was answered, so that the sender gets to
    # read the answer instead of a reset.
    discarded_bytes: int = 1 << 20


class Connections:
    """The limits of a server, and the connections that are held to them."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._open: set[StrictProtocol] = set()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: StrictProtocol) -> None:
        """Hold a connection to its deadlines."""
        self._open.add(connection)

    def remove(self, connection: StrictProtocol) -> None:
        """Forget a connection that is closed."""
        self._open.discard(connection)

    def sweep(self, now: float) -> None:
        """End every connection whose deadline has passed by the loop's clock."""
        for connection in list(self._open):
            connection.enforce(now)

    def protocol(self) -> type[StrictProtocol]:
        """Make the protocol class that belongs to these connections."""
        return type("BoundProtocol", (StrictProtocol,), {"guard": self})


class _Refused(Exception):
    """The request is not one that we read; the status says why."""


class StrictProtocol(HttpToolsProtocol):
    """One connection."""

    guard: Connections

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        # The server's own log of requests would hold their paths, and so their tokens.
        self.access_log = False
        self._refusal = HTTPStatus.BAD_REQUEST
        self._deadline: float | None = None
        self._began = 0.0
        self._in_head = False
        self._heard = False
        self._head_bytes = 0
        self._field_bytes = 0
        self._discarded = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn does
        """Give the connection its first deadline."""
        super().connection_made(transport)
        self.guard.add(self)
        self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.guard.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, and refuse a head that does not end."""
        if self.transport.is_closing():
            return
        if self._deadline is None and (self.cycle is None or self.cycle.response_complete):
            self._begin()
        self._heard = True
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > self.guard.limits.head_bytes:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def on_message_begin(self) -> None:
        """Start counting a request's head."""
        super().on_message_begin()
        self._begin()
        self._in_head = True
        self._discarded = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Bound the headers, one by one."""
        limits = self.guard.limits
        super().on_header(name, value)
        self._field_bytes += len(name) + len(value) + 4
        if len(self.headers) > limits.head_count or self._field_bytes > limits.head_bytes:
            self._refusal = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            raise _Refused

    def on_headers_complete(self) -> None:
        """Refuse what could be read in two ways, then let the application begin."""
        self._in_head = False
        self._deadline = self._began + self.guard.limits.request_timeout
        names = [name for name, _ in self.headers]
        if names.count(b"host") != 1 or self.parser.should_upgrade():
            raise _Refused
        codings = [value for name, value in self.headers if name == b"transfer-encoding"]
        if codings and [each.strip().lower() for each in codings] != [b"chunked"]:
            self._refusal = HTTPStatus.NOT_IMPLEMENTED
            raise _Refused
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Pass the body on, or drop what comes after the answer, up to a bound."""
        if self.cycle.response_started:
            self._discarded += len(body)
            if self._discarded > self.guard.limits.discarded_bytes:
                self.transport.close()
            return
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The whole request is in: what takes time now is ours."""
        self._deadline = None
        super().on_message_complete()

    def enforce(self, now: float) -> None:
        """End the connection if its time is over."""
        if self._deadline is None or now < self._deadline or self.transport.is_closing():
            return
        answered = self.cycle is not None and self.cycle.response_started
        if self._heard and (self._in_head or not answered):
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)
        else:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the parser's words are not told
        """Answer a request that is not read, with the status that says why."""
        self._refuse(self._refusal)

    def _begin(self) -> None:
        self._began = self.loop.time()
        self._deadline = self._began + self.guard.limits.head_timeout
        self._head_bytes = 0
        self._field_bytes = 0

    def _refuse(self, status: HTTPStatus) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            # The application shall neither answer too, nor take what is there for the whole.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        body = f'{{"error":{{"reason":"{status.name.lower()}"}}}}'.encode()
        self.transport.write(
            f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode()
            + body
        )
        self.transport.close()
