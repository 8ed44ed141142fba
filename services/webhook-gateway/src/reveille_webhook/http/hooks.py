"""The application behind the server: `/hooks/{token}`, in one visible order.

Address ceiling and debt, token, size while streaming, and then the use case: verification on the
raw bytes, parsing, storing, admission, answer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from opentelemetry import trace

from reveille_runtime import logs, semconv
from reveille_runtime.sqlstate import is_transient
from reveille_webhook.domain.client_address import Networks, client_key
from reveille_webhook.domain.delivery import Answer
from reveille_webhook.domain.endpoint import OpenEndpoint
from reveille_webhook.domain.inflate import CODINGS
from reveille_webhook.domain.ratelimit import SlidingCounters
from reveille_webhook.domain.request import Request, text_of
from reveille_webhook.domain.room import Crowded, Place, Room
from reveille_webhook.http import reply
from reveille_webhook.http.reply import Reply, Sender
from reveille_webhook.usecases.answers import UnknownHookError, UnparsableError
from reveille_webhook.usecases.find_endpoint import FindEndpoint
from reveille_webhook.usecases.receive import Receive
from reveille_webhook.usecases.trace import Tracing

Receiver = Callable[[], Awaitable[Any]]
ROUTE = "/hooks/{token}"
_PREFIX = b"/hooks/"
_LONGEST_TOKEN = 256
# Some senders ask before they send.
_METHODS = frozenset({"POST", "GET", "HEAD", "OPTIONS"})
_WRONG = frozenset({401, 403})
_CODINGS = CODINGS | {"", "identity"}
_log = logs.get_logger(__name__)


class SenderGone(Exception):
    """The sender hung up before its request was whole; nothing of it counts."""


class Incoming:
    """The body of a request as it comes in, and whether all of it has."""

    def __init__(self, receive: Receiver) -> None:
        self._receive = receive
        self.whole = False

    async def __call__(self) -> Any:
        """Receive the next part."""
        message = await self._receive()
        self.whole = message["type"] != "http.request" or not message.get("more_body", False)
        return message

    async def discard(self) -> None:
        """Wait for the end of what the server drops, or for the sender to hang up."""
        while not self.whole:
            await self()


class Hooks:
    """An ASGI application."""

    def __init__(
        self,
        find: FindEndpoint,
        receive: Receive,
        tracing: Tracing,
        *,
        ceiling: SlidingCounters,
        debt: SlidingCounters,
        room: Room,
        trusted: Networks,
        public_url: str | None,
    ) -> None:
        self._find = find
        self._receive = receive
        self._tracing = tracing
        self._ceiling = ceiling
        self._debt = debt
        self._room = room
        self._trusted = trusted
        self._public_url = public_url

    async def __call__(self, scope: Any, receive: Receiver, send: Sender) -> None:
        """Answer one request; a sender that hung up gets none."""
        started = time.monotonic()
        method = str(scope["method"])
        claimed = text_of(scope["headers"], "traceparent")
        incoming = Incoming(receive)
        span, carrier = self._tracing.request(method, claimed)
        with self._tracing.within(span):
            try:
                answer = await self._answer(scope, incoming, carrier, started)
            except SenderGone:
                span.set_attribute(semconv.ERROR_TYPE, "sender_gone")
                return
            except Exception:  # noqa: BLE001 - a bug costs one request
                _log.exception("A request could not be answered.", action="hook.fault")
                answer = reply.FAULT
            took = time.monotonic() - started
            self._tracing.answered(span, answer.status, answer.outcome, took)
            # Successes and floods are counted, not told one by one.
            quiet = answer.status < 400 or answer.status == 429
            level = logging.DEBUG if quiet else logging.INFO
            if logs.tells(__name__, level):
                _log.log(
                    level,
                    "A request was answered.",
                    action="hook.answered",
                    method=method,
                    route=ROUTE,
                    status=answer.status,
                    outcome=answer.outcome,
                    seconds=round(took, 4),
                )
            await reply.send(send, answer, ends=incoming.whole)
        if not incoming.whole:
            # A connection that is closed while its sender still writes is reset, and the answer
            # may be lost with it.
            await incoming.discard()
            await send({"type": "http.response.body"})

    async def _answer(
        self, scope: Any, receive: Receiver, carrier: dict[str, str], now: float
    ) -> Reply:
        peer = scope["client"][0] if scope["client"] else ""
        address = client_key(peer, scope["headers"], self._trusted)
        wait = self._ceiling.take(address, now) or self._debt.check(address, now)
        if wait:
            return reply.too_many(wait)
        token = _token(scope["raw_path"])
        if token is not None and scope["method"] not in _METHODS:
            return reply.ONLY_POST
        try:
            endpoint = None if token is None else await self._find(token)
        except Exception as error:  # noqa: BLE001 - whatever it was, the row cannot be taken
            return _not_now(error)
        if endpoint is None:
            self._debt.add(address, now)
            return reply.NOT_FOUND
        self._tracing.found(trace.get_current_span(), endpoint)
        if text_of(scope["headers"], "content-encoding").lower() not in _CODINGS:
            return reply.ENCODED
        method = str(scope["method"])
        request = Request(scope["headers"], b"", method, self._url(scope), address)
        place = self._room.place(address)
        try:
            return await self._take(endpoint, request, receive, carrier, place, now)
        except (SenderGone, asyncio.CancelledError):
            raise
        except Crowded:
            return reply.CROWDED
        except UnparsableError as error:
            return reply.refusal(400, "unparsable", str(error))
        except UnknownHookError:
            await self._find.disown(endpoint.id)
            return reply.NOT_FOUND
        except Exception as error:  # noqa: BLE001 - whatever it was, the row may not be there
            return _not_now(error)
        finally:
            place.leave()

    async def _take(
        self,
        endpoint: OpenEndpoint,
        request: Request,
        receive: Receiver,
        carrier: dict[str, str],
        place: Place,
        now: float,
    ) -> Reply:
        started = asyncio.get_running_loop().time()
        if request.method != "POST":
            asked = await self._receive.ask(endpoint, request)
            if asked is None:
                return reply.ONLY_POST
            self._charge(asked, request.client, now)
            return reply.answered(asked)
        body = await _read(receive, request.headers, endpoint.max_body_bytes, place)
        if body is None:
            await self._receive.too_large(endpoint, request, carrier)
            return reply.too_large(endpoint.max_body_bytes)
        answer = await self._receive(endpoint, request.with_body(body), place, carrier, started)
        self._tracing.stored(trace.get_current_span(), answer)
        self._charge(answer, request.client, now)
        if answer.status == 413:
            return reply.too_large(endpoint.max_body_bytes)
        return reply.answered(answer)

    def _charge(self, answer: Answer, address: str, now: float) -> None:
        """Note a credential that was wrong."""
        if answer.status in _WRONG:
            self._debt.add(address, now)

    def _url(self, scope: Any) -> str:
        """Give the address as the sender used it, which some senders sign."""
        base = self._public_url or f"https://{text_of(scope['headers'], 'host')}"
        path = str(scope["raw_path"], "latin-1")
        query = str(scope["query_string"], "latin-1")
        return base + path + (f"?{query}" if query else "")


def _token(raw_path: bytes) -> str | None:
    """Read the token out of a path; None for a path that is no hook's.

    Whatever stands there is looked up: a token that cannot be one costs what any other costs.
    """
    rest = raw_path.removeprefix(_PREFIX)
    return None if len(rest) == len(raw_path) else rest[:_LONGEST_TOKEN].decode("latin-1")


async def _read(receive: Receiver, headers: Any, cap: int, place: Place) -> bytes | None:
    """Read a body, counting as it comes; None once it is, or says it will be, over the cap.

    Raises:
        Crowded: there is no room for it.
        SenderGone: see there.
    """
    declared = text_of(headers, "content-length")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > cap:
        return None
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise SenderGone
        part = message.get("body", b"")
        size += len(part)
        if size > cap:
            return None
        place.hold(size)
        if part:
            parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _not_now(error: Exception) -> Reply:
    _log.warning(
        "A request could not be stored.",
        action="hook.not_stored",
        cause=type(error).__name__,
        exc_info=None if is_transient(error) else error,
    )
    return reply.NOT_NOW
