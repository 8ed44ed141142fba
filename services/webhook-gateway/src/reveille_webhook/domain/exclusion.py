"""What a hook leaves out so that our own agents do not set themselves off."""

from __future__ import annotations

from collections.abc import Sequence

LONGEST_TEXT = 200


def exclusion(
    sender: str, body: bytes, senders: Sequence[str], markers: Sequence[str]
) -> tuple[str, str] | None:
    """Give reason and message when a delivery is left out; senders compare without case."""
    if sender and sender.casefold() in {each.casefold() for each in senders}:
        return "sender_excluded", f"its sender is {sender}"
    for marker in markers:
        if marker.encode() in body or _escaped(marker) in body:
            return "own_marker", f"it holds our own mark: {marker}"
    return None


def _escaped(marker: str) -> bytes:
    """Give a marker as JSON may write it, in ASCII."""
    return "".join(
        each if ord(each) < 128 else each.encode("unicode_escape").decode() for each in marker
    ).encode()
