"""JSON of others, read as the standard has it: every number is one that can be written again.

Python also takes Infinity and NaN, and turns a number that is too large into one of them; neither
jsonb nor a strict reader of what we write would take that back.
"""

from __future__ import annotations

import json
import math
import re
from itertools import islice
from typing import Any, Never

# Each begins a value.
_MARKS = (b"[", b"{", b",")
_PIECE = 1 << 20
# All up to a mark outside of texts, or up to the end, in one step: a body may be nothing but texts.
# One of which the end is missing is one too: looking for it again and again would take for ever.
_UP_TO_MARK = re.compile(rb'(?:[^"\[{,]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"?)*+([\[{,])?', re.DOTALL)


def loads(text: str | bytes) -> Any:
    """Read a document.

    Raises:
        ValueError: it is not JSON, or holds a number that is out of range.
        RecursionError: it is nested too deeply.
    """
    return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)


def storable(document: Any) -> bool:
    """Tell whether jsonb takes what was read: it holds no NUL and no half of a surrogate pair."""
    try:
        written = json.dumps(document, ensure_ascii=False)
        written.encode()
    except (UnicodeEncodeError, RecursionError):
        return False
    # A false alarm for a text that spells the escape out harms nobody.
    return "\\u0000" not in written


def holds_at_most(most: int, body: bytes) -> bool:
    """Tell whether a body holds no more values than that, should it be JSON.

    In memory a value takes many times its text, and reading it is one step in which nothing else of
    the process goes on: so values are counted before they are read.
    """
    if len(body) <= most or _marks_in(body) <= most:
        return True
    if b"\0" in body:
        # Not UTF-8, where a quotation mark may be half of another character.
        return False
    # What stands in a text begins nothing: a long one may hold more of them than any document.
    marks = (each for each in _UP_TO_MARK.finditer(body) if each.lastindex)
    return next(islice(marks, most, None), None) is None


def _marks_in(body: bytes) -> int:
    """Count them in pieces: between two of these other threads have their turn."""
    pieces = range(0, len(body), _PIECE)
    return sum(body.count(mark, at, at + _PIECE) for at in pieces for mark in _MARKS)


def _refuse_constant(name: str) -> Never:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:40]} is out of range")
    return value
