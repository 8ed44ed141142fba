"""A body as its sender may have signed it, before something on the way changed it.

Whoever posts decides what is read here, and nobody vouches for it: each variant is bounded by what
came, and what would grow beyond that is not made.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from reveille_webhook.domain.document import form_of
from reveille_webhook.domain.inflate import CODINGS, Broken, TooLarge, inflate
from reveille_webhook.domain.request import Request, values_of

# More than this is not even copied.
_LARGEST_BODY = 1 << 20
# More than this, or of more values, is not read: in memory a value takes many times its text.
_LARGEST_DOCUMENT = 256 << 10
_MOST_VALUES = 10_000
# Each begins a value in a document or in a form, or a piece of one that is read by itself.
_MARKS = b"[{,&%"
# Indented, a value stands behind twice as many spaces as it is deep.
_DEEPEST = 32
# Times the body; a short one may grow to the least.
_MOST_GROWTH = 4
_LEAST_GROWTH = 4096
_STYLES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("compact", {"separators": (",", ":")}),
    ("with spaces", {}),
    ("indented", {"indent": 2}),
    ("keys in order", {"separators": (",", ":"), "sort_keys": True}),
)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def is_cheap_to_read(body: bytes) -> bool:
    """Tell whether a body may be read as a document or a form, by what it can hold at most."""
    return (
        len(body) <= _LARGEST_DOCUMENT and sum(body.count(each) for each in _MARKS) <= _MOST_VALUES
    )


def variants(request: Request) -> Iterator[tuple[str, str, bytes]]:
    """Give bodies that may have been signed, each with the finding's code and detail."""
    body = request.body
    if len(body) > _LARGEST_BODY:
        return
    plain = _inflated(request)
    if plain is not None:
        yield "compressed_body", "", plain
    for ending in (b"\n", b"\r\n"):
        yield "trailing_newline", "", body + ending
        yield "trailing_newline", "", body.removesuffix(ending)
    yield "body_encoding", "", body.removeprefix(_BYTE_ORDER_MARK)
    if body.startswith(b"payload=") and len(body) <= _LARGEST_DOCUMENT:
        for _, content in (form_of(body) or ())[:1]:
            yield "form_content", "", content
    for style, written in _written_again(body):
        yield "reserialized_body", style, written
        yield "reserialized_body", style, written.replace(b"/", b"\\/")


def _inflated(request: Request) -> bytes | None:
    """Give the body of a compressed request as it was before."""
    coding = b"".join(values_of(request.headers, "content-encoding")).decode("latin-1").lower()
    if coding not in CODINGS:
        return None
    try:
        return inflate(request.body, coding, _LARGEST_BODY)
    except (Broken, TooLarge):
        return None


def _written_again(body: bytes) -> Iterator[tuple[str, bytes]]:
    if not is_cheap_to_read(body):
        return
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return
    if not _is_shallow(document):
        return
    most = max(_MOST_GROWTH * len(body), _LEAST_GROWTH)
    for style, options in _STYLES:
        for ascii_only in (False, True):
            encoder = json.JSONEncoder(ensure_ascii=ascii_only, **options)
            written = _encoded(encoder, document, most)
            if written is not None:
                yield style, written


def _is_shallow(document: object) -> bool:
    level = [document]
    for _ in range(_DEEPEST + 1):
        level = [
            child
            for each in level
            if isinstance(each, (dict, list))
            for child in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return True
    return False


def _encoded(encoder: json.JSONEncoder, document: object, most: int) -> bytes | None:
    """Write a document; None when it grows too much."""
    # Only indents can multiply a text, so only there it is written, and given up, by the piece.
    pieces = [encoder.encode(document)] if encoder.indent is None else encoder.iterencode(document)
    written = bytearray()
    for piece in pieces:
        written += piece.encode("utf-8", "replace")
        if len(written) > most:
            return None
    return bytes(written)
