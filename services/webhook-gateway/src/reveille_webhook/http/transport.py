"""A transport on which an answer is one write: its head waits for its body, which follows at once.

The server writes the two apart. Each write is a call of the system here and a wake-up there.
"""

from __future__ import annotations

import asyncio
from typing import Any

_ANSWER = b"HTTP/1.1 "
# "100 Continue" is no answer, and what it asks for would never come if it waited.
_INTERIM = b"HTTP/1.1 1"
_END_OF_HEAD = b"\r\n\r\n"


class WholeAnswers:
    """Stands before a connection's transport; whatever is not named here is the transport's."""

    __slots__ = ("_head", "_transport", "is_closing")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""
        self.is_closing = transport.is_closing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Write, or keep the head of an answer until the next write."""
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head + data)
        elif (
            data.endswith(_END_OF_HEAD)
            and data.startswith(_ANSWER)
            and not data.startswith(_INTERIM)
        ):
            self._head = data
        else:
            self._transport.write(data)

    def flush(self) -> None:
        """Write a head that no body follows."""
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)

    def write_eof(self) -> None:
        """Say that nothing more follows."""
        self.flush()
        self._transport.write_eof()

    def close(self) -> None:
        """Close once everything is written."""
        self.flush()
        self._transport.close()
