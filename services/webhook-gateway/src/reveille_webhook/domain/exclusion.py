"""What a hook leaves out so that our own agents do not set themselves off."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from reveille_webhook.domain.document import unescaped

LONGEST_TEXT = 200
# A backslash that no escape by number begins with.
_LONE = re.compile(rb"\\(?!u[0-9a-fA-F]{4})")
_SIGNS = ((rb"\/", b"/"), (rb"\"", b'"'), (rb"\\", b"\\"))


def exclusion(
    sender: str, body: bytes, senders: Sequence[str], markers: Sequence[str]
) -> tuple[str, str] | None:
    """Give reason and message when a delivery is left out; senders compare without case."""
    if sender and sender.casefold() in {each.casefold() for each in senders}:
        return "sender_excluded", f"its sender is {sender}"
    marks = [(marker, marker.encode("utf-8", "replace")) for marker in markers]
    for text in _readings(body) if marks else ():
        for marker, mark in marks:
            if mark in text:
                return "own_marker", f"it holds our own mark: {marker}"
    return None


def _readings(body: bytes) -> Iterator[bytes]:
    """Give a body as it is, without the escapes of JSON, without those of a form, without both.

    The body is read a few times, not each of its places for every mark: it may be long.
    """
    text = _as_utf8(body)
    yield text
    yield from _out_of_json(text)
    form = unescaped(text) if b"%" in text or b"+" in text else None
    if form is not None:
        yield form
        yield from _out_of_json(form)


def _as_utf8(body: bytes) -> bytes:
    encoding = json.detect_encoding(body)
    return body if encoding.startswith("utf-8") else body.decode(encoding, "replace").encode()


def _out_of_json(text: bytes) -> Iterator[bytes]:
    """Give a text without JSON's escapes, if it has any; those of ends of lines are in no mark."""
    if b"\\" not in text:
        return
    for written, sign in _SIGNS:
        text = text.replace(written, sign)
    # What is left are those by number, read together: one by one takes many times as long.
    whole = _LONE.sub(rb"\\\\", text).replace(b'"', rb"\"").decode("utf-8", "replace")
    read: str = json.loads(f'"{whole}"', strict=False)
    yield read.encode("utf-8", "replace")
