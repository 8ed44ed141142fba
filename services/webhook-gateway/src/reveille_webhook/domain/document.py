"""Documents and forms, read for no more memory than is meant for them.

In memory a value takes many times its text, and whoever posts decides how many there are: so they
are counted before they are read. Least may be there where nobody vouches for a body yet: of senders
that put their signature into it, or that sign a form's fields.
"""

from __future__ import annotations

import json
import re
from itertools import islice
from urllib.parse import unquote_to_bytes

# Far more than any of those senders sends.
MOST_VALUES = 20_000
MOST_FIELDS = 1000
# How much of a form is read at once: as a list of its escapes it is many times as long.
_WINDOW = 4096
# Each begins a value.
_MARKS = (b"[", b"{", b",")
# All up to a mark outside of texts, or up to the end, in one step: a body may be nothing but texts.
# One of which the end is missing is one too: looking for it again and again would take for ever.
_UP_TO_MARK = re.compile(rb'(?:[^"\[{,]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"?)*+([\[{,])?', re.DOTALL)


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


def holds_at_most(most: int, body: bytes) -> bool:
    """Tell whether a body holds no more values than that, should it be JSON."""
    if len(body) <= most or sum(map(body.count, _MARKS)) <= most:
        return True
    if b"\0" in body:
        # Not UTF-8, where a quotation mark may be half of another character.
        return False
    # What stands in a text begins nothing: a long one may hold more of them than any document.
    marks = (each for each in _UP_TO_MARK.finditer(body) if each.lastindex)
    return next(islice(marks, most, None), None) is None
