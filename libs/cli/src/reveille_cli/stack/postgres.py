"""An embedded PostgreSQL server: one cluster in one directory, on loopback, with passwords.

    server = EmbeddedPostgres(data_dir / "postgres")
    server.start()
    ... server.url("reveille_scheduler_app", "reveille") ...
    server.stop()

One process owns a directory at a time (a file lock says so). A server that outlived its owner is
stopped and started anew; a crashed one recovers by itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from reveille_cli.stack.errors import AlreadyRunning, DataDirUnusable, PortTaken, StartFailed
from reveille_cli.stack.pgfiles import (
    HOST,
    accepts_connections,
    is_or_begot,
    port_taken,
    server_pid,
    usable_port,
    workers_in,
    works_in,
    write_private,
)
from reveille_cli.stack.pginstall import (
    Launcher,
    PostgresUnusable,
    choose_launcher,
    wheel_binaries,
)

__all__ = [
    "EmbeddedPostgres",
    "PostgresFailed",
    "PostgresSettings",
    "PostgresUnusable",
]

SUPERUSER = "postgres"
_HBA = (
    "# Written by Reveille: loopback and passwords only.\nhost all all 127.0.0.1/32 scram-sha-256\n"
)
_POLL_SECONDS = 0.02
_PORT_TRIES = 5


class PostgresFailed(StartFailed):
    """The server did not start or stop; the message ends with what it said itself."""


@dataclass(frozen=True, slots=True)
class PostgresSettings:
    """How the server runs. `durable=False` is for data that nobody misses after a power cut."""

    durable: bool = True
    max_connections: int = 200
    shared_buffers: str = "128MB"
    major: int = 18
    # The server stops when this process is gone, however it went. 0 = it stays.
    owner_pid: int = 0
    start_seconds: float = 60.0
    stop_seconds: float = 20.0
    extra: Mapping[str, str] = field(default_factory=dict)

    def options(self, port: int) -> dict[str, str]:
        """The server's configuration, as it stands on its command line."""
        chosen = {
            "listen_addresses": HOST,
            "port": str(port),
            "unix_socket_directories": "",
            "password_encryption": "scram-sha-256",
            "max_connections": str(self.max_connections),
            "shared_buffers": self.shared_buffers,
            "timezone": "UTC",
            "log_timezone": "UTC",
            "log_line_prefix": "%m [%p] %q%u@%d ",
        }
        if not self.durable:
            chosen |= {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}
        return chosen | dict(self.extra)


class EmbeddedPostgres:
    """The server of one directory. `start` and `stop` block, and may be repeated."""

    def __init__(
        self,
        data_dir: Path,
        port: int = 0,
        settings: PostgresSettings | None = None,
    ) -> None:
        self.data_dir = data_dir.absolute()
        self.settings = settings or PostgresSettings()
        self.port = port
        self._asked_port = port
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: int | None = None
        self._launcher: Launcher | None = None

    @property
    def log_file(self) -> Path:
        """What the server says."""
        return self.data_dir / "postgres.log"

    @property
    def password_file(self) -> Path:
        """The superuser's password (mode 0600)."""
        return self.data_dir / "superuser.password"

    @property
    def pg_dump(self) -> Path:
        """The dump program that fits this server."""
        return wheel_binaries(self.settings.major) / "pg_dump"

    def url(self, role: str = SUPERUSER, database: str = "postgres") -> str:
        """Say where a role finds a database; passwords live in files."""
        return f"postgresql://{role}@{HOST}:{self.port}/{database}"

    @property
    def superuser_password(self) -> str:
        """Read the superuser's password."""
        return self.password_file.read_text(encoding="utf-8").strip()

    def running_pid(self) -> int | None:
        """Find this directory's server, whoever started it."""
        pid = server_pid(self._pgdata)
        return pid if pid is not None and works_in(pid, self._pgdata) else None

    def start(self) -> None:
        """Bring the server up and return when it accepts connections."""
        if self._process is not None and self._process.poll() is None:
            return
        self._own()
        try:
            self._stop_left_over()
            self._launcher = self._launcher or choose_launcher(self._home, self.settings.major)
            if not self._pgdata.exists():
                self._create_cluster(self._launcher)
            self._start_on_a_port(self._launcher)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Shut down fast: transactions are rolled back, data is safe. Nothing to do is fine."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            for number in (signal.SIGINT, signal.SIGQUIT):
                process.send_signal(number)
                try:
                    process.wait(self.settings.stop_seconds)
                    break
                except subprocess.TimeoutExpired:
                    continue
            else:
                process.kill()
                process.wait()
        elif self._lock is None:
            # Not ours in memory, yet maybe running: `down` after its supervisor was killed.
            self._stop_left_over()
        launcher, self._launcher = self._launcher, None
        if launcher is not None and launcher.home_fd is not None:
            os.close(launcher.home_fd)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def _home(self) -> Path:
        # Apart from the files beside it, because the server's own user may have to own it.
        return self.data_dir / "cluster"

    @property
    def _pgdata(self) -> Path:
        return self._home / "pgdata"

    def _own(self) -> None:
        try:
            self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._home.mkdir(mode=0o700, exist_ok=True)
            lock = os.open(self.data_dir / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise DataDirUnusable(
                f"the database's directory {self.data_dir} cannot be used: {error.strerror}",
                hint="name another data directory, or correct its owner and mode",
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise AlreadyRunning(f"another process runs the database in {self.data_dir}") from None
        if self._lock is not None:
            os.close(self._lock)
        self._lock = lock

    def _stop_left_over(self) -> None:
        pid = self.running_pid()
        if pid is None:
            self._settle_after_crash()
            return
        server = psutil.Process(pid)
        for number in (signal.SIGINT, signal.SIGQUIT):
            try:
                server.send_signal(number)
                server.wait(self.settings.stop_seconds)
            except psutil.NoSuchProcess:
                return
            except psutil.TimeoutExpired:
                continue
            else:
                return
        raise PostgresFailed(f"a database server (process {pid}) does not stop")

    def _settle_after_crash(self) -> None:
        """Clear what PostgreSQL would refuse to start over: a crash leaves its pid file behind."""
        pid = server_pid(self._pgdata)
        if pid is None:
            return
        # The processes of a killed server notice within moments; until then its memory is in use.
        _, alive = psutil.wait_procs(workers_in(self._pgdata), timeout=self.settings.stop_seconds)
        # After a reboot the number may be a stranger's, which looks like a live server.
        if psutil.pid_exists(pid) and not alive:
            (self._pgdata / "postmaster.pid").unlink()

    def _create_cluster(self, launcher: Launcher) -> None:
        """Make the cluster under another name first: half a cluster is never taken for a whole."""
        unfinished = self._home / "pgdata.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        password = secrets.token_urlsafe(24)
        write_private(self.password_file, password)
        # initdb reads it under the server's identity, so it lies where that identity can look.
        handed_over = self._home / "password"
        write_private(handed_over, password)
        os.chown(handed_over, *launcher.identity.owner)
        try:
            self._run(
                launcher,
                "initdb",
                f"--pgdata={launcher.home}/pgdata.new",
                f"--username={SUPERUSER}",
                f"--pwfile={launcher.home}/password",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--no-locale",
                "--no-instructions",
                *([] if self.settings.durable else ["--no-sync"]),
            )
        finally:
            handed_over.unlink(missing_ok=True)
        (unfinished / "pg_hba.conf").write_text(_HBA, encoding="ascii")
        unfinished.rename(self._pgdata)

    def _run(self, launcher: Launcher, program: str, *arguments: str) -> None:
        completed = subprocess.run(
            launcher.command(program, *arguments),
            pass_fds=launcher.pass_fds,
            env=launcher.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if completed.returncode != 0:
            raise PostgresFailed(f"{program} failed:\n{completed.stderr or completed.stdout}")

    def _start_on_a_port(self, launcher: Launcher) -> None:
        for attempt in range(1, _PORT_TRIES + 1):
            self.port = usable_port(self._asked_port)
            try:
                self._start_process(launcher)
            except PortTaken:
                # Between our look and its bind somebody else came; only an open choice repeats.
                if self._asked_port or attempt == _PORT_TRIES:
                    raise
            else:
                return

    def _start_process(self, launcher: Launcher) -> None:
        options = self.settings.options(self.port)
        arguments = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        command = launcher.command(
            "postgres",
            "-D",
            f"{launcher.home}/pgdata",
            *arguments,
            owner_pid=self.settings.owner_pid,
        )
        with self.log_file.open("ab") as log:
            said_before = log.tell()
            self._process = subprocess.Popen(
                command,
                pass_fds=launcher.pass_fds,
                env=launcher.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A Ctrl-C in the terminal is for our owner, who then stops us in order.
                start_new_session=True,
            )
        self._wait_until_ready(self._process, said_before)

    def _wait_until_ready(self, process: subprocess.Popen[bytes], said_before: int) -> None:
        give_up = time.monotonic() + self.settings.start_seconds
        while not self._is_ready(process):
            if process.poll() is not None:
                said = self._said_since(said_before)
                if "Address already in use" in said:
                    raise port_taken(self.port)
                raise PostgresFailed(f"PostgreSQL did not start (see {self.log_file}):\n{said}")
            if time.monotonic() > give_up:
                raise PostgresFailed(
                    f"PostgreSQL was not ready in {self.settings.start_seconds:g} s:\n"
                    + self._said_since(said_before)
                )
            # A pause that ends at once when the server does.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_POLL_SECONDS)

    def _is_ready(self, process: subprocess.Popen[bytes]) -> bool:
        # A file from before a crash says "ready" too, so the process counts as well.
        pid = server_pid(self._pgdata)
        return (
            pid is not None and accepts_connections(self._pgdata) and is_or_begot(process.pid, pid)
        )

    def _said_since(self, position: int) -> str:
        with self.log_file.open("rb") as log:
            log.seek(position)
            return log.read().decode("utf-8", "replace")[-4000:]
