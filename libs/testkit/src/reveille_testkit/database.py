"""A database of one test: made from a migrated template, dropped afterwards."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import asyncpg

from reveille_runtime.config import DatabaseSettings
from reveille_runtime.db import Database, use_json
from reveille_runtime.db_telemetry import DbTelemetry
from reveille_runtime.roles import MIGRATOR
from reveille_testkit.cluster import TestCluster


class TestDatabase:
    """One database, seen as any role. What it opened, it closes."""

    __test__ = False

    def __init__(self, cluster: TestCluster, name: str, stack: AsyncExitStack) -> None:
        self.cluster = cluster
        self.name = name
        self._stack = stack
        self._opened: list[Database] = []
        self._clock_offset = 0.0

    def url(self, role: str) -> str:
        """Say where a role finds this database; passwords are in `cluster.password_file(role)`."""
        return self.cluster.url(role, self.name)

    def settings(
        self, schema: str, *, pool_max: int = 10, statement_cache: int = 100
    ) -> DatabaseSettings:
        """Give what a service of that schema would be configured with."""
        role = f"reveille_{schema}_app"
        return DatabaseSettings(
            url=self.url(role),
            password_file=self.cluster.password_file(role),
            pool_max=pool_max,
            statement_cache=statement_cache,
            application_name=f"test-{schema}",
            clock_offset=self._clock_offset,
        )

    async def open(
        self,
        schema: str,
        telemetry: DbTelemetry | None = None,
        *,
        pool_max: int = 10,
        statement_cache: int = 100,
    ) -> Database:
        """Open it as the schema's application role; closed at the end of the test."""
        settings = self.settings(schema, pool_max=pool_max, statement_cache=statement_cache)
        database = await Database.open(settings, telemetry)
        self._stack.push_async_callback(database.close)
        self._opened.append(database)
        return database

    async def admin(self) -> asyncpg.Connection[asyncpg.Record]:
        """Connect as the superuser, to look behind the scenes."""
        return await self.connect("admin")

    async def connect(self, role: str) -> asyncpg.Connection[asyncpg.Record]:
        """Connect as a role, with jsonb as Python values; closed at the end of the test."""
        connection = await self.cluster.connect(role, self.name)
        self._stack.push_async_callback(connection.close, timeout=5)
        await use_json(connection)
        return connection

    async def ddl(self, schema: str, sql: str) -> None:
        """Run statements as the schema's owner, as a migration would."""
        connection = await self.connect("admin")
        async with connection.transaction():
            await connection.execute(
                "SELECT set_config('role', $1, true), set_config('search_path', $2, true)",
                f"reveille_{schema}_owner",
                schema,
            )
            await connection.execute(sql)

    def move_clock(self, seconds: float) -> None:
        """Move the clock of every Database opened here, and of those still to come."""
        self._clock_offset += seconds
        for database in self._opened:
            database.move_clock(seconds)


@asynccontextmanager
async def temporary_database(
    cluster: TestCluster, template: str | None
) -> AsyncIterator[TestDatabase]:
    """Make a database for one test, from a template or empty, and drop it afterwards."""
    name = f"reveille_test_{secrets.token_hex(8)}"
    # A third of the work that wal_log makes: no page goes through the log. The checkpoints that it
    # asks for are cheap where nothing waits for a disk.
    source = f" TEMPLATE {template} STRATEGY file_copy" if template else ""
    async with AsyncExitStack() as outer:
        admin = await cluster.connect("admin", "postgres")
        outer.push_async_callback(admin.close)
        await admin.execute(f"CREATE DATABASE {name}{source}")
        outer.push_async_callback(admin.execute, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        await _grant_connect(admin, name)
        async with AsyncExitStack() as opened:
            yield TestDatabase(cluster, name, opened)


async def _grant_connect(admin: asyncpg.Connection[asyncpg.Record], name: str) -> None:
    """A copy has the template's tables and schemas, but not its rights on the database itself."""
    roles = await admin.fetchval(
        "SELECT string_agg(quote_ident(rolname), ', ') FROM pg_catalog.pg_roles"
        " WHERE rolname = $1 OR rolname ~ '^reveille_[a-z_]+_app$'",
        MIGRATOR,
    )
    await admin.execute(f"REVOKE ALL ON DATABASE {name} FROM PUBLIC")
    await admin.execute(f"GRANT CONNECT ON DATABASE {name} TO {roles}")
