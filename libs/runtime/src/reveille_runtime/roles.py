"""Roles and schemas: made by an administrator, once per server and database, as often as wanted."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import os
import random
from collections.abc import Mapping, Sequence
from importlib import resources

import asyncpg

from reveille_runtime.schemas import Schema

MIGRATOR = "reveille_migrator"
_ITERATIONS = 4096
_ATTEMPTS = 10
# "tuple concurrently updated" has no state of its own but the general internal error.
_MET_ANOTHER = (
    asyncpg.InternalServerError,
    asyncpg.UniqueViolationError,
    asyncpg.DuplicateObjectError,
    asyncpg.DeadlockDetectedError,
)


def scram_verifier(password: str, salt: bytes | None = None) -> str:
    """Make what the server stores, so that the password itself never travels or meets a log."""
    salt = os.urandom(16) if salt is None else salt
    salted = hashlib.pbkdf2_hmac("sha256", password.encode("utf-8"), salt, _ITERATIONS)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    stored_key = hashlib.sha256(client_key).digest()
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    shown = [base64.b64encode(part).decode("ascii") for part in (salt, stored_key, server_key)]
    return f"SCRAM-SHA-256${_ITERATIONS}:{shown[0]}${shown[1]}:{shown[2]}"


async def apply_roles(
    connection: asyncpg.Connection[asyncpg.Record],
    schemas: Sequence[Schema],
    passwords: Mapping[str, str],
) -> None:
    """Make or repair every role, schema and default privilege.

    A role for which no password is given keeps the one it has.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            async with connection.transaction():
                await _apply(connection, schemas, passwords)
        except _MET_ANOTHER:
            # Roles belong to the server, locks to a database: a migrator of another database may
            # have changed the same role. Everything here may be done again.
            if attempt == _ATTEMPTS:
                raise
            await asyncio.sleep(attempt * random.uniform(0.05, 0.15))  # noqa: S311 - not a secret
        else:
            return


async def _apply(
    connection: asyncpg.Connection[asyncpg.Record],
    schemas: Sequence[Schema],
    passwords: Mapping[str, str],
) -> None:
    await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('reveille.roles', 0))")
    await _run(connection, "cluster_roles.sql", "", passwords.get(MIGRATOR))
    for schema in schemas:
        await _run(connection, "schema_roles.sql", schema.name, passwords.get(schema.app))


async def _run(
    connection: asyncpg.Connection[asyncpg.Record], file: str, schema: str, password: str | None
) -> None:
    verifier = scram_verifier(password) if password else ""
    await connection.execute(
        "SELECT set_config('reveille.schema', $1, true),"
        " set_config('reveille.role_verifier', $2, true)",
        schema,
        verifier,
    )
    script = resources.files("reveille_runtime.sql").joinpath(file)
    await connection.execute(script.read_text(encoding="utf-8"))
