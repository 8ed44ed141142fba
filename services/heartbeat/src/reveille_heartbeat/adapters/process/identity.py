"""Who a process is: its number alone is reused, so its start time goes with it."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

from reveille_heartbeat.domain.places import Executor, Place
from reveille_heartbeat.domain.values import ProcessIdentity
from reveille_runtime.ids import new_token

_PROC = Path("/proc")


def start_ticks(pid: int) -> int | None:
    """Give a process' start time in clock ticks since boot; None when there is no such process."""
    fields = stat_fields(pid)
    return None if fields is None else int(fields[19])


def stat_fields(pid: int) -> list[bytes] | None:
    """Give the fields of a process' stat that follow its name; None when it is gone."""
    try:
        content = (_PROC / str(pid) / "stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    return content.rpartition(b") ")[2].split()


def is_alive(process: ProcessIdentity) -> bool:
    """Tell whether this very process is there and has not ended (a zombie has)."""
    fields = stat_fields(process.pid)
    return fields is not None and int(fields[19]) == process.start_ticks and fields[0] != b"Z"


def open_process(process: ProcessIdentity) -> int | None:
    """Open a handle on this very process; None when it is gone, or its number is another's."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return None
    # Checked after opening: from here on the number cannot change hands unnoticed.
    if is_alive(process):
        return handle
    os.close(handle)
    return None


def send(process: ProcessIdentity, number: signal.Signals) -> bool:
    """Signal this very process; False when it is gone."""
    handle = open_process(process)
    if handle is None:
        return False
    try:
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def this_place(spool_id: str) -> Place:
    """Say where this process lives."""
    boot_id = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    namespace = (_PROC / "self/ns/pid").readlink().name.removeprefix("pid:[").removesuffix("]")
    return Place(boot_id, namespace, spool_id)


def this_executor(spool_id: str) -> Executor:
    """Say who executes here."""
    ticks = start_ticks(os.getpid())
    if ticks is None:
        raise RuntimeError("agents are run on Linux only: /proc is needed")
    host = socket.gethostname().replace("/", "_")
    identity = ProcessIdentity(os.getpid(), ticks)
    return Executor(host, identity, new_token().hex[:8], this_place(spool_id))
