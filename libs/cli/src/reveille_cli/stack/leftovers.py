"""Processes that outlived a supervisor which was killed: found by their mark, and stopped.

The kernel asks them to end when their supervisor is gone; this is for those that take long, or do
not listen. They are stopped rather than adopted: only a parent learns an exit code, and a new stack
may have other ports. Agents carry no mark, live on, and are taken over by the heartbeat service.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from reveille_cli.stack.datadir import DataDir
from reveille_cli.stack.plan import MARKER_VARIABLE

# They have been asked once already, by the kernel.
STOP_GRACE = 5.0
AGENT_NAME = "reveille-agent"
"""What the heartbeat service calls the wrapper of an agent; the word after it is its spool."""
_PAUSE = 0.05


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


def count_agents(data_dir: DataDir) -> int:
    """Count the agents that run in the spools of this data directory, heartbeat or not."""
    # A wrapper may fork; each attempt has one folder.
    spools = set()
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
        except (psutil.Error, OSError):
            continue
        if AGENT_NAME in words[:-1]:
            spool = Path(words[words.index(AGENT_NAME) + 1])
            if spool.is_relative_to(data_dir.volumes):
                spools.add(spool)
    return len(spools)


def stop_leftovers(leftovers: list[Leftover], grace: float = STOP_GRACE) -> None:
    """Ask them to end, and kill those that do not; psutil never signals a recycled pid."""
    processes = [leftover.process for leftover in leftovers]
    for process in processes:
        try:
            process.terminate()
        except psutil.NoSuchProcess:
            continue
    alive = _wait_for(processes, grace)
    for process in alive:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    _wait_for(alive, grace)


def _wait_for(processes: list[psutil.Process], timeout: float) -> list[psutil.Process]:
    """Wait until they have ended, reaped or not: their new parent may never reap them."""
    deadline, pause = time.monotonic() + timeout, threading.Event()
    while (alive := [item for item in processes if _runs(item)]) and time.monotonic() < deadline:
        pause.wait(_PAUSE)
    return alive


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _mark(environment: Mapping[str, str]) -> str:
    return environment.get(MARKER_VARIABLE, "")
