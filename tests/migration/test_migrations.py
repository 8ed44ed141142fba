"""Migrations: from nothing to head, again, by two at once, one by one, each in its own schema."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import asyncpg
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from reveille_runtime.migrate import MigrateSettings, migrate, migrate_schema
from reveille_runtime.roles import MIGRATOR, apply_roles
from reveille_runtime.schemas import Schema, SchemaNotReady, check_schema, discover_schemas
from reveille_testkit.cluster import SCRATCH, TestCluster, migrate_settings
from reveille_testkit.database import TestDatabase

SCHEMAS = discover_schemas()
each_schema = pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.name)


def test_every_service_brings_its_schema() -> None:
    assert [schema.name for schema in SCHEMAS] == ["autopilot", "heartbeat", "scheduler", "webhook"]
    assert {entry.name for entry in entry_points(group="reveille.schemas")} == {
        schema.name for schema in SCHEMAS
    }


@each_schema
def test_revisions_are_numbered_without_gaps_and_each_is_one_script(schema: Schema) -> None:
    versions = schema.folder / "versions"
    numbers = [int(stem[:4]) for stem in schema.revisions]

    assert numbers == list(range(1, len(numbers) + 1))
    assert all(re.fullmatch(r"\d{4}_[a-z0-9_]{1,27}", stem) for stem in schema.revisions)
    assert sorted(path.stem for path in versions.glob("*.sql")) == schema.revisions


@each_schema
def test_revisions_follow_each_other(schema: Schema) -> None:
    config = Config()
    config.set_main_option("script_location", str(schema.folder))
    config.set_main_option("path_separator", "os")
    newest_first = list(ScriptDirectory.from_config(config).walk_revisions())

    assert [revision.revision for revision in reversed(newest_first)] == schema.revisions
    assert [revision.down_revision for revision in reversed(newest_first)] == [
        None,
        *schema.revisions[:-1],
    ]


@each_schema
def test_scripts_stay_in_their_schema_and_on_the_clock(schema: Schema) -> None:
    for stem in schema.revisions:
        script = (schema.folder / "versions" / f"{stem}.sql").read_text(encoding="utf-8")
        code = re.sub(r"--[^\n]*", "", script)
        assert not re.search(r"\bnow\s*\(|\bcurrent_timestamp\b", code, re.IGNORECASE), stem
        assert not re.search(rf"\b{schema.name}\.", code), f"{stem}: write bare names"
        assert not re.search(r"\bpublic\.", code), stem


async def test_everything_from_nothing_and_the_second_run_changes_nothing(
    postgres_cluster: TestCluster, empty_database: TestDatabase
) -> None:
    settings = migrate_settings(postgres_cluster, empty_database.name)
    await migrate(settings)
    admin = await empty_database.admin()
    first = await picture(admin)

    await migrate(settings)

    assert await picture(admin) == first
    for schema in SCHEMAS:
        assert await version(admin, schema) == schema.head
    homes = await admin.fetch(
        "SELECT schemaname FROM pg_tables WHERE tablename = 'alembic_version' ORDER BY 1"
    )
    assert [row["schemaname"] for row in homes] == [schema.name for schema in SCHEMAS]


async def test_two_migrators_at_once_do_it_once(
    postgres_cluster: TestCluster, empty_database: TestDatabase
) -> None:
    environment = job_environment(migrate_settings(postgres_cluster, empty_database.name))

    jobs = await asyncio.gather(run_job(environment), run_job(environment))

    assert [job.returncode for job in jobs] == [0, 0], [job.stderr for job in jobs]
    admin = await empty_database.admin()
    for schema in SCHEMAS:
        assert await version(admin, schema) == schema.head


async def test_an_owner_owns_and_the_version_is_not_the_applications_to_write(
    migrated_database: TestDatabase,
) -> None:
    admin = await migrated_database.admin()
    for schema in SCHEMAS:
        strangers = await admin.fetch(
            "SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace"
            " WHERE nspname = $1 AND pg_get_userbyid(relowner) <> $2",
            schema.name,
            schema.owner,
        )
        assert strangers == []
        application = await migrated_database.connect(schema.app)
        assert await application.fetchval("SELECT version_num FROM alembic_version") == schema.head
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await application.execute("UPDATE alembic_version SET version_num = '9999'")


async def test_roles_are_repaired_and_keep_the_password_that_is_not_given(
    postgres_cluster: TestCluster, scratch: TestDatabase
) -> None:
    admin = await scratch.admin()
    await admin.execute("DROP SCHEMA scratch CASCADE")
    sent: list[str] = []
    admin.add_query_logger(lambda record: sent.append(f"{record.query} {record.args}"))

    await apply_roles(admin, [SCRATCH], {})

    settings = migrate_settings(postgres_cluster, scratch.name)
    await migrate(settings.model_copy(update={"admin_database_url": None}), [SCRATCH])
    assert (await (await scratch.open("scratch")).now()).tzinfo is not None

    password = postgres_cluster.password_file(SCRATCH.app).read_text(encoding="utf-8")
    await apply_roles(admin, [SCRATCH], {SCRATCH.app: password})
    assert password not in "".join(sent)
    assert "SCRAM-SHA-256$4096:" in "".join(sent)
    await (await scratch.connect(SCRATCH.app)).execute("SELECT 1")


async def test_a_migration_that_fails_leaves_no_trace(
    postgres_cluster: TestCluster, scratch: TestDatabase, tmp_path: Path
) -> None:
    schema = copy_with(tmp_path, "CREATE TABLE one (id int);\nCREATE TABLE one (id int);")
    settings = migrate_settings(postgres_cluster, scratch.name)

    with pytest.raises(Exception, match='relation "one" already exists'):
        await migrate_schema(settings, schema)

    admin = await scratch.admin()
    assert await version(admin, SCRATCH) == SCRATCH.head
    assert await admin.fetchval("SELECT to_regclass('scratch.one')") is None


async def test_migrations_before_the_one_that_fails_stay_and_hold_no_lock(
    postgres_cluster: TestCluster, scratch: TestDatabase, tmp_path: Path
) -> None:
    """The next run goes on there, and what the earlier ones locked is free meanwhile."""
    await scratch.ddl("scratch", "CREATE TABLE busy (id int)")
    schema = copy_with(tmp_path, "ALTER TABLE busy ADD COLUMN more int;", "SELECT 1 / zero();")
    settings = migrate_settings(postgres_cluster, scratch.name)

    with pytest.raises(Exception, match="function zero"):
        await migrate_schema(settings, schema)

    admin = await scratch.admin()
    assert await version(admin, SCRATCH) == "0002_more"
    assert await admin.fetch("SELECT more FROM scratch.busy") == []

    (tmp_path / "versions" / "0003_more.sql").write_text("ALTER TABLE busy ADD COLUMN last int;")
    await migrate_schema(settings, schema)
    assert await version(admin, SCRATCH) == "0003_more"


async def test_a_migration_gives_up_on_a_lock_that_is_held(
    postgres_cluster: TestCluster,
    scratch: TestDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("reveille_runtime.migrate._DDL_LOCK_TIMEOUT", "50ms")
    await scratch.ddl("scratch", "CREATE TABLE busy (id int)")
    schema = copy_with(tmp_path, "ALTER TABLE busy ADD COLUMN more int;")
    holder = await scratch.connect(SCRATCH.app)
    async with holder.transaction():
        await holder.execute("LOCK TABLE busy IN ACCESS SHARE MODE")
        with pytest.raises(Exception, match="lock timeout"):
            await migrate_schema(migrate_settings(postgres_cluster, scratch.name), schema)

    await migrate_schema(migrate_settings(postgres_cluster, scratch.name), schema)
    assert await version(await scratch.admin(), SCRATCH) == "0002_more"


async def test_a_server_without_a_free_connection_is_waited_for(
    postgres_cluster: TestCluster, scratch: TestDatabase
) -> None:
    """The replicas of the release before are still there, and may hold them all."""
    said = asyncio.Event()

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "the database does not answer yet" in record.getMessage():
                said.set()

    listener = Listener()
    logger = logging.getLogger("reveille_runtime.migrate")
    admin = await scratch.admin()
    await admin.execute(f"ALTER DATABASE {scratch.name} CONNECTION LIMIT 0")
    logger.addHandler(listener)
    settings = migrate_settings(postgres_cluster, scratch.name)
    migrating = asyncio.create_task(migrate_schema(settings, SCRATCH))
    heard = asyncio.create_task(said.wait())
    try:
        await asyncio.wait({migrating, heard}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        heard.cancel()
        logger.removeHandler(listener)
        await admin.execute(f"ALTER DATABASE {scratch.name} CONNECTION LIMIT -1")

    await migrating


async def test_a_service_tells_whether_its_schema_is_ready(
    postgres_cluster: TestCluster, database: TestDatabase
) -> None:
    schema = SCHEMAS[0]
    service = await database.open(schema.name)
    await check_schema(service, schema.name)

    await database.ddl(schema.name, "UPDATE alembic_version SET version_num = '9999_next_release'")
    await check_schema(service, schema.name)

    await database.ddl(schema.name, "UPDATE alembic_version SET version_num = '0000_before'")
    with pytest.raises(
        SchemaNotReady, match=f"is at 0000_before, this release needs {schema.head}"
    ):
        await check_schema(service, schema.name)

    await database.ddl(schema.name, "DROP TABLE alembic_version")
    with pytest.raises(SchemaNotReady, match="has not been migrated"):
        await check_schema(service, schema.name)
    with pytest.raises(SchemaNotReady, match="no migrations are installed for schema nothing"):
        await check_schema(service, "nothing")


async def test_the_job_makes_the_database_and_reports(
    postgres_cluster: TestCluster, empty_database: TestDatabase
) -> None:
    admin = await empty_database.admin()
    name = f"{empty_database.name}_made"
    environment = job_environment(migrate_settings(postgres_cluster, name))
    try:
        done = await run_job(environment)
        again = await run_job(environment)

        assert done.returncode == again.returncode == 0, done.stderr
        for schema in SCHEMAS:
            assert f"schema {schema.name} is at {schema.head}" in done.stderr
    finally:
        await admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


async def test_the_job_says_what_is_wrong(
    postgres_cluster: TestCluster, empty_database: TestDatabase, tmp_path: Path
) -> None:
    unset = await run_job({})
    assert unset.returncode == 2
    assert "REVEILLE_MIGRATOR_DATABASE_URL: Field required" in unset.stderr

    (tmp_path / "wrong").write_text("wrong")
    environment = job_environment(migrate_settings(postgres_cluster, empty_database.name))
    refused = await run_job(
        environment | {"REVEILLE_ADMIN_DATABASE_PASSWORD_FILE": str(tmp_path / "wrong")}
    )
    assert refused.returncode == 1
    assert "password authentication failed" in refused.stderr
    assert "Traceback" not in refused.stderr

    migrator = await run_job(
        environment | {"REVEILLE_MIGRATOR_DATABASE_PASSWORD_FILE": str(tmp_path / "wrong")}
    )
    assert migrator.returncode == 1
    assert "failed: InvalidPasswordError: password authentication failed" in migrator.stderr
    assert "Traceback" not in migrator.stderr

    absent = await run_job(
        environment
        | {
            "REVEILLE_ADMIN_DATABASE_URL": "postgresql://postgres@127.0.0.1:1/x",
            "REVEILLE_MIGRATE_WAIT": "0",
        }
    )
    assert absent.returncode == 1
    assert "failed: " in absent.stderr


def copy_with(folder: Path, *scripts: str) -> Schema:
    """Copy the scratch schema's migrations and add more."""
    versions = folder / "versions"
    versions.mkdir()
    (folder / "env.py").write_text((SCRATCH.folder / "env.py").read_text())
    for path in (SCRATCH.folder / "versions").glob("0001*"):
        (versions / path.name).write_text(path.read_text())
    before = "0001_clock"
    for number, sql in enumerate(scripts, start=2):
        name = f"{number:04}_more"
        (versions / f"{name}.py").write_text(
            "from reveille_runtime.migrations import sql_revision\n"
            f'revision, down_revision, upgrade = sql_revision(__file__, after="{before}")\n'
        )
        (versions / f"{name}.sql").write_text(sql)
        before = name
    return Schema("scratch", folder)


def job_environment(settings: MigrateSettings) -> dict[str, str]:
    return {
        f"REVEILLE_{name.upper()}": str(value)
        for name, value in settings.model_dump().items()
        if value is not None
    }


async def run_job(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "reveille_runtime.migrate"],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=False,
    )


async def version(admin: asyncpg.Connection[asyncpg.Record], schema: Schema) -> str:
    found: str = await admin.fetchval(f"SELECT version_num FROM {schema.name}.alembic_version")
    return found


async def picture(admin: asyncpg.Connection[asyncpg.Record]) -> list[tuple[object, ...]]:
    """Describe all that a migration could have touched, down to which transaction wrote it."""
    relations = await admin.fetch(
        "SELECT nspname, relname, c.oid, c.xmin::text, relacl::text FROM pg_class c"
        " JOIN pg_namespace n ON n.oid = relnamespace"
        " WHERE nspname = ANY($1) AND relname <> 'alembic_version' ORDER BY 1, 2",
        [*(schema.name for schema in SCHEMAS), "public"],
    )
    roles = await admin.fetch(
        "SELECT rolname, rolconfig::text FROM pg_roles WHERE rolname ~ '^reveille_' ORDER BY 1"
    )
    members = await admin.fetch(
        "SELECT roleid::regrole::text, member::regrole::text FROM pg_auth_members"
        " WHERE member::regrole::text = $1 ORDER BY 1",
        MIGRATOR,
    )
    return [tuple(row) for row in (*relations, *roles, *members)]
