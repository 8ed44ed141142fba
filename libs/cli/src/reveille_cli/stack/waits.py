"""What processes that start are waiting for, by what they say themselves, told as time goes by."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType

from reveille_cli.stack.process import ManagedProcess, ProcessState, ProcessStatus

_INTERVAL = 1.0
# Who is ready sooner has not been waited for.
_WORTH_TELLING = 2.0
_WAITING = ", waiting"


class WaitWatch:
    """Tells what a stack's processes wait for, while the block lasts."""

    def __init__(
        self,
        processes: Callable[[], Iterable[ManagedProcess]],
        tell: Callable[[ProcessStatus, str, int], None],
    ) -> None:
        self._processes = processes
        self._tell = tell
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch-waits", daemon=True)

    def __enter__(self) -> WaitWatch:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(_INTERVAL):
            for process in self._processes():
                self._look(process)

    def _look(self, process: ManagedProcess) -> None:
        status = process.status()
        if status.state is not ProcessState.STARTING or status.started_at is None:
            return
        seconds = time.time() - status.started_at
        if seconds < _WORTH_TELLING:
            return
        reason = waited_for(process.tail(1))
        if reason:
            self._tell(status, reason, int(seconds))


def waited_for(tail: list[str]) -> str:
    """Return what the last line of a log says that its process waits for; empty if nothing."""
    line = tail[-1] if tail else ""
    try:
        document = json.loads(line)
    except ValueError:
        text = line
    else:
        text = str(document.get("event", "")) if isinstance(document, dict) else line
    before, found, _ = text.partition(_WAITING)
    # A job puts its own name first, which whoever tells this does too.
    return before.rpartition(": ")[2] + found if found else ""
