"""The exit codes of the `reveille` command; scripts may rely on them."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What a command's end means."""

    OK = 0
    FAILED = 1
    """It was tried and did not work, or what was waited for ended badly."""
    REFUSED = 2
    """The input was refused; nothing was done."""
    NOT_FOUND = 3
    """Nothing that the caller may see has this id."""
    NOT_RUNNING = 3
    """Of `up`'s companions `status` and `down`: no stack runs on this data directory."""
    NOT_ALLOWED = 4
    """No token, not a good one, or not one that may do this."""
    CONFLICT = 5
    """The thing is in a state, or was changed meanwhile, so that this cannot be done."""
    UNAVAILABLE = 6
    """No stack runs, a service does not answer, or it has no room; later it may work."""
    INTERRUPTED = 130
    """Ctrl-C."""
