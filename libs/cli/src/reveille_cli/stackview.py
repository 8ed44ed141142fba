"""How the local stack looks on a terminal: progress as it starts, and a table of its processes."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from reveille_cli.stack.background import LogListener
from reveille_cli.stack.inspection import DatabaseView, ProcessView, StackView
from reveille_cli.stack.process import ProcessState, ProcessStatus
from reveille_cli.stack.record import own_version, process_json
from reveille_cli.stack.supervisor import Listener
from reveille_cli.terminal import PlainConsole

_PIPE_WIDTH = 200
_STYLES: Mapping[ProcessState, str] = {
    ProcessState.WAITING: "dim",
    ProcessState.STARTING: "yellow",
    ProcessState.READY: "green",
    ProcessState.STOPPING: "yellow",
    ProcessState.STOPPED: "dim",
    ProcessState.DONE: "green",
    ProcessState.EXITED: "bold red",
}


class ProgressView(Listener):
    """Shows what a supervisor does: live on a terminal, as plain lines elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lines = LogListener(lambda line: console.print(Text(line), soft_wrap=True))
        self._statuses: dict[str, ProcessStatus] = {}
        self._lock = threading.Lock()
        self._live: Live | None = None

    def __enter__(self) -> ProgressView:
        if self._console.is_terminal:
            self._live = Live(
                get_renderable=self._table,
                console=self._console,
                refresh_per_second=8,
                transient=True,
            )
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.settle()

    def settle(self) -> None:
        """End the live part; what still happens is written as lines."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def note(self, text: str) -> None:
        """Show a step."""
        self._lines.note(text)

    def changed(self, status: ProcessStatus) -> None:
        """Show a state."""
        with self._lock:
            self._statuses[status.name] = status
        if self._live is None:
            self._lines.changed(status)

    def failed(self, status: ProcessStatus, tail: list[str]) -> None:
        """Show why a process ended."""
        self._lines.failed(status, tail)

    def _table(self) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        with self._lock:
            for status in self._statuses.values():
                table.add_row(
                    status.name,
                    Text(status.state, style=_STYLES[status.state]),
                    _addresses(status),
                )
        return table


def data_console() -> Console:
    """Return the console for stdout: as wide as the terminal, and wide enough in a pipe."""
    return PlainConsole() if sys.stdout.isatty() else PlainConsole(width=_PIPE_WIDTH)


def endpoints_table(statuses: Sequence[ProcessStatus]) -> RenderableType:
    """Return where the services listen."""
    table = Table.grid(padding=(0, 2))
    for status in statuses:
        if status.addresses:
            table.add_row(status.name, _addresses(status))
    return table


def stack_table(view: StackView) -> RenderableType:
    """Return a stack as a table, with the warnings under it."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("PROCESS", "STATE", "HEALTH", "PID", "UPTIME", "EXIT", "ADDRESS"):
        table.add_column(column)
    for process in view.processes:
        status = process.status
        table.add_row(
            status.name,
            Text(_state(process), style=_STYLES[status.state]),
            process.health or "",
            str(status.pid) if process.alive else "",
            _duration(process.uptime),
            "" if status.exit_code is None else str(status.exit_code),
            _addresses(status),
        )
    parts: list[RenderableType] = [table]
    if view.database is not None:
        parts.append(Text(_database_line(view.database)))
        parts.extend(Text(f"warning: {line}", style="yellow") for line in view.database.warnings)
    return Group(*parts)


def stack_json(view: StackView) -> dict[str, object]:
    """Return a stack as JSON."""
    return {
        "reveille": own_version(),
        "running": view.running,
        "ok": view.is_good,
        "phase": view.record.phase,
        "supervisor_pid": view.record.supervisor.pid if view.running else None,
        "compose_file": view.record.compose_file,
        "started_at": view.record.started_at,
        "leftovers": view.leftovers,
        "database": None
        if view.database is None
        else {
            "url": view.database.address.public_url,
            "problem": view.database.problem,
            "warnings": list(view.database.warnings),
        },
        "processes": [
            {
                **process_json(process.status),
                "pid": process.status.pid if process.alive else None,
                "health": process.health,
                "uptime": process.uptime,
            }
            for process in view.processes
        ],
    }


def _state(process: ProcessView) -> str:
    # Its supervisor may have been killed before it could write the end down.
    if process.status.pid is not None and not process.alive:
        return "gone"
    return process.status.state


def _addresses(status: ProcessStatus) -> str:
    return "  ".join(f"{kind} {address}" for kind, address in status.addresses.items())


def _database_line(view: DatabaseView) -> str:
    answer = f"does not answer: {view.problem}" if view.problem else "answers"
    return f"database {view.address.public_url} {answer}"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (rest, "s")]
    first = next((index for index, (count, _) in enumerate(parts) if count), len(parts) - 1)
    return " ".join(f"{count}{unit}" for count, unit in parts[first : first + 2])
