"""Ends the stack of a data directory from outside, whether its supervisor lives or was killed."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable

from reveille_cli.stack.database import stop_left_over_server
from reveille_cli.stack.datadir import DataDir
from reveille_cli.stack.errors import NotRunning, StackError
from reveille_cli.stack.leftovers import find_leftovers, stop_leftovers
from reveille_cli.stack.lock import StackLock, is_locked
from reveille_cli.stack.record import read_record

_PAUSE = 0.05


def shut_down(data_dir: DataDir, note: Callable[[str], None], timeout: float = 120.0) -> None:
    """Stop what runs; raise NotRunning when nothing does."""
    if not data_dir.root.exists():
        raise NotRunning(f"there is no data directory {data_dir.root}")
    if is_locked(data_dir):
        _stop_supervisor(data_dir, note, timeout)
        return
    with StackLock(data_dir):
        leftovers = find_leftovers(data_dir)
        for leftover in leftovers:
            note(f"its supervisor was killed: stopping {leftover.command} (pid {leftover.pid})")
        stop_leftovers(leftovers)
        server = stop_left_over_server(data_dir)
        if server:
            note("its supervisor was killed: stopped the embedded PostgreSQL")
        data_dir.endpoints.unlink(missing_ok=True)
    if not leftovers and not server:
        raise NotRunning(f"no stack runs on {data_dir.root}")


def _stop_supervisor(data_dir: DataDir, note: Callable[[str], None], timeout: float) -> None:
    deadline = time.monotonic() + timeout
    asked = False
    pause = threading.Event()
    # The lock is let go last, and by the kernel if need be: it tells when all is over.
    while is_locked(data_dir):
        if not asked:
            record = read_record(data_dir)
            asked = record is not None and record.supervisor.send(signal.SIGTERM)
            if asked and record is not None:
                note(f"stopping the stack (supervisor {record.supervisor.pid})")
        if time.monotonic() > deadline:
            raise StackError(
                f"the stack on {data_dir.root} is still stopping after {timeout:g} s",
                hint="see what it waits for with `reveille status`",
            )
        pause.wait(_PAUSE)
