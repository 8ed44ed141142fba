"""Documents and forms, read for no more memory than is meant for them.

In memory a value takes many times its text, and whoever posts decides how many there are: so they
are counted before they are read. Least may be there where nobody vouches for a body yet: of senders
that put their signature into it, or that sign a form's fields.
"""

from __future__ import annotations

import json
from urllib.parse import unquote_to_bytes

from reveille_runtime.plain_json import holds_at_most

# Far more than any of those senders sends.
MOST_VALUES = 20_000
MOST_FIELDS = 1000
# How much of a form is read at once: as a list of its escapes it is many times as long.
_WINDOW = 4096


def document_of(body: bytes) -> object:
    """Read JSON that nobody vouches for; None when it cannot be read, or when it holds too much."""
    if not holds_at_most(MOST_VALUES, body):
        return None
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def form_of(body: bytes) -> list[tuple[bytes, bytes]] | None:
    """Read a form's fields, every byte as it is; None when there are too many."""
    if body.count(b"&") >= MOST_FIELDS:
        return None
    pairs = (field.partition(b"=") for field in body.split(b"&") if field)
    return [(unescaped(name), unescaped(value)) for name, _, value in pairs]


def unescaped(text: bytes) -> bytes:
    """Read a part of a form."""
    spaced = text.replace(b"+", b" ")
    if b"%" not in spaced:
        return spaced
    read = bytearray()
    start = 0
    while start < len(spaced):
        end = start + _WINDOW
        # Not in the middle of an escape.
        escape = spaced.rfind(b"%", end - 2, end)
        end = escape if escape >= 0 else end
        read += unquote_to_bytes(spaced[start:end])
        start = end
    return bytes(read)
