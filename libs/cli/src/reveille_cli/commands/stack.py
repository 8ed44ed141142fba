"""`reveille up`, `down`, `status` and `keys`: the local stack."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from reveille_cli.exits import ExitCode
from reveille_cli.options import (
    DEFAULT_DIR,
    DEFAULT_OUTPUT,
    DataDirOption,
    OutputFormat,
    OutputOption,
)
from reveille_cli.stack.background import run_until_stopped, start_in_background
from reveille_cli.stack.compose import find_compose_file
from reveille_cli.stack.datadir import DataDir
from reveille_cli.stack.errors import ComposeInvalid, NotRunning, StackError
from reveille_cli.stack.inspection import inspect
from reveille_cli.stack.keys import make_secrets
from reveille_cli.stack.process import ProcessStatus
from reveille_cli.stack.record import own_version, read_endpoints, read_record
from reveille_cli.stack.shutdown import shut_down
from reveille_cli.stack.supervisor import StackOptions, Supervisor
from reveille_cli.stackview import (
    ProgressView,
    data_console,
    endpoints_table,
    stack_json,
    stack_table,
)

DATABASE_VARIABLE = "REVEILLE_DATABASE_URL"


def up(
    data_dir: DataDirOption = DEFAULT_DIR,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="The compose file to run.")
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return once the stack is up.")
    ] = False,
    free_ports: Annotated[
        bool, typer.Option("--free-ports", help="Listen on free ports, not the published ones.")
    ] = False,
    scale: Annotated[
        list[str] | None,
        typer.Option(metavar="SERVICE=N", help="Run N replicas of a service; may be repeated."),
    ] = None,
    output: OutputOption = DEFAULT_OUTPUT,
) -> None:
    """Run docker-compose.yml as processes of this machine, without Docker.

    Uses an embedded PostgreSQL, or the one of REVEILLE_DATABASE_URL (an administrator's URL).
    Nothing is restarted: a service that ends is reported, and the others go on. Ctrl-C stops
    everything; the exit code is then 1 if any process had failed.
    """
    messages = Console(stderr=True)
    with _errors(messages, output):
        options = StackOptions(
            compose_file=(file or find_compose_file(Path.cwd())).absolute(),
            data_dir=DataDir.at(data_dir).root,
            free_ports=free_ports,
            scale=dict(_scale(item) for item in scale or ()),
            database_url=os.environ.get(DATABASE_VARIABLE) or None,
        )
        with ProgressView(messages) as view:
            if detach:
                not_ready = start_in_background(options, view)
                view.settle()
                _say_up(messages, output, options.data_dir, not_ready)
                raise typer.Exit(ExitCode.FAILED if not_ready else ExitCode.OK)
            supervisor = Supervisor(options, view)

            def say_up() -> None:
                view.settle()
                _say_up(messages, output, options.data_dir, supervisor.not_ready())
                messages.print("Press Ctrl-C to stop.")

            healthy = run_until_stopped(supervisor, say_up)
    raise typer.Exit(ExitCode.OK if healthy else ExitCode.FAILED)


def down(data_dir: DataDirOption = DEFAULT_DIR, output: OutputOption = DEFAULT_OUTPUT) -> None:
    """Stop the stack of a data directory; the data stays."""
    messages = Console(stderr=True)
    with _errors(messages, output):
        place = DataDir.at(data_dir)
        shut_down(place, lambda line: messages.print(line, highlight=False))
        messages.print(f"The stack on {place.root} is down.", highlight=False, soft_wrap=True)
        if output is OutputFormat.JSON:
            typer.echo(json.dumps({"data_dir": str(place.root), "running": False}))


def status(data_dir: DataDirOption = DEFAULT_DIR, output: OutputOption = DEFAULT_OUTPUT) -> None:
    """Show each process of the stack: state, health, pid, uptime, exit code and address.

    Exits with 0 when everything is ready, 1 when something is not, 3 when no stack runs.
    """
    messages = Console(stderr=True)
    with _errors(messages, output):
        place = DataDir.at(data_dir)
        view = inspect(place)
        if view is None:
            raise NotRunning(f"no stack has run on {place.root}", hint="start one with reveille up")
        if output is OutputFormat.JSON:
            typer.echo(json.dumps(stack_json(view)))
        else:
            data_console().print(stack_table(view))
        if not view.running:
            if view.leftovers:
                messages.print(
                    f"The supervisor was killed and left {view.leftovers} processes behind. "
                    "`reveille down` stops them; so does the next `reveille up`."
                )
            else:
                messages.print(f"No stack runs on {place.root}.", soft_wrap=True)
            raise typer.Exit(ExitCode.NOT_RUNNING)
    raise typer.Exit(ExitCode.OK if view.is_good else ExitCode.FAILED)


def keys(data_dir: DataDirOption = DEFAULT_DIR, output: OutputOption = DEFAULT_OUTPUT) -> None:
    """Make the secrets that docker-compose.yml mounts, without starting anything."""
    messages = Console(stderr=True)
    with _errors(messages, output):
        place = DataDir.at(data_dir)
        place.prepare()
        make_secrets(place)
        if output is OutputFormat.JSON:
            typer.echo(json.dumps({"keys": str(place.keys)}))
        else:
            typer.echo(place.keys)


@contextmanager
def _errors(messages: Console, output: OutputFormat) -> Iterator[None]:
    """Turn an error of the stack into a message, its JSON form and an exit code."""
    try:
        yield
    except StackError as error:
        messages.print(f"error: {error.message}", highlight=False, markup=False, soft_wrap=True)
        if error.hint:
            messages.print(error.hint, highlight=False, markup=False, soft_wrap=True)
        if output is OutputFormat.JSON:
            typer.echo(json.dumps({"error": {"reason": error.reason, "message": error.message}}))
        raise typer.Exit(_exit_code(error)) from None


def _exit_code(error: StackError) -> ExitCode:
    if isinstance(error, NotRunning):
        return ExitCode.NOT_RUNNING
    return ExitCode.REFUSED if isinstance(error, ComposeInvalid) else ExitCode.FAILED


def _scale(text: str) -> tuple[str, int]:
    service, separator, count = text.partition("=")
    if not separator or not count.isdigit():
        raise ComposeInvalid(f"--scale {text} must be SERVICE=N")
    return service, int(count)


def _say_up(
    messages: Console, output: OutputFormat, data_dir: Path, not_ready: Sequence[ProcessStatus]
) -> None:
    place = DataDir.at(data_dir)
    if output is OutputFormat.JSON:
        document = {
            "reveille": own_version(),
            "data_dir": str(place.root),
            "services": read_endpoints(place),
            "not_ready": [status.name for status in not_ready],
        }
        typer.echo(json.dumps(document))
    else:
        record = read_record(place)
        missing = ", ".join(status.name for status in not_ready)
        state = f"is up without {missing}" if missing else "is up"
        messages.print(f"Reveille {state} on {place.root}", highlight=False, soft_wrap=True)
        data_console().print(endpoints_table(record.processes if record else ()))
    for status in not_ready:
        messages.print(
            f"Not ready: {status.name} ({status.state}); its log is {status.log}",
            highlight=False,
            soft_wrap=True,
        )
