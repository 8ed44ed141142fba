"""The schemas that are installed here, and whether the database has what this code needs."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import re
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

import asyncpg

from reveille_runtime.db import Database, describe
from reveille_runtime.errors import FailedPrecondition
from reveille_runtime.queries import load_queries

_GROUP = "reveille.schemas"
_POLL = 2.0
# It becomes part of role names and of statements.
_NAME = re.compile(r"^[a-z][a-z_]{0,30}$")
_log = logging.getLogger(__name__)
_Q = load_queries("reveille_runtime", "db.sql")


class SchemaNotReady(FailedPrecondition):
    """The database lacks what this release needs; the migrate job has not run, or not yet."""

    def __init__(self, message: str) -> None:
        super().__init__("SCHEMA_NOT_READY", message)


@dataclass(frozen=True, slots=True)
class Schema:
    """One service's tables: its name, and the folder that holds its migrations."""

    name: str
    folder: Path

    def __post_init__(self) -> None:
        if not _NAME.match(self.name):
            raise ValueError(f"{self.name!r} is no name for a schema")

    @property
    def owner(self) -> str:
        """The role that owns the tables."""
        return f"reveille_{self.name}_owner"

    @property
    def app(self) -> str:
        """The role that the service logs in as."""
        return f"reveille_{self.name}_app"

    @property
    def revisions(self) -> list[str]:
        """The names of the migrations, oldest first."""
        return sorted(path.stem for path in self.folder.joinpath("versions").glob("[0-9]*.py"))

    @property
    def head(self) -> str | None:
        """The newest migration; None while there is none."""
        return self.revisions[-1] if self.revisions else None


def discover_schemas() -> list[Schema]:
    """Find the schemas of all installed services that have migrations, by name."""
    found = []
    for entry in entry_points(group=_GROUP):
        # Found, not imported: a migrate job needs no service's code, only its files.
        spec = importlib.util.find_spec(entry.value)
        if spec is None or not spec.submodule_search_locations:
            raise SchemaNotReady(f"{entry.value}, the migrations of {entry.name}, is not a package")
        schema = Schema(entry.name, Path(spec.submodule_search_locations[0]))
        if schema.head is not None:
            found.append(schema)
    return sorted(found, key=lambda schema: schema.name)


async def check_schema(database: Database, name: str) -> None:
    """Raise SchemaNotReady unless the schema has every migration that this code brings.

    A newer schema is fine: migrations only add, so a release goes on beside the next one.
    """
    schema = next((found for found in discover_schemas() if found.name == name), None)
    if schema is None or schema.head is None:
        raise SchemaNotReady(f"no migrations are installed for schema {name}")
    try:
        async with database.session() as tx:
            version: str | None = await tx.fetchval(_Q["schema_version"])
    except (asyncpg.UndefinedTableError, asyncpg.InsufficientPrivilegeError) as error:
        raise SchemaNotReady(
            f"schema {name} has not been migrated: run python -m reveille_runtime.migrate"
        ) from error
    if version is None or version[:4] < schema.head[:4]:
        raise SchemaNotReady(
            f"schema {name} is at {version}, this release needs {schema.head}:"
            " run python -m reveille_runtime.migrate"
        )


async def wait_for_schema(database: Database, name: str) -> None:
    """Return once the schema is at head, saying meanwhile what is missing."""
    while True:
        try:
            await check_schema(database, name)
        except SchemaNotReady as error:
            _log.warning("%s", error.message, extra={"action": "schema.waiting"})
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            _log.warning("%s", describe(error), extra={"action": "schema.waiting"})
        else:
            return
        await asyncio.sleep(_POLL)
