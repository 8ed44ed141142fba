"""Who may touch which table, read from the catalogue, so that a new table cannot be forgotten."""

from __future__ import annotations

from dataclasses import dataclass

import asyncpg
import pytest

from reveille_runtime.roles import MIGRATOR
from reveille_runtime.schemas import Schema, discover_schemas
from reveille_testkit.database import TestDatabase

SCHEMAS = discover_schemas()
VERSIONS = "alembic_version"
ALL = ["DELETE", "INSERT", "SELECT", "UPDATE"]
# A table that takes a right back says so in its comment, which begins with one of these words.
LESS = {
    "append-only:": ["INSERT", "SELECT"],
    "never updated:": ["DELETE", "INSERT", "SELECT"],
}
# These must be among them, whatever else there is.
APPEND_ONLY = {("autopilot", "rule_versions"), ("heartbeat", "run_events")}
each_schema = pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.name)


@dataclass(frozen=True, slots=True)
class Table:
    """A table as the catalogue knows it."""

    schema: str
    name: str
    comment: str
    column: str

    @property
    def full(self) -> str:
        return f'"{self.schema}"."{self.name}"'

    @property
    def rights(self) -> list[str]:
        """What its comment says that the service may do with it."""
        return next((less for word, less in LESS.items() if self.comment.startswith(word)), ALL)


async def tables(database: TestDatabase) -> list[Table]:
    admin = await database.admin()
    rows = await admin.fetch(
        "SELECT nspname, relname, coalesce(obj_description(c.oid, 'pg_class'), '') AS comment,"
        " (SELECT attname FROM pg_attribute"
        "  WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped AND attgenerated = ''"
        "  AND attidentity <> 'a' ORDER BY attnum LIMIT 1) AS col"
        " FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace"
        " WHERE relkind IN ('r', 'p', 'v', 'm', 'f') AND nspname !~ '^(pg_|information_schema)'"
        " ORDER BY 1, 2"
    )
    return [Table(row["nspname"], row["relname"], row["comment"], row["col"]) for row in rows]


async def refuses(connection: asyncpg.Connection[asyncpg.Record], sql: str) -> bool:
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(sql)
    except asyncpg.InsufficientPrivilegeError:
        return True
    except asyncpg.PostgresError:
        return False
    finally:
        await transaction.rollback()
    return False


@each_schema
async def test_a_service_cannot_touch_anothers_table(
    migrated_database: TestDatabase, schema: Schema
) -> None:
    foreign = [table for table in await tables(migrated_database) if table.schema != schema.name]
    assert {table.schema for table in foreign} == {
        other.name for other in SCHEMAS if other.name != schema.name
    }
    application = await migrated_database.connect(schema.app)
    admin = await migrated_database.admin()

    allowed = [
        statement
        for table in foreign
        for statement in (
            f"SELECT FROM {table.full} LIMIT 0",
            f"INSERT INTO {table.full} DEFAULT VALUES",
            f'UPDATE {table.full} SET "{table.column}" = NULL WHERE false',
            f"DELETE FROM {table.full} WHERE false",
            f"TRUNCATE {table.full}",
        )
        if not await refuses(application, statement)
    ]
    # Without USAGE on the schema a grant on the table would not show, so the grant is looked at.
    granted = [
        table.full
        for table in foreign
        if await admin.fetchval(
            "SELECT has_table_privilege($1, $2, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE,"
            " REFERENCES, TRIGGER')",
            schema.app,
            table.full,
        )
    ]

    assert allowed == []
    assert granted == []


@each_schema
async def test_a_service_has_data_rights_on_its_own_tables_and_no_more(
    migrated_database: TestDatabase, schema: Schema
) -> None:
    own = [table for table in await tables(migrated_database) if table.schema == schema.name]
    assert len(own) > 1
    admin = await migrated_database.admin()
    application = await migrated_database.connect(schema.app)

    for table in own:
        rights = await admin.fetchval(
            "SELECT array_agg(r ORDER BY r) FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE',"
            " 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']) r"
            " WHERE has_table_privilege($1, $2, r)",
            schema.app,
            table.full,
        )
        expected = ["SELECT"] if table.name == VERSIONS else table.rights
        assert rights == expected, f"{table.full}: its comment must begin with one of {list(LESS)}"
        statements = {
            "UPDATE": f'UPDATE {table.full} SET "{table.column}" = NULL WHERE false',
            "DELETE": f"DELETE FROM {table.full} WHERE false",
        }
        for right, statement in statements.items():
            assert await refuses(application, statement) is (right not in expected), statement
        assert await refuses(application, f"TRUNCATE {table.full}")
        assert await refuses(application, f"DROP TABLE {table.full}")


async def test_what_is_written_once_cannot_be_rewritten(migrated_database: TestDatabase) -> None:
    rights = {(table.schema, table.name): table.rights for table in await tables(migrated_database)}

    assert {key for key in APPEND_ONLY if rights[key] != ["INSERT", "SELECT"]} == set()


async def test_nothing_lives_in_public_and_nobody_can_put_it_there(
    migrated_database: TestDatabase,
) -> None:
    assert [table for table in await tables(migrated_database) if table.schema == "public"] == []
    for role in [MIGRATOR, *(schema.app for schema in SCHEMAS)]:
        connection = await migrated_database.connect(role)
        assert await refuses(connection, "CREATE TABLE public.t (id int)")
        assert await refuses(connection, "CREATE TEMPORARY TABLE t (id int)")
        assert await refuses(connection, "CREATE SCHEMA mine")
    for schema in SCHEMAS:
        connection = await migrated_database.connect(schema.app)
        assert await refuses(connection, f"CREATE TABLE {schema.name}.t (id int)")


@each_schema
async def test_a_role_is_bounded_wherever_it_logs_in(
    migrated_database: TestDatabase, schema: Schema
) -> None:
    application = await migrated_database.connect(schema.app)
    expected = {
        "search_path": schema.name,
        "statement_timeout": "30s",
        "lock_timeout": "5s",
        "idle_in_transaction_session_timeout": "10s",
        "enable_seqscan": "off",
        "jit": "off",
    }

    assert {name: await application.fetchval(f"SHOW {name}") for name in expected} == expected
    async with application.transaction():
        await application.execute("SET LOCAL statement_timeout = '20ms'")
        with pytest.raises(asyncpg.QueryCanceledError) as cancelled:
            await application.execute("SELECT count(*) FROM generate_series(1, 1000000000)")
    assert cancelled.value.sqlstate == "57014"


@each_schema
async def test_only_the_migrator_becomes_an_owner_and_only_on_purpose(
    migrated_database: TestDatabase, schema: Schema
) -> None:
    table = f"{schema.name}.{VERSIONS}"
    migrator = await migrated_database.connect(MIGRATOR)
    assert await refuses(migrator, f"SELECT FROM {table}")
    assert not await refuses(migrator, f"SET LOCAL ROLE {schema.owner}")

    for other in SCHEMAS:
        application = await migrated_database.connect(other.app)
        assert await refuses(application, f"SET LOCAL ROLE {schema.owner}")
        assert await refuses(application, f"SET LOCAL ROLE {MIGRATOR}")


async def test_functions_and_sequences_are_for_their_own_service(
    migrated_database: TestDatabase,
) -> None:
    admin = await migrated_database.admin()
    names = [schema.name for schema in SCHEMAS]
    functions = await admin.fetch(
        "SELECT nspname, p.oid, proname, prosecdef, coalesce(proconfig::text, '') AS config"
        " FROM pg_proc p JOIN pg_namespace n ON n.oid = pronamespace WHERE nspname = ANY($1)",
        names,
    )
    sequences = await admin.fetch(
        "SELECT nspname, c.oid, relname FROM pg_class c"
        " JOIN pg_namespace n ON n.oid = relnamespace WHERE relkind = 'S' AND nspname = ANY($1)",
        names,
    )
    assert {row["nspname"] for row in functions if row["proname"] == "clock"} == set(names)
    for schema in SCHEMAS:
        for row in functions:
            may = await admin.fetchval(
                "SELECT has_function_privilege($1, $2::oid, 'EXECUTE')", schema.app, row["oid"]
            )
            assert may is (row["nspname"] == schema.name), f"{schema.app}: {row['proname']}"
        for row in sequences:
            may = await admin.fetchval(
                "SELECT has_sequence_privilege($1, $2::oid, 'USAGE, SELECT, UPDATE')",
                schema.app,
                row["oid"],
            )
            assert may is (row["nspname"] == schema.name), f"{schema.app}: {row['relname']}"
    # One that runs with its owner's rights must not be led astray by its caller's search_path.
    assert [
        row["proname"]
        for row in functions
        if row["prosecdef"] and "search_path" not in row["config"]
    ] == []


async def test_strangers_cannot_connect(migrated_database: TestDatabase) -> None:
    admin = await migrated_database.admin()
    rights = await admin.fetchval(
        "SELECT count(*) FROM pg_database, aclexplode(datacl)"
        " WHERE datname = current_database() AND grantee = 0"
    )

    assert rights == 0
