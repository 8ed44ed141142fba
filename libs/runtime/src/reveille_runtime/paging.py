"""Pages of a list: sizes, and tokens that say where the next page starts.

A token holds the last key and a mark of the query it belongs to. It is no secret and grants
nothing: every query still limits itself to what its caller may see.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from reveille_runtime.errors import InvalidArgument

DEFAULT_SIZE = 50
MAX_SIZE = 200
# What the rows of a page may take; the rest of a message is for tokens and framing.
MAX_BYTES = 3 * 1024 * 1024
_MARK_BYTES = 12

KeyPart = str | int | None


@dataclass(frozen=True, slots=True)
class Page:
    """What a list query needs: how many rows, and the key they come after (None at the start)."""

    size: int
    after: tuple[KeyPart, ...] | None

    @property
    def limit(self) -> int:
        """How many rows to ask for: one more than shown tells whether there is a next page."""
        return self.size + 1


def read_page(page_size: int, page_token: str, query: Sequence[object]) -> Page:
    """Read a request's paging fields; `query` is the method's name and every filter in use."""
    if page_size < 0:
        raise InvalidArgument.of("page_size", "must not be negative", "INVALID_PAGE_SIZE")
    size = min(page_size or DEFAULT_SIZE, MAX_SIZE)
    return Page(size, _read_token(page_token, query) if page_token else None)


def fitting(sizes: Iterable[int]) -> int:
    """Tell how many of the first rows, by their bytes, one message holds; the first always goes."""
    count = room = 0
    for size in sizes:
        room += size
        if count and room > MAX_BYTES:
            break
        count += 1
    return count


def page_token(key: Sequence[object], query: Sequence[object]) -> str:
    """Return the token of the page that follows a row with this key."""
    body = json.dumps([_part(each) for each in key], separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(_mark(body, query) + body).rstrip(b"=").decode()


def _read_token(token: str, query: Sequence[object]) -> tuple[KeyPart, ...]:
    try:
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        mark, body = raw[:_MARK_BYTES], raw[_MARK_BYTES:]
        if hmac.compare_digest(mark, _mark(body, query)):
            # The mark is no secret: whoever makes one may have written anything.
            return _key(json.loads(body))
    except (ValueError, RecursionError, binascii.Error):
        pass
    raise InvalidArgument.of(
        "page_token",
        "is not a token of this list; filters must stay the same from page to page",
        "INVALID_PAGE_TOKEN",
    )


def _key(parsed: object) -> tuple[KeyPart, ...]:
    if not isinstance(parsed, list) or not parsed:
        raise ValueError("not a key")
    for each in parsed:
        if not isinstance(each, str | int | None):
            raise ValueError("not a part of a key")  # noqa: TRY004 - the token is wrong, not its type
    return tuple(parsed)


def _mark(body: bytes, query: Sequence[object]) -> bytes:
    key = json.dumps([_part(each) for each in query]).encode()
    return hmac.new(hashlib.sha256(key).digest(), body, "sha256").digest()[:_MARK_BYTES]


def _part(value: object) -> KeyPart:
    match value:
        case None | str() | int():
            return value
        case datetime():
            return value.isoformat()
        case UUID():
            return str(value)
        case _:
            raise TypeError(f"{type(value).__name__} cannot be part of a page token")
