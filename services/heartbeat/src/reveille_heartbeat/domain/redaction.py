"""Secrets in an agent's output and settings, blanked out.

A blanked secret keeps its length, so that a byte offset into the stored log is one into the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

MASK = "*"
# How a secret setting is shown.
MASKED = MASK * 8
# Shorter values would blank out ordinary words.
MIN_SECRET = 6
_SECRET_NAME = re.compile(r"(?i)(token|secret|passw|password|credential|api_?key|private_?key)")


def is_secret_name(name: str) -> bool:
    """Tell whether a variable of this name holds something nobody should read."""
    return _SECRET_NAME.search(name) is not None


def secrets_of(env: Mapping[str, str]) -> list[str]:
    """Give the secret values of an environment."""
    return [
        value for name, value in env.items() if is_secret_name(name) and len(value) >= MIN_SECRET
    ]


def masked_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Give an adapter's settings as anybody may see them."""
    shown = dict(config)
    env = config.get("env")
    if isinstance(env, Mapping):
        shown["env"] = {
            name: MASKED if is_secret_name(str(name)) else value for name, value in env.items()
        }
    return shown


class Redactor:
    """Blanks out a set of secrets in a byte stream that comes in pieces."""

    def __init__(self, secrets: Sequence[str]) -> None:
        known = sorted({secret for secret in secrets if len(secret) >= MIN_SECRET})
        # The longest first: one secret may begin with another.
        self._texts = tuple(sorted(known, key=len, reverse=True))
        self._needles = tuple(sorted(map(str.encode, known), key=len, reverse=True))
        self.longest = max(map(len, self._needles), default=0)
        self._shortest = min(map(len, self._texts), default=0)

    def redact(self, data: bytes) -> bytes:
        """Blank out every whole secret."""
        for needle in self._needles:
            if needle in data:
                data = data.replace(needle, MASK.encode() * len(needle))
        return data

    def redact_text(self, text: str) -> str:
        """Blank out every whole secret of a text."""
        # A document may hold hundreds of thousands of texts, most of them short.
        if len(text) < self._shortest:
            return text
        for secret in self._texts:
            if secret in text:
                text = text.replace(secret, MASK * len(secret))
        return text

    def redact_end(self, data: bytes, *, whole: bool) -> bytes:
        """Blank out the secrets of a stream's last bytes; one may have begun before them."""
        if whole:
            return self.redact(data)
        return self.redact(data)[max(0, self.longest - 1) :]

    def safe_length(self, data: bytes) -> int:
        """Tell how much of the data can be passed on: its end may be the beginning of a secret."""
        held = 0
        for needle in self._needles:
            for length in range(min(len(needle) - 1, len(data)), held, -1):
                if data.endswith(needle[:length]):
                    held = length
                    break
        return self._before_secrets(data, len(data) - held)

    def _before_secrets(self, data: bytes, cut: int) -> int:
        """Move a cut to where it goes through no whole secret."""
        moved = True
        while moved:
            moved = False
            for needle in self._needles:
                start = data.find(needle, max(0, cut - len(needle) + 1))
                if 0 <= start < cut:
                    cut, moved = start, True
        return cut
