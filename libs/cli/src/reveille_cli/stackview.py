"""How the local stack looks on a terminal: progress as it starts, and a table of its processes."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from reveille_cli.stack.inspection import DatabaseView, ProcessView, StackView
from reveille_cli.stack.listener import Listener, LogListener, waiting_text
from reveille_cli.stack.process import ProcessState, ProcessStatus, signal_name
from reveille_cli.stack.record import Record, own_version, process_json
from reveille_cli.terminal import PlainConsole
from reveille_cli.times import rfc3339

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
        self._waits: dict[str, str] = {}
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
            self._waits.pop(status.name, None)
        if self._live is None:
            self._lines.changed(status)

    def waiting(self, status: ProcessStatus, reason: str, seconds: int) -> None:
        """Show what a process waits for."""
        with self._lock:
            self._waits[status.name] = waiting_text(status.name, reason, seconds)
        if self._live is None:
            self._lines.waiting(status, reason, seconds)

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
            return Group(table, *(Text(line, style="yellow") for line in self._waits.values()))


def message_console() -> Console:
    """Return the console for stderr."""
    return PlainConsole(stderr=True, soft_wrap=True)


def endpoints_table(record: Record) -> RenderableType:
    """Return where the services listen, and where webhooks go."""
    table = Table.grid(padding=(0, 2))
    for status in record.processes:
        if status.addresses:
            table.add_row(status.name, _addresses(status))
    if record.hooks_url:
        table.add_row("webhooks", f"{record.hooks_url}TOKEN")
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
            _exit(status.exit_code),
            _addresses(status),
        )
    parts: list[RenderableType] = [table]
    if view.running and view.record.hooks_url:
        parts.append(Text(f"webhooks {view.record.hooks_url}TOKEN"))
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
        "started_at": _moment(view.record.started_at),
        "died": view.died,
        "leftovers": view.leftovers,
        "agents": view.agents,
        "hooks_url": view.record.hooks_url if view.running else "",
        "database": None
        if view.database is None
        else {
            "url": view.database.address.public_url,
            "problem": view.database.problem,
            "warnings": list(view.database.warnings),
        },
        "processes": [_process_json(process) for process in view.processes],
    }


def agents_text(count: int) -> str:
    """Say that agents go on without their stack."""
    agents, it = (
        ("1 agent still runs", "it") if count == 1 else (f"{count} agents still run", "them")
    )
    return f"{agents}; the next `reveille up` takes {it} over."


def _process_json(process: ProcessView) -> dict[str, object]:
    status = process.status
    shown = process_json(status)
    # With its start time it tells whose a pid is; to a reader the pid says enough.
    del shown["identity"]
    return {
        **shown,
        "state": _state(process),
        "started_at": _moment(status.started_at),
        "pid": status.pid if process.alive else None,
        "health": process.health,
        "uptime": process.uptime,
    }


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else rfc3339(datetime.fromtimestamp(seconds, UTC))


def _exit(code: int | None) -> str:
    if code is None:
        return ""
    return str(code) if code >= 0 else f"killed ({signal_name(-code)})"


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
