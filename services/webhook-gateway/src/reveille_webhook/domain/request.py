"""A request as it came: headers as bytes, in their order, and the body untouched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Headers = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Request:
    """What is judged and kept of a request; header names are in lower case.

    The URL is the one the sender used: it holds the token, and is never kept.
    """

    headers: Headers
    body: bytes
    method: str = "POST"
    url: str = ""
    # Whom it counts for: an address, or the network of one. Never kept either.
    client: str = ""

    @property
    def content_type(self) -> str:
        """The media type as sent; empty when none came."""
        return text_of(self.headers, "content-type")

    def with_body(self, body: bytes) -> Request:
        """Give the same request with another body."""
        return Request(self.headers, body, self.method, self.url, self.client)


def values_of(headers: Headers, name: str) -> list[bytes]:
    """Give every value of a header."""
    wanted = name.encode("ascii")
    return [value for key, value in headers if key == wanted]


def text_of(headers: Headers, name: str, longest: int = 512) -> str:
    """Give a header's first value as text that a row can hold; empty when there is none."""
    wanted = name.encode("ascii")
    for key, value in headers:
        if key == wanted:
            return storable(value.decode("latin-1").strip(), longest)
    return ""


def storable(text: str, longest: int) -> str:
    """Make a text fit for a row: no NUL, no lone surrogates, not too long."""
    whole = text[:longest].replace("\x00", "\ufffd")
    return whole if whole.isascii() else whole.encode("utf-8", "replace").decode("utf-8")


def at_path(document: object, path: str) -> object:
    """Follow a path of names and positions into a document; None where it leads nowhere."""
    for step in path.split("."):
        if isinstance(document, dict):
            document = document.get(step)
        elif isinstance(document, list) and step.isascii() and step.isdigit():
            document = document[int(step)] if int(step) < len(document) else None
        else:
            return None
    return document
