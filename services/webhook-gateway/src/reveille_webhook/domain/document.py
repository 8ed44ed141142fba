"""Documents and forms, read for no more memory than is meant for them.

In memory a value takes many times its text, and whoever posts decides how many there are: so they
are counted before they are read. Least may be there where nobody vouches for a body yet: of senders
that put their signature into it, or that sign a form's fields.
"""

from __future__ import annotations

import json
import re
from binascii import a2b_qp

from reveille_runtime.plain_json import holds_at_most

# Far more than any of those senders sends.
MOST_VALUES = 20_000
MOST_FIELDS = 1000
# Of percent signs that escape nothing one is a slip: whoever writes a form escapes them, too.
MOST_STRAYS = 1000
_STRAY = re.compile(rb"%(?![0-9a-fA-F]{2})")
# How much of a form is read at once: what it is read from may be three times as long.
_WINDOW = 1 << 16


def document_of(body: bytes) -> object:
    """Read JSON that nobody vouches for; None when it cannot be read, or when it holds too much."""
    if not holds_at_most(MOST_VALUES, body):
        return None
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def form_of(body: bytes) -> list[tuple[bytes, bytes]] | None:
    """Read a form's fields, every byte as it is; None when there are too many, or it is none."""
    whole = _escaped(body) if body.count(b"&") < MOST_FIELDS else None
    if whole is None:
        return None
    pairs = (field.partition(b"=") for field in whole.split(b"&") if field)
    return [(_read(name), _read(value)) for name, _, value in pairs]


def unescaped(text: bytes) -> bytes | None:
    """Read a text as it would stand in a form; None when it is none."""
    whole = _escaped(text)
    return None if whole is None else _read(whole)


def query_of(url: str) -> dict[str, str]:
    """Read the query of an address, of one name the last value; empty when it is no form."""
    fields = form_of(url.partition("?")[2].encode("latin-1", "replace")) or ()
    return {
        name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, value in fields
    }


def _escaped(text: bytes) -> bytes | None:
    """Escape the percent signs that escape nothing; None when there are too many."""
    whole, strays = _STRAY.subn(b"%25", text, MOST_STRAYS + 1)
    return None if strays > MOST_STRAYS else whole


def _read(text: bytes) -> bytes:
    """Read a part of a form in which every percent sign begins an escape."""
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
        # Mail escapes alike, by another sign: what reads that is many times as fast.
        read += a2b_qp(spaced[start:end].replace(b"=", b"=3D").replace(b"%", b"="))
        start = end
    return bytes(read)
