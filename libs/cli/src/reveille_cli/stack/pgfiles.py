"""Small looks at the files and processes of a PostgreSQL data directory."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import psutil

from reveille_cli.stack.errors import PortTaken

HOST = "127.0.0.1"
# postmaster.pid: the process id is its first line, the state its eighth.
_PID_LINE, _STATE_LINE = 0, 7


def server_pid(pgdata: Path) -> int | None:
    """Read which process claims the directory; it may be long gone."""
    lines = _lines_of(pgdata / "postmaster.pid")
    return int(lines[_PID_LINE]) if lines and lines[_PID_LINE].isdigit() else None


def accepts_connections(pgdata: Path) -> bool:
    """Read whether the server has said that it is ready."""
    lines = _lines_of(pgdata / "postmaster.pid")
    return len(lines) > _STATE_LINE and lines[_STATE_LINE].strip() == "ready"


def works_in(pid: int, folder: Path) -> bool:
    """Tell this directory's server from a stranger with a reused id: it sits in its data."""
    try:
        return Path(psutil.Process(pid).cwd()) == folder.resolve()
    except (psutil.Error, OSError):
        return False


def workers_in(folder: Path) -> list[psutil.Process]:
    """Find all processes of this directory's server, backends included."""
    return [process for process in psutil.process_iter() if works_in(process.pid, folder)]


def is_or_begot(process: int, pid: int) -> bool:
    """Tell whether `pid` is our child itself, or the server that our child runs."""
    try:
        return pid == process or psutil.Process(pid).ppid() == process
    except psutil.NoSuchProcess:
        return False


def write_private(file: Path, text: str) -> None:
    """Write a secret, readable by its owner from the first byte on."""
    file.unlink(missing_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(text + "\n")


def usable_port(asked: int) -> int:
    """Check that a port can be bound, or choose one that can (0)."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, asked))
        except OSError as error:
            raise port_taken(asked) from error
        port: int = probe.getsockname()[1]
        return port


def port_taken(port: int) -> PortTaken:
    """Say which port it is."""
    return PortTaken(
        f"port {port} on {HOST}, which the database listens on, is taken",
        hint="stop what listens there, or choose another port",
    )


def _lines_of(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
