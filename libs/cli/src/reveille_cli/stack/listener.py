"""Who hears what a supervisor does: nobody, or lines of text."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

from reveille_cli.stack.process import ProcessStatus, signal_name

_REPEAT_SECONDS = 10


class Listener:
    """Hears what happens; does nothing about it unless a subclass does."""

    def note(self, text: str) -> None:
        """Hear a step of the supervisor itself."""

    def changed(self, status: ProcessStatus) -> None:
        """Hear that a process has another state."""

    def waiting(self, status: ProcessStatus, reason: str, seconds: int) -> None:
        """Hear, about every second, what a process that starts waits for."""

    def failed(self, status: ProcessStatus, tail: list[str]) -> None:
        """Hear that a process ended although nobody asked it to, or ended badly."""


class LogListener(Listener):
    """Writes what happens as lines of text; what several processes say alike is written once."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        # Each process is watched by a thread of its own; what belongs together stays together.
        self._lock = threading.Lock()
        self._said: dict[tuple[str, ...], str] = {}
        self._told: dict[str, tuple[str, int]] = {}

    def note(self, text: str) -> None:
        """Write a step."""
        self._write(text)

    def changed(self, status: ProcessStatus) -> None:
        """Write a state."""
        self._told.pop(status.name, None)
        pid = f" (pid {status.pid})" if status.pid else _ending(status)
        self._write(f"{status.name}: {status.state}{pid}")

    def waiting(self, status: ProcessStatus, reason: str, seconds: int) -> None:
        """Write what a process waits for: at first, and then every few seconds."""
        before = self._told.get(status.name)
        if before is not None and before[0] == reason and seconds < before[1] + _REPEAT_SECONDS:
            return
        self._told[status.name] = (reason, seconds)
        self._write(waiting_text(status.name, reason, seconds))

    def failed(self, status: ProcessStatus, tail: list[str]) -> None:
        """Write why a process ended."""
        with self._lock:
            first = self._said.setdefault(tuple(tail), status.name)
            if tail and first != status.name:
                self._write(f"{status.name} {status.exit_text()}, saying the same as {first}")
                return
            self._write(f"{status.name} {status.exit_text()}; its last lines:")
            for line in tail:
                self._write(f"  | {line}")


def _ending(status: ProcessStatus) -> str:
    code = status.exit_code
    # That it ended by the signal that asked it to is not worth a word.
    if not code or code == -signal.SIGTERM:
        return ""
    return f" (code {code})" if code > 0 else f" ({signal_name(-code)})"


def waiting_text(name: str, reason: str, seconds: int) -> str:
    """Say what a process waits for, and for how long by now."""
    return f"{name}: {reason} ({seconds} s)"
