"""What a body says of itself while nobody vouches for it yet.

Some senders put their signature into the body, or sign a form's fields, so that it has to be read
first. In memory a value takes many times its text, and whoever posts decides how many there are:
so they are counted before they are read.
"""

from __future__ import annotations

import json
import re
from itertools import islice

# Far more than any of these senders sends.
MOST_VALUES = 20_000
MOST_FIELDS = 1000
# Each begins a value.
_MARKS = (b"[", b"{", b",")
# A text of which the end is missing is one too: looking for it again and again would take for ever.
_TEXT_OR_MARK = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|([\[{,])', re.DOTALL)
# A run without an end would cost the matcher many times its length.
_FORM_PARTS = re.compile(rb"((?:%[0-9A-Fa-f]{2}){1,256})|[^%]+|%")


def document_of(body: bytes) -> object:
    """Read JSON; None when it cannot be read, or when it holds too much."""
    if not _is_small(body):
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
    """Read a part of a form, one escape after another: a list of all would be many times it."""
    spaced = text.replace(b"+", b" ")
    if b"%" not in spaced:
        return spaced
    read = bytearray()
    for part in _FORM_PARTS.finditer(spaced):
        escapes = part[1]
        read += bytes.fromhex(escapes.replace(b"%", b"").decode()) if escapes else part[0]
    return bytes(read)


def _is_small(body: bytes) -> bool:
    if sum(map(body.count, _MARKS)) <= MOST_VALUES:
        return True
    if b"\0" in body:
        # Not UTF-8, where a quotation mark may be half of another character.
        return False
    # What stands in a text begins nothing: a long one may hold more of them than any document.
    marks = (each for each in _TEXT_OR_MARK.finditer(body) if each.lastindex)
    return next(islice(marks, MOST_VALUES, None), None) is None
