"""Who a process is: its number alone is reused, so its start time goes with it."""

from __future__ import annotations

import errno
import os
import signal
import socket
from enum import StrEnum
from pathlib import Path

from reveille_heartbeat.domain.places import Executor, Place
from reveille_heartbeat.domain.values import ProcessIdentity
from reveille_runtime.ids import new_token

_PROC = Path("/proc")
_BLOCK = 65_536
# We have no means to look just now: that says nothing of the process.
_NO_MEANS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
# What kernels of different age say of a number that is no process': it may be a thread's.
_NO_PROCESS = frozenset({errno.ESRCH, errno.ENOENT, errno.EINVAL})


class Sent(StrEnum):
    """What became of a signal."""

    DONE = "done"
    # The process has ended, or its number is another's now.
    GONE = "gone"
    # It belongs to another user, and is beyond our reach.
    REFUSED = "refused"


def start_ticks(pid: int) -> int | None:
    """Give a process' start time in clock ticks since boot; None when there is no such process.

    Here and below, who cannot look, for want of descriptors or memory, raises OSError: a living
    executor or agent must not be taken for one that is gone.
    """
    fields = stat_fields(pid)
    return None if fields is None else int(fields[19])


def stat_fields(pid: int) -> list[bytes] | None:
    """Give the fields of a process' stat that follow its name; None when it is gone."""
    content = read_proc(f"/proc/{pid}/stat")
    return content.rpartition(b") ")[2].split() if content else None


def read_proc(path: str) -> bytes:
    """Read a file of the proc file system; empty when its process is gone or not ours to read.

    By bare system calls: a walk over all processes makes thousands of them.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _NO_MEANS:
            raise
        return b""
    try:
        content = os.read(descriptor, _BLOCK)
        if len(content) < _BLOCK:
            return content
        pieces = [content]
        while piece := os.read(descriptor, _BLOCK):
            pieces.append(piece)
        return b"".join(pieces)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def is_alive(process: ProcessIdentity) -> bool:
    """Tell whether this very process is there and has not ended (a zombie has)."""
    fields = stat_fields(process.pid)
    return fields is not None and int(fields[19]) == process.start_ticks and not has_ended(fields)


def has_ended(fields: list[bytes]) -> bool:
    """Tell by its stat whether a process has ended, although nobody has taken note of it."""
    return fields[0] in (b"Z", b"X")


def open_process(process: ProcessIdentity) -> int | None:
    """Open a handle on this very process; None when it is gone, or its number is another's."""
    try:
        handle = os.pidfd_open(process.pid)
    except OSError as error:
        if error.errno in _NO_PROCESS:
            return None
        raise
    found = False
    try:
        # Checked after opening: from here on the number cannot change hands unnoticed.
        found = is_alive(process)
    finally:
        if not found:
            os.close(handle)
    return handle if found else None


def send(process: ProcessIdentity, number: signal.Signals) -> Sent:
    """Signal this very process."""
    handle = open_process(process)
    if handle is None:
        return Sent.GONE
    try:
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return Sent.GONE
    except PermissionError:
        return Sent.REFUSED
    finally:
        os.close(handle)
    return Sent.DONE


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
