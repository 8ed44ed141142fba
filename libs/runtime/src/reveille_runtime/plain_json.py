"""JSON of others, read as the standard has it: every number is one that can be written again.

Python also takes Infinity and NaN, and turns a number that is too large into one of them; neither
jsonb nor a strict reader of what we write would take that back.
"""

from __future__ import annotations

import json
import math
from typing import Any, Never


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


def _refuse_constant(name: str) -> Never:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:40]} is out of range")
    return value
