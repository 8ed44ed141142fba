"""What stands in for the compose file's `postgres`."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from reveille_cli.stack.errors import StackError
from reveille_cli.stack.postgres import EmbeddedPostgres
from reveille_testkit.cluster import TestCluster

from .conftest import Place, Recorder, job

ASK = """
import asyncio, asyncpg, json, os, pathlib

async def main():
    password = pathlib.Path(os.environ["PASSWORD_FILE"]).read_text().strip()
    connection = await asyncpg.connect(os.environ["ADMIN_URL"], password=password)
    print(json.dumps(await connection.fetchval("select version()")))
    await connection.close()

asyncio.run(main())
"""
POSTGRES: dict[str, Any] = {
    "image": "postgres:18.4",
    "environment": {
        "POSTGRES_USER": "boss",
        "POSTGRES_DB": "postgres",
        "POSTGRES_PASSWORD_FILE": "/run/secrets/boss_password",
    },
    "secrets": ["boss_password"],
}


def write(place: Place) -> None:
    place.write(
        {
            "postgres": POSTGRES,
            "ask": job(
                ASK,
                environment={
                    "ADMIN_URL": "postgresql://boss@postgres:5432/postgres",
                    "OTHER": "postgresql://reveille_x_app@postgres:5432/postgres",
                    "PASSWORD_FILE": "/run/secrets/boss_password",
                },
                secrets=["boss_password"],
                depends_on={"postgres": {"condition": "service_healthy"}},
            ),
            "after": job(
                "print('after')",
                depends_on={"ask": {"condition": "service_completed_successfully"}},
            ),
            "last": job(
                "print('last')",
                depends_on={"after": {"condition": "service_completed_successfully"}},
            ),
        },
        secrets={"boss_password": {"file": "${SECRETS_DIR}/boss"}},
    )


def test_an_embedded_server_starts_first_and_keeps_its_data(place: Place) -> None:
    write(place)
    for verb in ("creating", "starting"):
        heard = Recorder()
        with place.supervisor(heard, durable=False) as supervisor:
            assert heard.notes == [f"{verb} the embedded PostgreSQL"]
            assert supervisor.database_url.startswith("postgresql://127.0.0.1:")
            assert "PostgreSQL 18" in place.data_dir.log("ask").read_text()
            server = EmbeddedPostgres(place.data_dir.postgres)
            assert server.running_pid() is not None
        assert server.running_pid() is None


def test_a_named_server_is_used_and_left_alone(place: Place, postgres_cluster: TestCluster) -> None:
    write(place)
    password = postgres_cluster.password_file("admin").read_text().strip()
    url = postgres_cluster.url(f"{postgres_cluster.admin}:{password}", "postgres")

    with place.supervisor(database_url=url) as supervisor:
        assert "PostgreSQL" in place.data_dir.log("ask").read_text()
        assert not place.data_dir.postgres.exists()
        record = json.loads(place.data_dir.record.read_text())
        assert password not in json.dumps(record)
        assert supervisor.database_url == postgres_cluster.url("", "postgres").replace("@", "")
    with place.supervisor(database_url=url):
        assert "PostgreSQL" in place.data_dir.log("ask").read_text()


def test_a_server_left_running_is_stopped_by_down(place: Place) -> None:
    write(place)
    place.data_dir.prepare()
    start = (
        "import os, pathlib, sys; from reveille_cli.stack import postgres;"
        "postgres.EmbeddedPostgres(pathlib.Path(sys.argv[1]),"
        " settings=postgres.PostgresSettings(durable=False)).start(); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", start, place.data_dir.postgres], check=True)
    server = EmbeddedPostgres(place.data_dir.postgres)
    assert server.running_pid() is not None

    assert place.reveille("down").returncode == 0
    assert server.running_pid() is None


def test_a_url_that_is_none_is_refused(place: Place) -> None:
    write(place)

    with pytest.raises(StackError, match="postgresql://user@host:port/database"):
        place.supervisor(database_url="mysql://nobody").start()
