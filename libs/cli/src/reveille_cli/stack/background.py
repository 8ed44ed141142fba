"""A supervisor without a terminal: what `reveille up --detach` leaves running.

The parent passes its options as JSON on stdin and reads events, one JSON object a line, from stdout
until the stack is up. From its first event on, which it has only once the data directory is its
own, this process writes to logs/supervisor.log; before that, to a file that only its parent has.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from reveille_cli.exits import ExitCode
from reveille_cli.stack.datadir import DataDir
from reveille_cli.stack.errors import StackError, StartFailed
from reveille_cli.stack.listener import Listener, LogListener
from reveille_cli.stack.options import StackOptions
from reveille_cli.stack.process import ProcessStatus
from reveille_cli.stack.record import process_json, read_process
from reveille_cli.stack.supervisor import Supervisor

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LAST_WORDS = 2_000


class RemoteError(StackError):
    """An error of the background process, told by the one in the foreground."""

    def __init__(self, event: Mapping[str, Any]) -> None:
        super().__init__(event["message"], hint=event["hint"], details=event["details"])
        self.reason = event["reason"]
        self.exit_code = ExitCode(event["exit_code"])


class _EventListener(Listener):
    """Sends what happens to the waiting parent, and writes it to the log."""

    def __init__(self, events: IO[str], data_dir: DataDir) -> None:
        self._events: IO[str] | None = events
        self._data_dir = data_dir
        self._log = LogListener(self._write)
        self._owns_log = False

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

    def waiting(self, status: ProcessStatus, reason: str, seconds: int) -> None:
        self._log.waiting(status, reason, seconds)
        self.send(kind="waiting", status=process_json(status), reason=reason, seconds=seconds)

    def failed(self, status: ProcessStatus, tail: list[str]) -> None:
        self._log.failed(status, tail)
        self.send(kind="failed", status=process_json(status), tail=tail)

    def fail(self, error: StackError) -> None:
        """Tell the parent why the stack is not up; the log too, if it is ours."""
        if self._owns_log:
            self._write(f"failed: {error.message}")
        self.send(
            kind="error",
            reason=error.reason,
            message=error.message,
            hint=error.hint,
            details=error.details,
            exit_code=error.exit_code,
        )

    def _write(self, line: str) -> None:
        if not self._owns_log:
            # The log of a stack that already runs here is none of our business; now none does.
            self._owns_log = True
            log = self._data_dir.begin_log("supervisor")
            descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            os.dup2(descriptor, sys.stderr.fileno())
            os.close(descriptor)
        # On a full disk the line is lost; who watches a process goes on.
        with suppress(OSError):
            print(line, file=sys.stderr, flush=True)  # noqa: T201


def start_in_background(options: StackOptions, listener: Listener) -> list[ProcessStatus]:
    """Start a supervisor that outlives us; return the processes that are not ready.

    An interrupt while it starts stops it again.
    """
    data_dir = DataDir.at(options.data_dir)
    data_dir.prepare()
    with tempfile.TemporaryFile() as early_words:
        child = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=early_words,
            cwd=data_dir.root,
            start_new_session=True,
            text=True,
        )
        try:
            with _pipe(child.stdin) as stdin:
                json.dump(options.as_json(), stdin)
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
        code = child.wait()
        if code == 0:
            raise StartFailed("the stack was stopped before it was up")
        raise StartFailed(
            f"the supervisor ended with code {code} before the stack was up"
            + _said(early_words, data_dir.log("supervisor")),
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


def _said(early_words: IO[bytes], log: Path) -> str:
    """Return what a supervisor wrote before it had a log; later words are in there."""
    early_words.seek(0)
    words = early_words.read().decode("utf-8", errors="replace").strip()
    return f":\n{words[-_LAST_WORDS:]}" if words else f"; {log} may say why"


def _tell(event: Mapping[str, Any], listener: Listener) -> None:
    match event["kind"]:
        case "note":
            listener.note(event["text"])
        case "changed":
            listener.changed(read_process(event["status"]))
        case "waiting":
            listener.waiting(read_process(event["status"]), event["reason"], event["seconds"])
        case "failed":
            listener.failed(read_process(event["status"]), event["tail"])
        case "error":
            raise RemoteError(event)
        case other:
            raise AssertionError(f"unknown event {other}")


def main() -> int:
    """Run the supervisor that stdin describes."""
    options = StackOptions.read(json.load(sys.stdin))
    listener = _EventListener(sys.stdout, DataDir.at(options.data_dir))
    supervisor = Supervisor(options, listener)

    def up() -> None:
        not_ready = [process_json(status) for status in supervisor.not_ready()]
        listener.send(kind="up", not_ready=not_ready)
        listener.hang_up()

    try:
        healthy = run_until_stopped(supervisor, up)
    except StackError as error:
        listener.fail(error)
        return 1
    return 0 if healthy else 1


if __name__ == "__main__":
    sys.exit(main())
