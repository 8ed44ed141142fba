"""Orphans: what agents' processes become when their parents end, taken in by this process.

A process that starts nothing but agents may declare itself their guardian. The kernel then gives it
every process that an agent leaves behind, at once and wherever it went: a look at one's own
children tells whether anything was left, where otherwise all processes of the machine would have
to be looked at. It also reaps them, which in a container nobody else does.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path

from reveille_heartbeat.adapters.process.identity import has_ended, read_proc, stat_fields

_SET_GUARDIAN = 36
_GET_GUARDIAN = 37


def become_guardian() -> bool:
    """Take in orphans from now on; False where the system cannot do it.

    Only for a process all of whose children are agents: others' would be reaped, too.
    """
    return bool(_prctl(_SET_GUARDIAN, 1) == 0)


def is_guardian() -> bool:
    """Tell whether this process takes in orphans, and can list its children."""
    answer = ctypes.c_int(0)
    if _prctl(_GET_GUARDIAN, ctypes.byref(answer)) != 0:
        return False
    return answer.value == 1 and Path(_children()).exists()


class Orphanage:
    """The children of this process, and which of them are wrappers that are awaited."""

    def __init__(self) -> None:
        self._guardian = is_guardian()
        self._awaited: set[int] = set()

    def awaits(self, pid: int) -> None:
        """Take note of a wrapper of ours: it is no orphan, and is reaped by whoever awaits it."""
        self._awaited.add(pid)

    def forget(self, pid: int) -> None:
        """Take note that nobody awaits it any more."""
        self._awaited.discard(pid)

    def is_empty(self) -> bool:
        """Tell whether no agent that has ended can have left a process behind.

        False also when it cannot be told. Dead orphans are reaped on the way. The list of children
        is whole only while none is reaped elsewhere: it is for the one thread that reaps them all.
        """
        if not self._guardian:
            return False
        strangers = {int(pid) for pid in read_proc(_children()).split()} - self._awaited
        living = [pid for pid in strangers if not _reaped(pid)]
        return not living


def _reaped(pid: int) -> bool:
    """Reap a child that has ended; False for one that has not."""
    fields = stat_fields(pid)
    if fields is not None and not has_ended(fields):
        return False
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)
    return True


def _children() -> str:
    """Orphans are given to the main thread, whose number is the process'."""
    pid = os.getpid()
    return f"/proc/{pid}/task/{pid}/children"


def _prctl(option: int, argument: object) -> int:
    try:
        function = ctypes.CDLL(None, use_errno=True).prctl
    except (OSError, AttributeError):
        return -1
    answer: int = function(option, argument, 0, 0, 0)
    return answer
