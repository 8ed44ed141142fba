"""Crash points: named places at durable boundaries where a test can make the process die.

A service lists its points in one tuple and declares it; production code passes them for the price
of one environment look-up. `REVEILLE_CRASH_POINT` names the point that kills,
`REVEILLE_CRASH_AFTER` how often it is passed unharmed first (default 0).
"""

from __future__ import annotations

import os
from collections.abc import Iterable

POINT_VARIABLE = "REVEILLE_CRASH_POINT"
AFTER_VARIABLE = "REVEILLE_CRASH_AFTER"
# What a shell reports for a process killed by signal 9: nothing is flushed, no handler runs.
KILLED = 137

_declared: set[str] = set()
_passed: dict[str, int] = {}


class UnknownCrashPoint(LookupError):
    """The environment or the code names a point that no service declares."""


def declare(*names: str) -> tuple[str, ...]:
    """Make points known, so that a test can walk every one; returns them for a constant."""
    _declared.update(names)
    return names


def all_crash_points() -> list[str]:
    """List the points of every module imported so far."""
    return sorted(_declared)


def check_environment(known: Iterable[str] | None = None) -> None:
    """Refuse to start with a misspelt point: a test that never crashes would prove nothing.

    Raises:
        UnknownCrashPoint: the variable is set to a name that is not declared.
    """
    wanted = os.environ.get(POINT_VARIABLE, "")
    if wanted and wanted not in (_declared if known is None else set(known)):
        raise UnknownCrashPoint(f"{POINT_VARIABLE}={wanted} names no crash point")


def crash_point(name: str) -> None:
    """Die here, at once and without any clean-up, if the environment says so."""
    if os.environ.get(POINT_VARIABLE) != name:
        return
    passed = _passed.get(name, 0)
    if passed < int(os.environ.get(AFTER_VARIABLE, "0")):
        _passed[name] = passed + 1
        return
    os._exit(KILLED)
