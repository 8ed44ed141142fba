"""One supervisor per data directory, by a file lock that ends with its process."""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from types import TracebackType

from reveille_cli.stack.datadir import DataDir
from reveille_cli.stack.errors import AlreadyRunning, DataDirUnusable
from reveille_cli.stack.identity import ProcessIdentity

# A look at the lock takes it for an instant; a supervisor that meets one tries again.
_PATIENCE = 0.5
_PAUSE = 0.02


class StackLock:
    """The right to run the stack of one data directory."""

    def __init__(self, data_dir: DataDir) -> None:
        self._data_dir = data_dir
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock, or say who holds it."""
        try:
            descriptor = os.open(self._data_dir.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise DataDirUnusable(
                f"cannot write to the data directory {self._data_dir.root}: {error.strerror}",
                hint="name another one with --data-dir, or correct its owner and mode",
            ) from error
        deadline = time.monotonic() + _PATIENCE
        pause = threading.Event()
        while not _try_lock(descriptor, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise AlreadyRunning(
                    f"a stack is already running on {self._data_dir.root}",
                    hint="see it with `reveille status`, stop it with `reveille down`, "
                    "or run a second one on another --data-dir",
                )
            pause.wait(_PAUSE)
        self._descriptor = descriptor
        # Who holds it can then be asked to end, whatever became of the other files.
        me = ProcessIdentity.of(os.getpid())
        os.ftruncate(descriptor, 0)
        os.write(descriptor, json.dumps(me.as_json() if me else None).encode("ascii"))

    def release(self) -> None:
        """Let go; harmless when not held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> StackLock:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def is_locked(data_dir: DataDir) -> bool:
    """Tell whether a supervisor lives on this data directory."""
    try:
        descriptor = os.open(data_dir.lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise DataDirUnusable(
            f"cannot read the data directory {data_dir.root}: {error.strerror}",
            hint="name another one with --data-dir, or correct its owner and mode",
        ) from error
    try:
        return not _try_lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def lock_holder(data_dir: DataDir) -> ProcessIdentity | None:
    """Return who has taken the lock last; None when the file does not say."""
    try:
        return ProcessIdentity.read(json.loads(data_dir.lock.read_text(encoding="ascii")))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
