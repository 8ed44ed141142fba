"""Starts child processes from one thread that lives as long as they may.

A child that is tethered to us is in truth tethered to the thread that started it, and callers may
come from threads that end early.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from reveille_cli.stack import tether


class Spawner:
    """Starts processes that end with this one."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spawner")

    def start(
        self, argv: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path
    ) -> subprocess.Popen[bytes]:
        """Start one, with its output appended to a file."""
        return self._thread.submit(_start, argv, environment, folder, log).result()

    def close(self) -> None:
        """End the thread, and with it whatever still runs."""
        self._thread.shutdown()


def _start(
    argv: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path
) -> subprocess.Popen[bytes]:
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", tether.__file__, str(os.getpid()), *argv],
            env=dict(environment),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=subprocess.STDOUT,
            # A Ctrl-C in our terminal is ours to pass on, in order.
            start_new_session=True,
        )
    finally:
        os.close(descriptor)
