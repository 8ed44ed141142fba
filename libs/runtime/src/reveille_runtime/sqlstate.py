"""What a database error means for the caller: repeat, give the item up, or a bug."""

from __future__ import annotations

import asyncpg

# Class 40 rolled back (serialization, deadlock), 08 connection, 57 operator intervention,
# 53 out of connections or memory; 55P03 is our own lock_timeout.
_TRANSIENT_CLASSES = frozenset({"40", "08", "57", "53"})
_TRANSIENT_STATES = frozenset({"55P03"})
# 22 the value cannot be stored, 23 a constraint forbids it.
_BAD_DATA_CLASSES = frozenset({"22", "23"})
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
    # asyncpg reports a connection that broke under a statement as an InterfaceError, or, when the
    # server's farewell came between two statements, as a confusion of its own.
    return isinstance(
        error, OSError | TimeoutError | asyncpg.InterfaceError | asyncpg.InternalClientError
    )


def is_bad_data(error: BaseException) -> bool:
    """The data is at fault: repeating the same cannot help, leaving the bad item out does."""
    return sqlstate(error)[:2] in _BAD_DATA_CLASSES


def constraint_name(error: BaseException) -> str:
    """Name the constraint that refused, so that callers never read message texts."""
    return str(getattr(error, "constraint_name", "") or "")
