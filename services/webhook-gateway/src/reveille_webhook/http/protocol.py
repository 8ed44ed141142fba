"""HTTP/1.1 as strict as a door to the outside has to be.

The server's own protocol has no limit on headers and no deadline for requests; this one has, and
refuses what two parsers could read in two ways. Deadlines are enforced by one sweep over all
connections, which is cheaper than a timer for each request.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from reveille_webhook.domain.client_address import Networks, peer_key
from reveille_webhook.http import reply
from reveille_webhook.http.reply import Reply
from reveille_webhook.http.transport import WholeAnswers

_CLOSE = {"connection": "close"}


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
    connections: int = 2000
    # Requests that wait on one connection for the answers before theirs.
    pipelined: int = 16
    # Without it, one address could hold every connection there is; 0 for no limit.
    connections_per_address: int = 200


class Connections:
    """The limits of a server, and the connections that are held to them."""

    def __init__(self, limits: Limits, trusted: Networks = ()) -> None:
        self.limits = limits
        self._trusted = trusted
        self._open: set[StrictProtocol] = set()
        self._held: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[StrictProtocol]:
        return iter(self._open)

    def add(self, connection: StrictProtocol) -> None:
        """Hold a connection to its deadlines."""
        self._open.add(connection)

    def remove(self, connection: StrictProtocol) -> None:
        """Forget a connection that is closed."""
        self._open.discard(connection)

    def admit(self, peer: str) -> Callable[[], None] | None:
        """Count a connection for its address; gives how to uncount it, None if it is too many."""
        most = self.limits.connections_per_address
        key = peer_key(peer, self._trusted)
        if key is None or not most:
            return lambda: None
        if self._held[key] >= most:
            return None
        self._held[key] += 1
        return partial(self._release, key)

    def _release(self, key: str) -> None:
        self._held[key] -= 1
        if not self._held[key]:
            del self._held[key]

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
        self._heads = 0
        self._head_bytes = 0
        self._fields = 0
        self._field_bytes = 0
        self._discarded = 0
        # Since when the other side takes nothing of what is written, and since when we want to end.
        self._stuck_since: float | None = None
        self._closing_since: float | None = None
        self._release: Callable[[], None] | None = None
        self._turned_away = False
        # The refusal that waits until what was asked before it is answered.
        self._last_words: HTTPStatus | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn does
        """Give the connection its first deadline, unless its address holds too many already."""
        self._answers = WholeAnswers(transport)
        super().connection_made(cast("asyncio.Transport", self._answers))
        self.guard.add(self)
        self._begin()
        self._release = self.guard.admit(self.client[0] if self.client else "")
        if self._release is None:
            self._turn_away()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.guard.remove(self)
        if self._release is not None:
            self._release()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, and refuse a head that does not end."""
        if self.transport.is_closing() or self._turned_away or self._last_words is not None:
            return
        if self._deadline is None and (self.cycle is None or self.cycle.response_complete):
            self._begin()
        self._heard = True
        heads = self._heads
        super().data_received(data)
        if self.transport.is_closing() or self._last_words is not None:
            return
        # Of a read in which the head began, the rest belongs to what came before it.
        if self._in_head and heads == self._heads:
            self._head_bytes += len(data)
            if self._head_bytes > self.guard.limits.head_bytes:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def on_message_begin(self) -> None:
        """Start counting a request's head."""
        super().on_message_begin()
        self._begin()
        self._heads += 1
        self._in_head = True
        self._discarded = 0

    def on_url(self, url: bytes) -> None:
        """Bound the address, which may come whole in the read that begins the head."""
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Bound the headers, one by one; what trails the body counts, and says nothing."""
        if self._in_head:
            super().on_header(name, value)
        self._fields += 1
        self._count(len(name) + len(value) + 4)

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
        version = self.parser.get_http_version()
        if version != "1.1":
            if version != "1.0":
                self._refusal = HTTPStatus.HTTP_VERSION_NOT_SUPPORTED
                raise _Refused
            if codings:
                raise _Refused
            self.expect_100_continue = False
        if b"#" in self.url:
            raise _Refused
        if len(self.pipeline) >= self.guard.limits.pipelined:
            self._refusal = HTTPStatus.TOO_MANY_REQUESTS
            raise _Refused
        most = self.guard.limits.connections
        busy = len(self.connections) > most or len(self.tasks) >= most
        self.app = _busy if busy else self.config.loaded_app
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

    def on_response_complete(self) -> None:
        """Go on with the next request, or with the refusal that had to wait for this answer."""
        self._answers.flush()
        waiting = bool(self.pipeline)
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if self._last_words is not None and not waiting:
            self._say(self._last_words)
        elif self._last_words is not None or self.pipeline:
            # Nobody's turn comes sooner for having been read.
            self.flow.pause_reading()

    def pause_writing(self) -> None:
        """Note since when the other side takes nothing."""
        self._stuck_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Go on writing."""
        self._stuck_since = None
        super().resume_writing()

    def enforce(self, now: float) -> None:
        """End the connection if its time is over."""
        if self.transport.is_closing():
            # It ends once everything is written, if anybody reads it.
            self._closing_since = self._closing_since or now
        since = self._closing_since or self._stuck_since
        if since is not None and now - since > self.guard.limits.request_timeout:
            self.transport.abort()
        if self._deadline is None or now < self._deadline or self.transport.is_closing():
            return
        if self._turned_away:
            self.transport.close()
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
        self._fields = 0
        self._field_bytes = 0

    def _count(self, size: int) -> None:
        limits = self.guard.limits
        self._field_bytes += size
        if self._fields > limits.head_count or self._field_bytes > limits.head_bytes:
            self._refusal = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            raise _Refused

    def _turn_away(self) -> None:
        # Half closed until the next sweep: a reset could cost the sender the answer.
        self._turned_away = True
        self.connections.discard(self)
        self._deadline = self._began
        self._write(reply.TOO_MANY_CONNECTIONS)
        self.transport.write_eof()

    def _refuse(self, status: HTTPStatus) -> None:
        cycle = self.cycle
        earlier = cycle is not None and not cycle.response_complete
        if earlier and cycle.more_body:
            # It is this request that is broken: the application shall neither answer it, nor take
            # what is there for the whole.
            earlier = bool(self.pipeline)
            if earlier:
                self.pipeline.popleft()
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started:
                # It has its answer, and only the rest of its body was still dropped.
                self.transport.close()
                return
        if earlier:
            # Answers go out in the order of the requests.
            self._last_words = status
            self._deadline = None
            self._in_head = False
            self.flow.pause_reading()
        else:
            self._say(status)

    def _say(self, status: HTTPStatus) -> None:
        self._write(reply.refusal(status, status.name.lower(), status.phrase, _CLOSE))
        self.transport.close()

    def _write(self, answer: Reply) -> None:
        phrase = HTTPStatus(answer.status).phrase
        lines = [f"HTTP/1.1 {answer.status} {phrase}".encode()]
        lines += [name + b": " + value for name, value in reply.headers_of(answer)]
        self.transport.write(b"\r\n".join([*lines, b"", answer.body]))


async def _busy(scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG001 - an application
    await reply.send(send, reply.BUSY, ends=True)
