"""Standard streams that write all they are given.

With PYTHONUNBUFFERED, which images like ours set, Python's text streams write to the descriptor
itself and ignore how much it took. A pipe whose reader is slow takes less when a signal arrives or,
under uvloop, when io_uring ends some work: a log line or a body that was asked for lost its rest,
and nobody was told.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _Whole(io.BufferedWriter):
    """Writes at once, as an unbuffered stream does, and until everything is written."""

    def write(self, data: ReadableBuffer, /) -> int:
        written = super().write(data)
        self.flush()
        return written


def whole(stream: TextIO) -> TextIO:
    """Give a stream on the same descriptor that loses nothing; one that is buffered stays."""
    # A process without the descriptor has no stream; a test may have put another kind there.
    if not isinstance(raw := getattr(stream, "buffer", None), io.FileIO):
        return stream
    return io.TextIOWrapper(
        _Whole(io.FileIO(raw.fileno(), "wb", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=True,
        write_through=True,
    )
