"""What senders are answered: small JSON, the same bytes for whatever must look alike."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from reveille_webhook.domain.delivery import Answer

_encode = json.JSONEncoder(separators=(",", ":")).encode
Sender = Callable[[Any], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer on the wire; `outcome` is for logs and metrics."""

    status: int
    body: bytes
    outcome: str
    headers: tuple[tuple[bytes, bytes], ...] = ()
    content_type: bytes = b"application/json"


def refusal(
    status: int, reason: str, message: str, headers: Mapping[str, str] | None = None
) -> Reply:
    """Make the answer to a request of which nothing was kept."""
    body = _encode({"error": {"reason": reason, "message": message}})
    pairs = tuple((name.encode(), value.encode()) for name, value in (headers or {}).items())
    return Reply(status, body.encode(), reason, pairs)


def too_many(wait: float) -> Reply:
    """Make the answer to an address that asks too much of us."""
    return refusal(
        429,
        "too_many_requests",
        "this address has sent too many requests; wait",
        {"retry-after": str(int(wait))},
    )


def too_large(cap: int) -> Reply:
    """Make the answer to a body over its endpoint's cap."""
    return refusal(413, "body_too_large", f"this hook takes bodies of at most {cap} bytes")


def answered(answer: Answer) -> Reply:
    """Make the answer about a delivery, or the one that its sender insists on."""
    if answer.reply is not None:
        return Reply(
            answer.reply.status,
            answer.reply.body,
            answer.outcome.value,
            answer.reply.headers,
            answer.reply.content_type.encode("ascii"),
        )
    body: dict[str, str] = {"status": answer.outcome.value}
    if answer.delivery_id is not None:
        body["delivery_id"] = str(answer.delivery_id)
    if answer.run_id is not None:
        body["run_id"] = str(answer.run_id)
    if answer.reason:
        body["reason"] = answer.reason
    return Reply(answer.status, _encode(body).encode(), answer.outcome.value)


def headers_of(answer: Reply) -> list[tuple[bytes, bytes]]:
    """Give all headers of an answer."""
    headers = [(b"content-type", answer.content_type), *answer.headers]
    if answer.status != 204:
        # Which has no body, and may not say how long it is.
        headers.insert(1, (b"content-length", str(len(answer.body)).encode()))
    return headers


async def send(sender: Sender, answer: Reply, *, ends: bool) -> None:
    """Send an answer to a request; `ends` tells whether the request is over with it."""
    await sender(
        {
            "type": "http.response.start",
            "status": answer.status,
            "headers": headers_of(answer),
        }
    )
    await sender({"type": "http.response.body", "body": answer.body, "more_body": not ends})


# An unknown, a revoked, a deleted and a mismatched hook look the same, to the byte.
NOT_FOUND = refusal(404, "not_found", "there is no such hook")
ONLY_POST = refusal(405, "method_not_allowed", "hooks take POST", {"allow": "POST"})
ENCODED = refusal(
    415,
    "content_encoding_not_supported",
    "send the body as it is, or as gzip, deflate or br",
    {"accept-encoding": "gzip, deflate, br, identity"},
)
NOT_NOW = refusal(
    503, "unavailable", "the delivery could not be stored; send it again", {"retry-after": "1"}
)
# Of connections, or of what comes through them, there is too much: of one address, or of all
# together. That is no 503, which says that a row could not be stored.
TOO_MANY_CONNECTIONS = refusal(
    429,
    "too_many_connections",
    "this address holds too many connections; close some",
    {"retry-after": "1", "connection": "close"},
)
BUSY = refusal(
    429,
    "too_busy",
    "too many connections are open; try again",
    {"retry-after": "1", "connection": "close"},
)
CROWDED = refusal(
    429,
    "too_busy",
    "too many large bodies are on their way; send it again",
    {"retry-after": "1"},
)
FAULT = refusal(500, "internal", "a fault of ours")
