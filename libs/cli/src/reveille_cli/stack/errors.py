"""What can go wrong with a local stack, each with a reason a script can test and its exit code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reveille_cli.exits import ExitCode


class StackError(Exception):
    """The local stack cannot do this."""

    reason = "stack_failed"
    exit_code = ExitCode.FAILED

    def __init__(self, message: str, *, hint: str = "", details: Sequence[str] = ()) -> None:
        super().__init__("\n".join((message, *details)))
        self.message = message
        self.hint = hint
        self.details = tuple(details)
        """What a failed process said; whoever watched the start has read it already."""


class ComposeInvalid(StackError):
    """The compose file, or a variable or option that changes it, cannot be run."""

    reason = "compose_invalid"
    exit_code = ExitCode.REFUSED


class DatabaseUrlInvalid(StackError):
    """The URL of the database to use is none."""

    reason = "database_url_invalid"
    exit_code = ExitCode.REFUSED


class PortTaken(StackError):
    """A port the stack needs belongs to someone else."""

    reason = "port_taken"


class DataDirUnusable(StackError):
    """The data directory cannot be read or written."""

    reason = "data_dir_unusable"


class RecordDamaged(StackError):
    """What the supervisor has written down cannot be read."""

    reason = "record_damaged"


class AlreadyRunning(StackError):
    """Another stack runs on this data directory."""

    reason = "already_running"


class NotRunning(StackError):
    """No stack runs on this data directory."""

    reason = "not_running"
    exit_code = ExitCode.NOT_RUNNING

    @classmethod
    def on(cls, data_dir: Path) -> NotRunning:
        """Say so in the words that every command uses."""
        return cls(f"no stack runs on {data_dir}", hint="start one with `reveille up`")


class StartFailed(StackError):
    """The stack did not come up."""

    reason = "start_failed"
