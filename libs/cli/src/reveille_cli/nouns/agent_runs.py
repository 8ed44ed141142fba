"""`reveille agent-runs`: the attempts agents make for wakeups, and their output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from threading import Event
from typing import Annotated, Any

import typer

from reveille.heartbeat.v1 import run_pb2
from reveille_cli.apis import AGENT_RUNS
from reveille_cli.build import session
from reveille_cli.connection import Client
from reveille_cli.declare import Noun, Verb
from reveille_cli.exits import ExitCode
from reveille_cli.failures import Failure
from reveille_cli.jsonform import plain
from reveille_cli.names import AGENT, ISSUE
from reveille_cli.nouns.shared import REQUEST_ID, WORKSPACE, in_states, only_of, the
from reveille_cli.options import DEFAULT_DIR, DEFAULT_OUTPUT, DataDirOption, OutputOption
from reveille_cli.patience import Patience
from reveille_cli.printer import Printer
from reveille_cli.terminal import pour

_PIECE = 1024 * 1024
POLL = 0.5
_OFFSETS = {
    run_pb2.LOG_STREAM_STDOUT: "stdout_offset",
    run_pb2.LOG_STREAM_STDERR: "stderr_offset",
}


class Stream(StrEnum):
    """Which output of an agent."""

    STDOUT = "stdout"
    STDERR = "stderr"

    @property
    def value_on_wire(self) -> run_pb2.LogStream.ValueType:
        """The contract's value."""
        return run_pb2.LogStream.Value(f"LOG_STREAM_{self.name}")


def read_log(
    client: Client, run_id: str, stream: Stream, *, follow: bool = False
) -> Iterator[bytes]:
    """Yield the output there is; when following, go on until the attempt has ended."""
    offset, patience = 0, Patience()
    while True:
        request = AGENT_RUNS.request(
            "ReadRunLog", run_id=run_id, stream=stream.value_on_wire, offset=offset, limit=_PIECE
        )
        try:
            answer = client.call(AGENT_RUNS, "ReadRunLog", request)
        except Failure as failure:
            if not follow:
                raise
            patience.bear(failure)
            continue
        patience.answered()
        if answer.chunk:
            yield answer.chunk
        offset = answer.next_offset
        if answer.complete or not (answer.chunk or follow):
            return
        if not answer.chunk:
            Event().wait(POLL)


def watch(
    run_id: Annotated[str, typer.Argument(help="The attempt.")],
    without_log: Annotated[
        bool, typer.Option("--without-log", help="Leave out what the agent prints.")
    ] = False,
    after_event: Annotated[int, typer.Option(help="Only events after this number.")] = 0,
    stdout_offset: Annotated[int, typer.Option(help="stdout from this byte on.")] = 0,
    stderr_offset: Annotated[int, typer.Option(help="stderr from this byte on.")] = 0,
    data_dir: DataDirOption = DEFAULT_DIR,
    output: OutputOption = DEFAULT_OUTPUT,
) -> None:
    """Follow an attempt to its end: how it moves, what happens in it, what it prints.

    A stream that breaks is taken up where it was; heartbeat may be away for a minute. In JSON each
    piece of news is a document on a line of its own. Exits with 0 when the attempt succeeded, 1
    when it did not.
    """
    with session(data_dir, output) as (client, printer):
        request = AGENT_RUNS.request(
            "WatchRun",
            run_id=run_id,
            without_log=without_log,
            after_event=after_event,
            stdout_offset=stdout_offset,
            stderr_offset=stderr_offset,
        )
        run = follow_run(client, request, _Shown(printer))
        if run.state != run_pb2.RUN_STATE_SUCCEEDED:
            raise typer.Exit(ExitCode.FAILED)


def follow_run(client: Client, request: Any, show: Callable[[Any], None]) -> Any:
    """Show an attempt's news until its end, going on where a stream broke; give the attempt."""
    run = run_pb2.HeartbeatRun()
    patience = Patience()
    while True:
        try:
            for news in client.stream(AGENT_RUNS, "WatchRun", request, timeout=None):
                patience.answered()
                show(news)
                match news.WhichOneof("update"):
                    case "run":
                        run = news.run
                    case "event":
                        request.after_event = news.event.seq
                    case "log":
                        end = news.log.offset + len(news.log.data)
                        setattr(request, _OFFSETS[news.log.stream], end)
                if news.end:
                    return run
        except Failure as failure:
            patience.bear(failure)
        else:
            Event().wait(POLL)


class _Shown:
    """Prints news, each on lines of its own; output line by line, by which stream it came."""

    def __init__(self, printer: Printer) -> None:
        self._printer = printer
        self._state = ""
        self._open: dict[str, bytes] = {}

    def __call__(self, news: run_pb2.WatchRunResponse) -> None:
        """Print one piece of news."""
        if self._printer.as_json:
            self._printer.document(plain(news))
            return
        match news.WhichOneof("update"):
            case "run":
                self._moved(plain(news.run))
            case "event":
                event = plain(news.event)
                self._say(event["create_time"], event["type"], event["message"])
            case "log":
                self._said(plain(news.log)["stream"], news.log.data)
        if news.end:
            for stream in self._open:
                self._said(stream, b"\n" if self._open[stream] else b"")

    def _moved(self, run: Mapping[str, Any]) -> None:
        words = (run["state"], run["reason"] or "", run["progress"])
        if (now := "  ".join(word for word in words if word)) != self._state:
            self._state = now
            when = run["finish_time"] or run["start_time"] or run["create_time"]
            self._say(when, now)

    def _said(self, stream: str, data: bytes) -> None:
        *lines, rest = (self._open.get(stream, b"") + data).split(b"\n")
        for line in lines:
            self._printer.text(f"{stream} | {line.decode(errors='replace')}")
        self._open[stream] = rest

    def _say(self, when: str | None, *words: str) -> None:
        self._printer.text("  ".join(word for word in (when or "", *words) if word))


def logs(
    run_id: Annotated[str, typer.Argument(help="The attempt.")],
    stream: Annotated[Stream, typer.Option(help="Which output.")] = Stream.STDOUT,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the attempt has ended.")
    ] = False,
    data_dir: DataDirOption = DEFAULT_DIR,
    output: OutputOption = DEFAULT_OUTPUT,
) -> None:
    """Print an attempt's output, into a pipe byte for byte; in JSON as one text.

    On a terminal, control characters are shown and not sent.
    """
    with session(data_dir, output) as (client, printer):
        pieces = read_log(client, run_id, stream, follow=follow)
        if printer.as_json:
            text = b"".join(pieces).decode(errors="replace")
            printer.document({"run_id": run_id, "stream": stream, "text": text})
            return
        pour(pieces)


def _judge(answer: run_pb2.RetryRunResponse, printer: Printer) -> None:
    """Tell a repeat that a rule forbids from one that is made."""
    if answer.outcome == run_pb2.RETRY_OUTCOME_SUPPRESSED:
        reason = plain(answer)["reason"] or "a rule forbids it"
        printer.note(f"not repeated: {answer.message} ({reason})" if answer.message else reason)
        raise typer.Exit(ExitCode.CONFLICT)


_ID = the("run_id", "The attempt.")
NOUN = Noun(
    name="agent-runs",
    help="Agent runs: the attempts agents make for wakeups.",
    api=AGENT_RUNS,
    verbs=(
        Verb(
            "list",
            "List attempts, newest first.",
            "ListRuns",
            (
                WORKSPACE,
                only_of("agent_id", "--agent", "agent", AGENT),
                only_of("wakeup_id", "--wakeup", "wakeup"),
                only_of("issue_id", "--issue", "issue", ISSUE),
                in_states("states"),
            ),
            shows="runs",
        ),
        Verb("get", "Show an attempt.", "GetRun", (_ID,), shows="run"),
        Verb(
            "cancel",
            "Cancel an attempt and its wakeup; one that has ended stays as it is.",
            "CancelRun",
            (_ID,),
            shows="run",
        ),
        Verb(
            "retry",
            "Start a waiting repeat now, or ask for the work of a failed attempt once more.",
            "RetryRun",
            (_ID, REQUEST_ID),
            main="run",
            judge=_judge,
        ),
    ),
    actions=(("logs", logs), ("watch", watch)),
)
