"""`reveille up`, `down`, `status` and `keys`: the local stack."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from reveille_cli.exits import ExitCode
from reveille_cli.failures import Failure, report
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
from reveille_cli.stack.inspection import StackView, inspect
from reveille_cli.stack.keys import make_secrets
from reveille_cli.stack.leftovers import count_agents
from reveille_cli.stack.options import StackOptions
from reveille_cli.stack.process import ProcessStatus
from reveille_cli.stack.record import own_version, read_endpoints, read_record
from reveille_cli.stack.shutdown import shut_down
from reveille_cli.stack.supervisor import Supervisor
from reveille_cli.stackview import (
    ProgressView,
    agents_text,
    endpoints_table,
    message_console,
    stack_json,
    stack_table,
)
from reveille_cli.terminal import draw, json_line

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
        bool,
        typer.Option(
            "--free-ports", help="Listen on free ports: the first time any, then the same."
        ),
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
    messages = message_console()
    with _errors(output):
        options = StackOptions(
            compose_file=(file or find_compose_file(Path.cwd())).absolute(),
            data_dir=DataDir.at(data_dir).root,
            free_ports=free_ports,
            scale=dict(_scale(item) for item in scale or ()),
            database_url=os.environ.get(DATABASE_VARIABLE) or None,
        )
        with ProgressView(messages) as view:
            if detach:
                try:
                    not_ready = start_in_background(options, view)
                except KeyboardInterrupt:
                    view.settle()
                    _say_down(messages, DataDir.at(data_dir))
                    raise typer.Exit(ExitCode.INTERRUPTED) from None
                view.settle()
                _say_up(messages, output, options.data_dir, not_ready)
                raise typer.Exit(ExitCode.FAILED if not_ready else ExitCode.OK)
            supervisor = Supervisor(options, view)

            def say_up() -> None:
                view.settle()
                _say_up(messages, output, options.data_dir, supervisor.not_ready())
                messages.print("Press Ctrl-C to stop.")

            healthy = run_until_stopped(supervisor, say_up)
        _say_down(messages, supervisor.data_dir)
    raise typer.Exit(ExitCode.OK if healthy else ExitCode.FAILED)


def down(data_dir: DataDirOption = DEFAULT_DIR, output: OutputOption = DEFAULT_OUTPUT) -> None:
    """Stop the stack of a data directory; the data stays."""
    messages = message_console()
    with _errors(output):
        place = DataDir.at(data_dir)
        shut_down(place, messages.print)
        agents = _say_down(messages, place)
        if output is OutputFormat.JSON:
            document = {"data_dir": str(place.root), "running": False, "agents": agents}
            typer.echo(json_line(document))


def status(data_dir: DataDirOption = DEFAULT_DIR, output: OutputOption = DEFAULT_OUTPUT) -> None:
    """Show each process of the stack: state, health, pid, uptime, exit code and address.

    Exits with 0 when everything is ready, 1 when something is not, 3 when no stack runs.
    """
    messages = message_console()
    with _errors(output):
        place = DataDir.at(data_dir)
        view = inspect(place)
        if view is None:
            raise NotRunning.on(place.root)
        if output is OutputFormat.JSON:
            typer.echo(json_line(stack_json(view)))
        else:
            draw(stack_table(view))
        if not view.running:
            _say_not_running(messages, place, view)
            raise typer.Exit(ExitCode.NOT_RUNNING)
    raise typer.Exit(ExitCode.OK if view.is_good else ExitCode.FAILED)


def keys(data_dir: DataDirOption = DEFAULT_DIR, output: OutputOption = DEFAULT_OUTPUT) -> None:
    """Make the secrets that docker-compose.yml mounts, without starting anything."""
    with _errors(output):
        place = DataDir.at(data_dir)
        place.prepare()
        make_secrets(place)
        if output is OutputFormat.JSON:
            typer.echo(json_line({"keys": str(place.keys)}))
        else:
            typer.echo(place.keys)


@contextmanager
def _errors(output: OutputFormat) -> Iterator[None]:
    """Turn an error of the stack into its written form and an exit code."""
    try:
        yield
    except StackError as error:
        # A person has seen the details as they happened; a script has this alone.
        message = str(error) if output is OutputFormat.JSON else error.message
        report(Failure(error.reason, message, error.exit_code, hint=error.hint), output)


def _scale(text: str) -> tuple[str, int]:
    service, separator, count = text.partition("=")
    if not separator or not (count.isascii() and count.isdigit()):
        raise ComposeInvalid(f"--scale {text} must be SERVICE=N")
    return service, int(count)


def _say_up(
    messages: Console, output: OutputFormat, data_dir: Path, not_ready: Sequence[ProcessStatus]
) -> None:
    place = DataDir.at(data_dir)
    record = read_record(place)
    if output is OutputFormat.JSON:
        document = {
            "reveille": own_version(),
            "data_dir": str(place.root),
            "services": read_endpoints(place),
            "hooks_url": record.hooks_url if record else "",
            "not_ready": [status.name for status in not_ready],
        }
        typer.echo(json_line(document))
    else:
        missing = ", ".join(status.name for status in not_ready)
        state = f"is up without {missing}" if missing else "is up"
        messages.print(f"Reveille {state} on {place.root}")
        if record is not None:
            draw(endpoints_table(record))
    for status in not_ready:
        messages.print(f"Not ready: {status.name} ({status.state}); its log is {status.log}")


def _say_down(messages: Console, place: DataDir) -> int:
    """Say that the stack is down, and what goes on without it; return the number of agents."""
    messages.print(f"The stack on {place.root} is down.")
    agents = count_agents(place)
    if agents:
        messages.print(agents_text(agents))
    return agents


def _say_not_running(messages: Console, place: DataDir, view: StackView) -> None:
    if view.died:
        left = f", leaving {view.leftovers} processes behind" if view.leftovers else ""
        messages.print(
            f"The supervisor (pid {view.record.supervisor.pid}) died without stopping the stack"
            f"{left}. `reveille up` starts it again, `reveille down` tidies up."
        )
    else:
        messages.print(f"No stack runs on {place.root}.")
    if view.agents:
        messages.print(agents_text(view.agents))
