"""One throw-away PostgreSQL server per test session, shared by all of its processes.

The first test that needs a database starts it; sessions without such a test pay nothing. It is
stopped when the session ends, however it ends: the server watches the process that pytest began as.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import secrets
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit

import asyncpg

import reveille_testkit.scratch
from reveille_cli.stack.postgres import EmbeddedPostgres, PostgresSettings
from reveille_runtime.migrate import MigrateSettings, migrate
from reveille_runtime.roles import MIGRATOR
from reveille_runtime.schemas import Schema, discover_schemas

ADMIN_URL_VARIABLE = "REVEILLE_TEST_ADMIN_URL"
SCRATCH = Schema("scratch", Path(reveille_testkit.scratch.__path__[0]))
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TestCluster:
    """A server with roles, and a template database per set of schemas."""

    __test__ = False

    admin_url: str
    passwords: Path
    template: str
    scratch_template: str

    def url(self, role: str, database: str) -> str:
        """Say where a role finds a database on this server."""
        parts = urlsplit(self.admin_url)
        netloc = f"{role}@{parts.hostname}:{parts.port or 5432}"
        return urlunsplit(parts._replace(netloc=netloc, path=f"/{database}"))

    def password_file(self, role: str) -> Path:
        """Name the file with a role's password."""
        return self.passwords / role

    async def connect(self, role: str, database: str) -> asyncpg.Connection[asyncpg.Record]:
        """Connect as any role that can log in; `admin` is the superuser."""
        user = self.admin if role == "admin" else role
        password = self.password_file("admin" if role == "admin" else role)
        return await asyncpg.connect(
            self.url(user, database), password=password.read_text(encoding="utf-8").strip()
        )

    @property
    def admin(self) -> str:
        """The superuser's name."""
        return unquote(urlsplit(self.admin_url).username or "postgres")


class SessionCluster:
    """The session's right to one server, from any of its processes."""

    def __init__(self, folder: Path, owner_pid: int, external_url: str = "") -> None:
        self._folder = folder
        self._owner_pid = owner_pid
        self._external_url = external_url
        self._server: EmbeddedPostgres | None = None

    def get(self) -> TestCluster:
        """Give the server, started and migrated by whoever asks first."""
        with self._lock():
            if not self._facts.exists():
                cluster = self._prepare()
                self._facts.write_text(json.dumps(_to_json(cluster)), encoding="utf-8")
            return _from_json(json.loads(self._facts.read_text(encoding="utf-8")))

    def close(self) -> None:
        """End the server; called once, by the process that the session belongs to."""
        if self._external_url:
            if self._facts.exists():
                run_apart(self._drop_templates(self.get()))
            return
        server = self._server or EmbeddedPostgres(self._folder / "postgres")
        server.stop()

    @property
    def _facts(self) -> Path:
        return self._folder / "cluster.json"

    @contextmanager
    def _lock(self) -> Iterator[None]:
        with (self._folder / "cluster.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _prepare(self) -> TestCluster:
        passwords = self._folder / "passwords"
        passwords.mkdir(mode=0o700)
        if self._external_url:
            parts = urlsplit(self._external_url)
            password = unquote(parts.password or "")
            host = f"{parts.username}@{parts.hostname}:{parts.port or 5432}"
            admin_url = urlunsplit(parts._replace(netloc=host))
        else:
            settings = PostgresSettings(
                durable=False, shared_buffers="64MB", owner_pid=self._owner_pid
            )
            self._server = EmbeddedPostgres(self._folder / "postgres", settings=settings)
            self._server.start()
            admin_url, password = self._server.url(), self._server.superuser_password
        schemas = [*discover_schemas(), SCRATCH]
        _write(passwords / "admin", password)
        for role in (MIGRATOR, *(schema.app for schema in schemas)):
            _write(passwords / role, secrets.token_urlsafe(16))
        suffix = f"{os.getpid()}_{secrets.token_hex(3)}"
        cluster = TestCluster(
            admin_url, passwords, f"reveille_template_{suffix}", f"reveille_scratch_{suffix}"
        )
        run_apart(_migrate(cluster, cluster.template, discover_schemas()))
        run_apart(_migrate(cluster, cluster.scratch_template, [SCRATCH]))
        return cluster

    @staticmethod
    async def _drop_templates(cluster: TestCluster) -> None:
        connection = await cluster.connect("admin", "postgres")
        for name in (cluster.template, cluster.scratch_template):
            await connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        await connection.close()


def migrate_settings(cluster: TestCluster, database: str) -> MigrateSettings:
    """Say how the migrate job reaches a database of this server."""
    return MigrateSettings(
        admin_database_url=cluster.url(cluster.admin, database),
        admin_database_password_file=cluster.password_file("admin"),
        migrator_database_url=cluster.url(MIGRATOR, database),
        migrator_database_password_file=cluster.password_file(MIGRATOR),
        role_password_dir=cluster.passwords,
    )


async def _migrate(cluster: TestCluster, database: str, schemas: list[Schema]) -> None:
    await migrate(migrate_settings(cluster, database), schemas)


def run_apart(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine from synchronous code without touching any event loop of this thread."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(asyncio.run, work).result()


def _write(file: Path, text: str) -> None:
    file.touch(mode=0o600)
    file.write_text(text, encoding="utf-8")


def _to_json(cluster: TestCluster) -> dict[str, str]:
    return {
        "admin_url": cluster.admin_url,
        "passwords": str(cluster.passwords),
        "template": cluster.template,
        "scratch_template": cluster.scratch_template,
    }


def _from_json(facts: dict[str, str]) -> TestCluster:
    return TestCluster(
        facts["admin_url"],
        Path(facts["passwords"]),
        facts["template"],
        facts["scratch_template"],
    )
