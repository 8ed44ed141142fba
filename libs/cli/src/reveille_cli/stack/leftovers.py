"""Processes that outlived a supervisor which was killed: found by their mark, and stopped.

They are stopped rather than adopted: only a parent learns an exit code, and a new stack may have
other ports. Agent processes carry no mark, stay alive, and are taken over by the heartbeat service.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

import psutil

from reveille_cli.stack.datadir import DataDir
from reveille_cli.stack.plan import MARKER_VARIABLE

STOP_GRACE = 15.0


@dataclass(frozen=True, slots=True)
class Leftover:
    """A process of an earlier supervisor."""

    process: psutil.Process
    command: str

    @property
    def pid(self) -> int:
        """Its pid."""
        return int(self.process.pid)


def find_leftovers(data_dir: DataDir) -> list[Leftover]:
    """Return the processes that carry the mark of this data directory."""
    found = []
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        try:
            if _mark(process.environ()) != str(data_dir.root):
                continue
            found.append(Leftover(process=process, command=" ".join(process.cmdline()[1:])))
        except (psutil.Error, OSError):
            # Ended meanwhile, or another user's.
            continue
    return found


def stop_leftovers(leftovers: list[Leftover], grace: float = STOP_GRACE) -> None:
    """Ask them to end, and kill those that do not; psutil never signals a recycled pid."""
    processes = [leftover.process for leftover in leftovers]
    for process in processes:
        try:
            process.terminate()
        except psutil.NoSuchProcess:
            continue
    _, alive = psutil.wait_procs(processes, timeout=grace)
    for process in alive:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(alive, timeout=grace)


def _mark(environment: Mapping[str, str]) -> str:
    return environment.get(MARKER_VARIABLE, "")
