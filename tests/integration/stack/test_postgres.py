"""The embedded server: who may use it, what it survives, and what it says when it cannot start."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import asyncpg
import psutil
import pytest

from reveille_cli.stack import pginstall
from reveille_cli.stack.errors import AlreadyRunning, DataDirUnusable, PortTaken
from reveille_cli.stack.pginstall import Identity, PostgresUnusable
from reveille_cli.stack.postgres import EmbeddedPostgres, PostgresFailed, PostgresSettings
from reveille_testkit.cluster import run_apart

QUICK = PostgresSettings(durable=False, shared_buffers="16MB", max_connections=20)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has an identity to give up")

Maker = Callable[..., EmbeddedPostgres]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Maker]:
    made: list[EmbeddedPostgres] = []

    def build(
        folder: Path | None = None, port: int = 0, settings: PostgresSettings = QUICK
    ) -> EmbeddedPostgres:
        server = EmbeddedPostgres(folder or tmp_path / "pg", port, settings)
        made.append(server)
        return server

    yield build
    for server in made:
        server.stop()


def ask(server: EmbeddedPostgres, sql: str, password: str | None = None) -> object:
    async def connect_and_ask() -> object:
        connection = await asyncpg.connect(
            server.url(), password=password or server.superuser_password
        )
        try:
            return await connection.fetchval(sql)
        finally:
            await connection.close()

    return run_apart(connect_and_ask())


def test_starts_with_passwords_on_loopback_and_stops_twice(make: Maker) -> None:
    server = make()
    server.start()
    server.start()

    assert str(ask(server, "SHOW server_version")).startswith("18.")
    assert ask(server, "SHOW listen_addresses") == "127.0.0.1"
    assert ask(server, "SHOW unix_socket_directories") == ""
    assert ask(server, "SHOW fsync") == "off"
    rules = ask(server, "SELECT string_agg(auth_method, ',') FROM pg_hba_file_rules")
    assert rules == "scram-sha-256"
    with pytest.raises(asyncpg.InvalidPasswordError):
        ask(server, "SELECT 1", password="wrong")
    assert stat.S_IMODE(server.password_file.stat().st_mode) == 0o600

    server.stop()
    server.stop()

    assert server.running_pid() is None
    assert "database system is shut down" in server.log_file.read_text()
    assert server.superuser_password not in server.log_file.read_text()


def test_a_durable_server_syncs(make: Maker) -> None:
    server = make(settings=PostgresSettings(shared_buffers="16MB"))
    server.start()

    assert ask(server, "SHOW fsync") == "on"
    assert ask(server, "SHOW max_connections") == "200"


def test_a_second_start_keeps_the_data(make: Maker) -> None:
    first = make()
    first.start()
    ask(first, "CREATE TABLE kept AS SELECT 42 AS answer")
    first.stop()

    second = make()
    second.start()

    assert ask(second, "SELECT answer FROM kept") == 42


def test_a_server_that_outlived_its_owner_is_replaced(make: Maker, tmp_path: Path) -> None:
    start_and_be_killed(tmp_path / "pg")
    server = make()
    left_over = server.running_pid()
    assert left_over is not None

    server.start()

    assert server.running_pid() not in {None, left_over}
    assert ask(server, "SELECT 1") == 1


def test_down_stops_a_server_it_did_not_start(make: Maker) -> None:
    server = make()
    start_and_be_killed(server.data_dir)
    assert server.running_pid() is not None

    server.stop()

    assert server.running_pid() is None


def test_the_server_ends_with_the_owner_it_was_given(make: Maker) -> None:
    owner = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    server = make(
        settings=PostgresSettings(durable=False, shared_buffers="16MB", owner_pid=owner.pid)
    )
    server.start()
    pid = server.running_pid()
    assert pid is not None
    assert ask(server, "SELECT 1") == 1

    owner.kill()
    owner.communicate()

    psutil.Process(pid).wait(timeout=20)
    assert server.running_pid() is None


def test_a_crashed_server_recovers(make: Maker) -> None:
    syncing = PostgresSettings(shared_buffers="16MB", max_connections=20)
    server = make(settings=syncing)
    server.start()
    ask(server, "CREATE TABLE kept AS SELECT 42 AS answer")
    pid = server.running_pid()
    assert pid is not None
    # Its other processes are still about when the next server starts.
    os.kill(pid, signal.SIGKILL)
    server.stop()

    again = make(settings=syncing)
    again.start()

    assert ask(again, "SELECT answer FROM kept") == 42
    assert "automatic recovery in progress" in again.log_file.read_text()


def test_a_pid_that_now_belongs_to_a_stranger_is_no_obstacle(make: Maker) -> None:
    server = make()
    server.start()
    pid_file = server.data_dir / "cluster" / "pgdata" / "postmaster.pid"
    lines = pid_file.read_text().splitlines()
    server.stop()
    # As after a reboot: the file is there, and its number is somebody else's now.
    pid_file.write_text("\n".join([str(os.getpid()), *lines[1:]]) + "\n")
    os.chown(pid_file, pid_file.parent.stat().st_uid, pid_file.parent.stat().st_gid)

    assert server.running_pid() is None
    server.start()

    assert ask(server, "SELECT 1") == 1


def test_half_a_cluster_is_made_anew(make: Maker, tmp_path: Path) -> None:
    unfinished = tmp_path / "pg" / "cluster" / "pgdata.new"
    unfinished.mkdir(parents=True)
    (unfinished / "PG_VERSION").write_text("18\n")
    server = make()
    server.start()

    assert ask(server, "SELECT 1") == 1
    assert not unfinished.exists()


def test_a_taken_port_is_named(make: Maker) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        server = make(port=port)

        with pytest.raises(PortTaken, match=str(port)):
            server.start()

    server.start()
    assert server.port == port


def test_a_second_owner_is_refused(make: Maker) -> None:
    make().start()

    with pytest.raises(AlreadyRunning, match="another process runs the database"):
        make().start()


def test_a_data_directory_that_cannot_be_used_is_named(make: Maker, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(DataDirUnusable, match="file"):
        make(tmp_path / "file").start()


def test_a_server_that_cannot_start_shows_what_it_said(make: Maker) -> None:
    server = make(settings=PostgresSettings(durable=False, extra={"shared_buffers": "nonsense"}))

    with pytest.raises(PostgresFailed, match="nonsense"):
        server.start()

    assert server.running_pid() is None


def test_pg_dump_is_of_the_same_major(make: Maker) -> None:
    said = subprocess.run([make().pg_dump, "--version"], capture_output=True, text=True, check=True)

    assert " 18." in said.stdout


@as_root
@pytest.mark.parametrize("kind", ["namespace", "user"])
def test_each_identity_runs_it_below_a_private_folder(
    make: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    only(monkeypatch, kind)
    (tmp_path / "private").mkdir(mode=0o700)
    server = make(tmp_path / "private" / "pg")
    try:
        server.start()
    except PostgresUnusable as error:
        pytest.skip(f"this machine does not offer it: {error}")

    assert ask(server, "SELECT 1") == 1
    assert stat.S_IMODE((tmp_path / "private").stat().st_mode) == 0o700
    assert (tmp_path / "private").stat().st_uid == 0


@as_root
def test_one_identity_takes_over_from_another(make: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    server = make()
    for kind in ("user", "namespace", "user"):
        only(monkeypatch, kind)
        try:
            server.start()
        except PostgresUnusable as error:
            pytest.skip(f"this machine does not offer it: {error}")
        assert ask(server, "SELECT 1") == 1
        server.stop()


@as_root
def test_programs_that_only_root_can_see_are_laid_open(
    make: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = tmp_path / "root-only"
    hidden.mkdir(mode=0o700)
    binaries = pginstall.wheel_binaries()
    package = binaries.parents[1]
    libraries = f"{package.name}.libs"
    shutil.copytree(binaries.parent, hidden / package.name / binaries.parent.name, symlinks=True)
    shutil.copytree(package.with_name(libraries), hidden / libraries)
    monkeypatch.setattr(
        pginstall,
        "wheel_binaries",
        lambda _major: hidden / package.name / binaries.parent.name / "bin",
    )
    with tempfile.TemporaryDirectory(prefix="reveille-open-") as place:
        Path(place).chmod(0o755)
        monkeypatch.setattr(pginstall, "_OPEN_PLACES", (Path(place),))
        only(monkeypatch, "user")
        server = make()
        server.start()
        answer = ask(server, "SELECT 1")
        server.stop()

        assert answer == 1
        copied = next(Path(place).iterdir())
        assert stat.S_IMODE(copied.stat().st_mode) == 0o755


def test_where_nothing_works_the_ways_tried_are_listed(
    make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pginstall, "_probe", lambda _launcher: "refused for this test")
    monkeypatch.setattr(pginstall, "_OPEN_PLACES", ())

    with pytest.raises(PostgresUnusable, match="refused for this test"):
        make().start()


def start_and_be_killed(folder: Path) -> None:
    script = (
        "import os, pathlib, sys\n"
        "from reveille_cli.stack.postgres import EmbeddedPostgres, PostgresSettings\n"
        "quick = PostgresSettings(durable=False, shared_buffers='16MB', max_connections=20)\n"
        "EmbeddedPostgres(pathlib.Path(sys.argv[1]), settings=quick).start()\n"
        "os.kill(os.getpid(), 9)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script, folder], check=False)
    assert ended.returncode == -signal.SIGKILL


def only(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    unprivileged = pginstall._unprivileged()
    assert unprivileged is not None
    assert kind in {"namespace", "user"}
    identity = Identity(
        "namespace" if kind == "namespace" else "user", unprivileged.pw_uid, unprivileged.pw_gid
    )
    monkeypatch.setattr(pginstall, "_identities", lambda: iter([identity]))
