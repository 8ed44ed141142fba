"""Ends the stack of a data directory from outside, whether its supervisor lives or was killed."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from reveille_cli.stack.database import stop_left_over_server
from reveille_cli.stack.datadir import DataDir
from reveille_cli.stack.errors import NotRunning, RecordDamaged, StackError
from reveille_cli.stack.leftovers import find_leftovers, stop_leftovers
from reveille_cli.stack.lock import StackLock, is_locked, lock_holder
from reveille_cli.stack.process import RUNNING, ProcessState
from reveille_cli.stack.record import Phase, read_record, write_record

_PAUSE = 0.05


def shut_down(data_dir: DataDir, note: Callable[[str], None], timeout: float = 180.0) -> None:
    """Stop what runs, tidy up after a supervisor that died; NotRunning when there is neither."""
    if not data_dir.root.exists():
        raise NotRunning.on(data_dir.root)
    if is_locked(data_dir):
        _stop_supervisor(data_dir, note, timeout)
        return
    with StackLock(data_dir):
        tidied = _close_record(data_dir, note)
        leftovers = find_leftovers(data_dir)
        for leftover in leftovers:
            note(f"stopping {leftover.command} (pid {leftover.pid}), which it left behind")
        stop_leftovers(leftovers)
        server = stop_left_over_server(data_dir)
        if server:
            note("stopped the embedded PostgreSQL, which it left behind")
        data_dir.endpoints.unlink(missing_ok=True)
    if not (tidied or leftovers or server):
        raise NotRunning.on(data_dir.root)


def _close_record(data_dir: DataDir, note: Callable[[str], None]) -> bool:
    """Write down the end that a dead supervisor could not; False when nothing was open."""
    try:
        record = read_record(data_dir)
    except RecordDamaged as error:
        note(f"{error.message}; removing it")
        data_dir.record.unlink()
        return True
    if record is None or record.phase is Phase.STOPPED:
        return False
    note(f"the supervisor (pid {record.supervisor.pid}) died without stopping its stack")
    ended = tuple(
        replace(status, state=ProcessState.STOPPED, identity=None)
        if status.state in RUNNING
        else status
        for status in record.processes
    )
    write_record(data_dir, replace(record, phase=Phase.STOPPED, processes=ended))
    return True


def _stop_supervisor(data_dir: DataDir, note: Callable[[str], None], timeout: float) -> None:
    deadline = time.monotonic() + timeout
    asked = False
    pause = threading.Event()
    # The lock is let go last, and by the kernel if need be: it tells when all is over.
    while is_locked(data_dir):
        if not asked:
            holder = lock_holder(data_dir)
            asked = holder is not None and holder.send(signal.SIGTERM)
            if asked and holder is not None:
                note(f"stopping the stack (supervisor {holder.pid})")
        if time.monotonic() > deadline:
            raise StackError(
                f"the stack on {data_dir.root} is still stopping after {timeout:g} s",
                hint="see what it waits for with `reveille status`",
            )
        pause.wait(_PAUSE)
