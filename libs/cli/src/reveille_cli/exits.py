"""The exit codes of the `reveille` command; scripts may rely on them."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What a command's end means."""

    OK = 0
    FAILED = 1
    """It was tried and did not work."""
    REFUSED = 2
    """The input was refused; nothing was tried."""
    NOT_RUNNING = 3
    """No stack runs on this data directory."""
