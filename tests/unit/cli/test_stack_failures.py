"""A stack that cannot be started ends every command with its own exit code."""

from __future__ import annotations

import pytest
import typer

from reveille_cli.exits import ExitCode
from reveille_cli.failures import reporting
from reveille_cli.options import OutputFormat
from reveille_cli.stack.errors import ComposeInvalid, NotRunning, StackError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ComposeInvalid("HEARTBEAT_PORT must be from 1 to 65535"), ExitCode.REFUSED),
        (NotRunning("no stack runs here"), ExitCode.UNAVAILABLE),
        (StackError("no idea"), ExitCode.FAILED),
    ],
)
def test_the_error_says_how_the_command_ends(error: StackError, code: ExitCode) -> None:
    with pytest.raises(typer.Exit) as ended, reporting(OutputFormat.TABLE):
        raise error

    assert ended.value.exit_code == code
