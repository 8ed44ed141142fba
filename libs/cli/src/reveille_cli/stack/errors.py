"""What can go wrong with a local stack, each with a reason a script can test."""

from __future__ import annotations


class StackError(Exception):
    """The local stack cannot do this."""

    reason = "STACK_FAILED"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class ComposeInvalid(StackError):
    """The compose file cannot be run."""

    reason = "COMPOSE_INVALID"


class PortTaken(StackError):
    """A port the stack needs belongs to someone else."""

    reason = "PORT_TAKEN"


class DataDirUnusable(StackError):
    """The data directory cannot be read or written."""

    reason = "DATA_DIR_UNUSABLE"


class AlreadyRunning(StackError):
    """Another stack runs on this data directory."""

    reason = "ALREADY_RUNNING"


class NotRunning(StackError):
    """No stack runs on this data directory."""

    reason = "NOT_RUNNING"


class StartFailed(StackError):
    """The stack did not come up."""

    reason = "START_FAILED"
