"""What a database error means for the caller: repeat, give the item up, or a bug."""

from __future__ import annotations

import errno
import socket
import ssl

import asyncpg

# Class 40 rolled back (serialization, deadlock), 08 connection, 57 operator intervention,
# 53 out of connections or memory; 55P03 is our own lock_timeout; 25006 a server that became a
# standby, or stopped writing for want of space.
_TRANSIENT_CLASSES = frozenset({"40", "08", "57", "53"})
_TRANSIENT_STATES = frozenset({"55P03", "25006"})
# 22 the value cannot be stored, 23 a constraint forbids it.
_BAD_DATA_CLASSES = frozenset({"22", "23"})
# ENOENT: the socket of a server that is down has no file; EMFILE, ENFILE: no descriptor is left for
# a connection. About files all three name the file.
_NETWORK = frozenset(
    {
        errno.ENETUNREACH,
        errno.ENETDOWN,
        errno.ENETRESET,
        errno.EHOSTUNREACH,
        errno.EHOSTDOWN,
        errno.EADDRNOTAVAIL,
        errno.ENOTCONN,
        errno.ENOBUFS,
        errno.ENOENT,
        errno.EMFILE,
        errno.ENFILE,
    }
)
_CONFLICTS = frozenset({"40001", "40P01"})


def sqlstate(error: BaseException) -> str:
    """Give the five characters of the server's verdict; empty when the server never answered."""
    if isinstance(error, asyncpg.PostgresError):
        return str(error.sqlstate or "")
    return ""


def is_conflict(error: BaseException) -> bool:
    """The transaction was rolled back for its order with others: repeating is always safe."""
    return sqlstate(error) in _CONFLICTS


def is_transient(error: BaseException) -> bool:
    """The same work may succeed later; whether it has already been done may be unknown."""
    state = sqlstate(error)
    if state:
        return state[:2] in _TRANSIENT_CLASSES or state in _TRANSIENT_STATES
    if isinstance(error, OSError):
        return _is_about_a_connection(error)
    # asyncpg reports a connection that broke under a statement as an InterfaceError, or, when the
    # server's farewell came between two statements, as a confusion of its own.
    return isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError)


def _is_about_a_connection(error: OSError) -> bool:
    """Tell a server that cannot be reached from a disk that is full or a file that is missing."""
    if isinstance(error, ConnectionError | TimeoutError | socket.gaierror):
        return True
    if isinstance(error, ssl.SSLError):
        return not isinstance(error, ssl.SSLCertVerificationError)
    if error.filename is not None:
        return False
    # Several addresses that failed in different ways are one OSError without a number.
    return error.errno in _NETWORK or (type(error) is OSError and error.errno is None)


def is_bad_data(error: BaseException) -> bool:
    """The data is at fault: repeating the same cannot help, leaving the bad item out does."""
    return sqlstate(error)[:2] in _BAD_DATA_CLASSES


def constraint_name(error: BaseException) -> str:
    """Name the constraint that refused, so that callers never read message texts."""
    return str(getattr(error, "constraint_name", "") or "")
