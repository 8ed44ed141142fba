"""`python -m reveille_runtime.migrate`: roles, schemas, then every migration that is missing.

Safe to run again, and by two at once. Each migration is a transaction of its own, as the schema's
owner: what one locks, the next does not hold, and where one fails the next run goes on. The release
before works on every schema in between, since migrations only add.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from pydantic import DirectoryPath, Field, FilePath
from pydantic_settings import BaseSettings, SettingsConfigDict
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from reveille_runtime.config import ENV_PREFIX, DatabaseUrl, load_settings
from reveille_runtime.db import describe
from reveille_runtime.migrations.env import VERSION_TABLE
from reveille_runtime.roles import MIGRATOR, apply_roles
from reveille_runtime.schemas import Schema, SchemaNotReady, discover_schemas
from reveille_runtime.sqlstate import is_transient

_log = logging.getLogger("reveille_runtime.migrate")
_DDL_LOCK_TIMEOUT = "5s"
_PAUSE = 0.5


class MigrateSettings(BaseSettings):
    """Who may create roles (optional once they exist), and who applies migrations."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, frozen=True, extra="ignore")

    admin_database_url: DatabaseUrl | None = None
    admin_database_password_file: FilePath | None = None
    migrator_database_url: DatabaseUrl
    migrator_database_password_file: FilePath | None = None
    role_password_dir: DirectoryPath | None = Field(
        default=None,
        description="one file per login role, named as the role; roles without one keep theirs",
    )
    migrate_wait: float = Field(default=60.0, ge=0, description="seconds to wait for the server")


async def migrate(settings: MigrateSettings, schemas: Sequence[Schema] | None = None) -> None:
    """Bring the database to what the installed services need."""
    wanted = discover_schemas() if schemas is None else list(schemas)
    if settings.admin_database_url is not None:
        admin = await _admin(settings)
        try:
            await apply_roles(admin, wanted, _role_passwords(settings, wanted))
        finally:
            await admin.close()
    for schema in wanted:
        await migrate_schema(settings, schema)


async def migrate_schema(settings: MigrateSettings, schema: Schema) -> None:
    """Apply a schema's missing migrations one after the other, each whole or not at all."""

    async def connect() -> asyncpg.Connection[asyncpg.Record]:
        return await _patiently(
            settings.migrator_database_url,
            settings.migrator_database_password_file,
            settings.migrate_wait,
        )

    engine = create_async_engine("postgresql+asyncpg://", async_creator=connect, poolclass=NullPool)
    try:
        async with engine.connect() as connection:
            missing = True
            while missing:
                async with connection.begin():
                    missing = await connection.run_sync(_upgrade, schema)
    finally:
        await engine.dispose()
    _log.info("schema %s is at %s", schema.name, schema.head)


def _upgrade(connection: Connection, schema: Schema) -> bool:
    """Apply the next migration; False when the schema is where it should be."""
    # Before the lock timeout is set: another migrator may rightly take long.
    connection.execute(
        text("SELECT pg_advisory_xact_lock(hashtextextended('reveille.migrate.' || :name, 0))"),
        {"name": schema.name},
    )
    connection.execute(
        text(
            "SELECT set_config('role', :owner, true), set_config('search_path', :name, true),"
            " set_config('lock_timeout', :limit, true)"
        ),
        {"owner": schema.owner, "name": schema.name, "limit": _DDL_LOCK_TIMEOUT},
    )
    table = {"version_table": VERSION_TABLE, "version_table_schema": schema.name}
    # Read under the lock, in this transaction: another migrator may have been here in between.
    at = MigrationContext.configure(connection, opts=table).get_current_revision()
    if at == schema.head:
        return False
    config = Config()
    config.set_main_option("script_location", str(schema.folder).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    config.attributes["schema"] = schema.name
    command.upgrade(config, "+1")
    # Default privileges gave the application the version table too; it only ever reads it.
    connection.execute(
        text(f"REVOKE INSERT, UPDATE, DELETE ON {schema.name}.{VERSION_TABLE} FROM {schema.app}")
    )
    return True


async def _admin(settings: MigrateSettings) -> asyncpg.Connection[asyncpg.Record]:
    """Connect as the administrator, making the database itself if it is not there."""
    url = str(settings.admin_database_url)
    try:
        return await _patiently(url, settings.admin_database_password_file, settings.migrate_wait)
    except asyncpg.InvalidCatalogNameError:
        parts = urlsplit(url)
        server = await _patiently(
            urlunsplit(parts._replace(path="/postgres")),
            settings.admin_database_password_file,
            settings.migrate_wait,
        )
        try:
            name = await server.fetchval("SELECT quote_ident($1)", parts.path.strip("/"))
            await server.execute(f"CREATE DATABASE {name}")
        except (asyncpg.DuplicateDatabaseError, asyncpg.UniqueViolationError):
            _log.info("another migrator has just made the database")
        finally:
            await server.close()
        return await _patiently(url, settings.admin_database_password_file, settings.migrate_wait)


async def _patiently(
    url: str, password_file: Path | None, wait: float
) -> asyncpg.Connection[asyncpg.Record]:
    """Connect to a server that may still be starting, or have no connection left."""
    loop = asyncio.get_running_loop()
    give_up = loop.time() + wait
    password = _read(password_file) if password_file else None
    while True:
        try:
            return await asyncpg.connect(
                url,
                password=password,
                statement_cache_size=0,
                server_settings={"application_name": "reveille-migrate"},
            )
        except (OSError, asyncpg.PostgresError) as error:
            if not is_transient(error) or loop.time() >= give_up:
                raise
            _log.warning("the database does not answer yet, waiting: %s", describe(error))
            await asyncio.sleep(_PAUSE)


def _role_passwords(settings: MigrateSettings, schemas: Sequence[Schema]) -> dict[str, str]:
    if settings.role_password_dir is None:
        return {}
    roles = [MIGRATOR, *(schema.app for schema in schemas)]
    files = {role: settings.role_password_dir / role for role in roles}
    return {role: _read(file) for role, file in files.items() if file.is_file()}


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8").strip()


def main() -> None:
    """Run as a job: exit 0 when the database is at head, 1 with the reason when it is not."""
    logging.basicConfig(level=logging.INFO, format="migrate: %(message)s", stream=sys.stderr)
    settings = load_settings(MigrateSettings)
    try:
        asyncio.run(migrate(settings))
    except (OSError, asyncpg.PostgresError, SchemaNotReady) as error:
        _log.error("failed: %s", describe(error))
        raise SystemExit(1) from None
    except DBAPIError as error:
        # SQLAlchemy wraps twice what the driver said.
        said = error.orig and error.orig.__cause__
        _log.error("failed: %s", describe(said or error))
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
