"""Every named query: it fits the migrated tables, somebody uses it, and nobody uses another."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import pytest

from reveille_runtime.queries import Query, parse_queries
from reveille_runtime.schemas import discover_schemas
from reveille_testkit.database import TestDatabase

ROOT = Path(__file__).resolve().parents[2]
_USE = re.compile(r"\b_?(?:Q|QUERIES)\[\s*\"(\w+)\"")
_NAMED = re.compile(r"^--\s*name:", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Package:
    """One distribution's source, with the queries in it."""

    name: str
    folder: Path
    # Whose tables its queries are about; "" = mechanisms that several schemas carry.
    schema: str

    @property
    def queries(self) -> dict[str, tuple[str, Query]]:
        found: dict[str, tuple[str, Query]] = {}
        for path in sorted(self.folder.rglob("*.sql")):
            text = path.read_text(encoding="utf-8")
            if _NAMED.search(text):
                source = str(path.relative_to(ROOT))
                for name, query in parse_queries(text, source).items():
                    assert name not in found, f"{source}: {name} is also in {found[name][0]}"
                    found[name] = (source, query)
        return found

    @property
    def python(self) -> str:
        return "\n".join(
            path.read_text(encoding="utf-8") for path in sorted(self.folder.rglob("*.py"))
        )


SERVICES = [
    Package(schema.folder.parent.name, schema.folder.parent, schema.name)
    for schema in discover_schemas()
]
RUNTIME = Package("reveille_runtime", ROOT / "libs/runtime/src/reveille_runtime", "")
each_package = pytest.mark.parametrize("package", [*SERVICES, RUNTIME], ids=lambda p: p.name)


@each_package
async def test_every_query_fits_the_tables(
    migrated_database: TestDatabase, package: Package
) -> None:
    schemas = [package.schema] if package.schema else [one.schema for one in SERVICES]
    connections = [await migrated_database.connect(f"reveille_{name}_app") for name in schemas]
    assert package.queries
    wrong = []
    for name, (source, query) in package.queries.items():
        problems = [await problem_of(connection, query) for connection in connections]
        # A mechanism must fit where its tables are, which need not be everywhere.
        if all(problems):
            wrong.append(f"{source}: {name}: {problems[0]}")

    assert wrong == []


@each_package
def test_every_query_is_used_and_every_use_exists(package: Package) -> None:
    used = set(_USE.findall(package.python))

    assert {name for name in package.queries if f'"{name}"' not in package.python} == set()
    assert used - set(package.queries) == set()


async def problem_of(connection: asyncpg.Connection[asyncpg.Record], query: Query) -> str:
    try:
        await connection.prepare(query.sql)
    except asyncpg.PostgresError as error:
        return f"{type(error).__name__}: {error}"
    return ""
