"""Reading what an agent has left: it may have put anything in a file's place.

A pipe would block whoever opens it, a link leads out of the folder, a folder is no file; none of
them may harm more than the attempt that made it.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator

# O_NONBLOCK: opening a pipe without a writer, or a file under somebody's lease, must return.
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC


class Unreadable(Exception):
    """What is there cannot be read as a file; the message says which and why."""


def read_from(path: str, what: str, start: int, size: int) -> bytes | None:
    """Give at most `size` bytes from `start` on; None when there is no file.

    Raises:
        Unreadable: it is not a regular file, or the system refuses to read it.
    """
    with _opened(path, what) as descriptor:
        return None if descriptor is None else os.pread(descriptor, size, start)


def read_end(path: str, what: str, size: int) -> tuple[bytes, bool]:
    """Give the last `size` bytes, and whether there are none before them.

    Raises:
        Unreadable: it is not a regular file, or the system refuses to read it.
    """
    with _opened(path, what) as descriptor:
        if descriptor is None:
            return b"", True
        start = max(0, os.fstat(descriptor).st_size - size)
        return os.pread(descriptor, size, start), start == 0


def status_of(path: str, what: str) -> os.stat_result | None:
    """Look at a file without opening it; None when there is none.

    Raises:
        Unreadable: it is not a regular file, or the system refuses to look.
    """
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unreadable(f"{what} cannot be read: {error.strerror}") from error
    _require_regular(status, what)
    return status


@contextlib.contextmanager
def _opened(path: str, what: str) -> Iterator[int | None]:
    try:
        # Asked before opening, too, because some things cannot be opened at all; what counts is
        # what was opened, since the name may have changed hands in between.
        found = status_of(path, what)
        descriptor = None if found is None else os.open(path, _FLAGS)
    except FileNotFoundError:
        descriptor = None
    except OSError as error:
        raise Unreadable(f"{what} cannot be read: {error.strerror}") from error
    if descriptor is None:
        yield None
        return
    try:
        _require_regular(os.fstat(descriptor), what)
        yield descriptor
    except OSError as error:
        raise Unreadable(f"{what} cannot be read: {error.strerror}") from error
    finally:
        os.close(descriptor)


def _require_regular(status: os.stat_result, what: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise Unreadable(f"{what} is not a regular file")
