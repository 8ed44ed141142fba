"""What a database error means: repeat, give the item up, or neither."""

from __future__ import annotations

import errno
import shutil
import socket
import ssl

import asyncpg
import pytest

from reveille_runtime.sqlstate import (
    constraint_name,
    is_bad_data,
    is_conflict,
    is_transient,
    sqlstate,
)


@pytest.mark.parametrize(
    ("error", "conflict", "transient", "bad_data"),
    [
        (asyncpg.SerializationError("x"), True, True, False),
        (asyncpg.DeadlockDetectedError("x"), True, True, False),
        (asyncpg.ConnectionDoesNotExistError("x"), False, True, False),
        (asyncpg.AdminShutdownError("x"), False, True, False),
        (asyncpg.CannotConnectNowError("x"), False, True, False),
        (asyncpg.QueryCanceledError("x"), False, True, False),
        (asyncpg.TooManyConnectionsError("x"), False, True, False),
        (asyncpg.LockNotAvailableError("x"), False, True, False),
        (asyncpg.ReadOnlySQLTransactionError("x"), False, True, False),
        (asyncpg.InterfaceError("connection is closed"), False, True, False),
        (asyncpg.InternalClientError("another operation is in progress"), False, True, False),
        (ConnectionRefusedError("x"), False, True, False),
        (TimeoutError("x"), False, True, False),
        (OSError("Multiple exceptions: refused, unreachable"), False, True, False),
        (OSError(errno.EHOSTUNREACH, "x"), False, True, False),
        (FileNotFoundError(errno.ENOENT, "Connect call failed"), False, True, False),
        (socket.gaierror(socket.EAI_AGAIN, "x"), False, True, False),
        (ssl.SSLEOFError(ssl.SSL_ERROR_EOF, "x"), False, True, False),
        (ssl.SSLCertVerificationError("x"), False, False, False),
        (FileNotFoundError(errno.ENOENT, "x", "some/file"), False, False, False),
        (OSError(errno.EMFILE, "x", "some/file"), False, False, False),
        (IsADirectoryError(errno.EISDIR, "x"), False, False, False),
        (PermissionError(errno.EACCES, "x", "some/file"), False, False, False),
        (OSError(errno.ENOSPC, "x"), False, False, False),
        (shutil.Error("x"), False, False, False),
        (asyncpg.UniqueViolationError("x"), False, False, True),
        (asyncpg.CheckViolationError("x"), False, False, True),
        (asyncpg.InvalidTextRepresentationError("x"), False, False, True),
        (asyncpg.InsufficientPrivilegeError("x"), False, False, False),
        (asyncpg.UndefinedTableError("x"), False, False, False),
        (ValueError("x"), False, False, False),
    ],
)
def test_each_class_of_error(
    error: Exception, conflict: bool, transient: bool, bad_data: bool
) -> None:
    assert is_conflict(error) is conflict
    assert is_transient(error) is transient
    assert is_bad_data(error) is bad_data


def test_names_come_from_the_error_and_never_from_its_text() -> None:
    assert sqlstate(asyncpg.UniqueViolationError("x")) == "23505"
    assert sqlstate(OSError()) == ""
    assert constraint_name(OSError()) == ""
