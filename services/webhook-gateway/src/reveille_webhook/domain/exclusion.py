"""What a hook leaves out so that our own agents do not set themselves off."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache

LONGEST_TEXT = 200
# In a form it is written like everything that is no letter.
_BACKSLASH = rb"(?:\\|%5[Cc])"


def exclusion(
    sender: str, body: bytes, senders: Sequence[str], markers: Sequence[str]
) -> tuple[str, str] | None:
    """Give reason and message when a delivery is left out; senders compare without case."""
    if sender and sender.casefold() in {each.casefold() for each in senders}:
        return "sender_excluded", f"its sender is {sender}"
    text = _as_utf8(body) if markers else b""
    for marker in markers:
        if _spellings(marker).search(text):
            return "own_marker", f"it holds our own mark: {marker}"
    return None


def _as_utf8(body: bytes) -> bytes:
    encoding = json.detect_encoding(body)
    return body if encoding.startswith("utf-8") else body.decode(encoding, "replace").encode()


@lru_cache(maxsize=1024)
def _spellings(marker: str) -> re.Pattern[bytes]:
    """Find a mark however it is written: as it is, escaped in JSON, in a form, or both."""
    return re.compile(b"".join(b"(?:" + b"|".join(_spelled(each)) + b")" for each in marker))


def _spelled(character: str) -> list[bytes]:
    plain = character.encode("utf-8", "replace")
    units = character.encode("utf-16-be", "surrogatepass")
    found = [
        re.escape(plain),
        b"".join(b"(?i:%%%02x)" % byte for byte in plain),
        b"".join(
            _BACKSLASH + b"u(?i:%s)" % units[at : at + 2].hex().encode()
            for at in range(0, len(units), 2)
        ),
    ]
    if character == " ":
        found.append(rb"\+")
    if character in '"/\\':
        found += [_BACKSLASH + each for each in found[:2]]
    return found
