"""A supervisor without a terminal: what `reveille up --detach` leaves running.

The parent passes its options as JSON on stdin and reads events, one JSON object a line, from stdout
until the stack is up. From then on this process writes to logs/supervisor.log until SIGTERM.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from reveille_cli.stack.datadir import DataDir
from reveille_cli.stack.errors import StackError, StartFailed
from reveille_cli.stack.process import ProcessStatus
from reveille_cli.stack.record import process_json, read_process
from reveille_cli.stack.supervisor import Listener, StackOptions, Supervisor

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class RemoteError(StackError):
    """An error of the background process, told by the one in the foreground."""

    def __init__(self, reason: str, message: str, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


class LogListener(Listener):
    """Writes what happens as lines of text."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def note(self, text: str) -> None:
        """Write a step."""
        self._write(text)

    def changed(self, status: ProcessStatus) -> None:
        """Write a state."""
        pid = f" (pid {status.pid})" if status.pid else ""
        self._write(f"{status.name}: {status.state}{pid}")

    def failed(self, status: ProcessStatus, tail: list[str]) -> None:
        """Write why a process ended."""
        self._write(f"{status.name} {status.exit_text()} and is not started again; its last lines:")
        for line in tail:
            self._write(f"  | {line}")


class _EventListener(Listener):
    """Sends what happens to the waiting parent; once it has gone, to the log."""

    def __init__(self, events: IO[str]) -> None:
        self._events: IO[str] | None = events
        self._log = LogListener(lambda line: print(line, file=sys.stderr, flush=True))  # noqa: T201

    def send(self, **event: object) -> None:
        """Send one event while there is somebody to read it."""
        if self._events is None:
            return
        try:
            self._events.write(json.dumps(event) + "\n")
            self._events.flush()
        except BrokenPipeError:
            self.hang_up()

    def hang_up(self) -> None:
        """Stop sending: the parent knows what it wanted to know."""
        self._events = None
        descriptor = os.open(os.devnull, os.O_WRONLY)
        os.dup2(descriptor, sys.stdout.fileno())
        os.close(descriptor)

    def note(self, text: str) -> None:
        self._log.note(text)
        self.send(kind="note", text=text)

    def changed(self, status: ProcessStatus) -> None:
        self._log.changed(status)
        self.send(kind="changed", status=process_json(status))

    def failed(self, status: ProcessStatus, tail: list[str]) -> None:
        self._log.failed(status, tail)
        self.send(kind="failed", status=process_json(status), tail=tail)


def start_in_background(options: StackOptions, listener: Listener) -> list[ProcessStatus]:
    """Start a supervisor that outlives us; return the processes that are not ready.

    An interrupt while it starts stops it again.
    """
    data_dir = DataDir.at(options.data_dir)
    data_dir.prepare()
    with data_dir.log("supervisor").open("ab") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=data_dir.root,
            start_new_session=True,
            text=True,
        )
    try:
        with _pipe(child.stdin) as stdin:
            json.dump(_as_json(options), stdin)
        with _pipe(child.stdout) as stdout:
            for line in stdout:
                event = json.loads(line)
                if event["kind"] == "up":
                    # It is on its own now; Python would complain about a child left running.
                    child.returncode = 0
                    return [read_process(entry) for entry in event["not_ready"]]
                _tell(event, listener)
    except KeyboardInterrupt:
        child.send_signal(signal.SIGTERM)
        child.wait()
        raise
    except RemoteError:
        child.wait()
        raise
    raise StartFailed(
        f"the supervisor ended with code {child.wait()} before the stack was up",
        hint=f"its log is {data_dir.log('supervisor')}",
    )


def run_until_stopped(supervisor: Supervisor, when_up: Callable[[], None]) -> bool:
    """Run a stack until a signal ends it; True when no process failed meanwhile."""

    def stop(number: int, frame: object) -> None:  # noqa: ARG001 (the interface)
        supervisor.request_stop()

    before = {number: signal.signal(number, stop) for number in _STOP_SIGNALS}
    try:
        supervisor.start()
        try:
            if not supervisor.stop_requested:
                when_up()
            supervisor.wait_for_stop()
        finally:
            supervisor.stop()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return not supervisor.any_failed()


def _pipe(stream: IO[str] | None) -> IO[str]:
    if stream is None:
        raise AssertionError("the pipes were asked for")
    return stream


def _tell(event: Mapping[str, Any], listener: Listener) -> None:
    match event["kind"]:
        case "note":
            listener.note(event["text"])
        case "changed":
            listener.changed(read_process(event["status"]))
        case "failed":
            listener.failed(read_process(event["status"]), event["tail"])
        case "error":
            raise RemoteError(event["reason"], event["message"], event["hint"])
        case other:
            raise AssertionError(f"unknown event {other}")


def _as_json(options: StackOptions) -> dict[str, object]:
    paths = {"compose_file": str(options.compose_file), "data_dir": str(options.data_dir)}
    return {**asdict(options), **paths}


def _options(document: Mapping[str, Any]) -> StackOptions:
    paths = {name: Path(document[name]) for name in ("compose_file", "data_dir")}
    return StackOptions(**{**document, **paths})


def main() -> int:
    """Run the supervisor that stdin describes."""
    listener = _EventListener(sys.stdout)
    supervisor = Supervisor(_options(json.load(sys.stdin)), listener)

    def up() -> None:
        not_ready = [process_json(status) for status in supervisor.not_ready()]
        listener.send(kind="up", not_ready=not_ready)
        listener.hang_up()

    try:
        healthy = run_until_stopped(supervisor, up)
    except StackError as error:
        listener.note(f"failed: {error.message}")
        listener.send(kind="error", reason=error.reason, message=error.message, hint=error.hint)
        return 1
    return 0 if healthy else 1


if __name__ == "__main__":
    sys.exit(main())
