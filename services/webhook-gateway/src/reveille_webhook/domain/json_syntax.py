"""Whether a text is JSON, told without recursion: for what is nested deeper than the parser goes.

It takes what Python's own parser takes, NaN and the infinities included.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"""[ \t\n\r]*+(
        [\[\]{},:]
      | "[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+"
      | -?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?
      | true|false|null|NaN|-?Infinity
    )""",
    re.VERBOSE,
)
_SPACE = re.compile(r"[ \t\n\r]*+")
_CLOSES = {"[": "]", "{": "}"}
# What may come next, by what was wanted; a quote stands for a string, a digit for other scalars.
_VALUE = {'"': "after", "0": "after", "[": "first item", "{": "first name"}
_STEPS = {
    "value": _VALUE,
    "first item": {**_VALUE, "]": "after"},
    "first name": {'"': "colon", "}": "after"},
    "name": {'"': "colon"},
    "colon": {":": "value"},
    "after": {",": "next", "]": "after", "}": "after"},
}


def is_json(text: str) -> bool:
    """Tell whether a text is one JSON document."""
    closing: list[str] = []
    wanted = "value"
    at = 0
    while closing or wanted != "after":
        found = _TOKEN.match(text, at)
        if found is None:
            return False
        at = found.end()
        mark = text[found.start(1)]
        step = _STEPS[wanted].get(mark if mark in '[]{},:"' else "0")
        if step is None:
            return False
        if mark in _CLOSES:
            closing.append(_CLOSES[mark])
        elif mark in "]}" and closing.pop() != mark:
            return False
        # A comma is followed by a value in an array, and by a name in an object.
        wanted = step if step != "next" else "value" if closing[-1] == "]" else "name"
    return _SPACE.fullmatch(text, at) is not None
