"""`reveille agent-runs`: the attempts agents make for wakeups, and their output."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from threading import Event
from typing import Annotated

import typer

from reveille.heartbeat.v1 import run_pb2
from reveille_cli.apis import AGENT_RUNS
from reveille_cli.build import session
from reveille_cli.connection import Client
from reveille_cli.declare import Noun, Verb
from reveille_cli.names import AGENT
from reveille_cli.nouns.shared import WORKSPACE, in_states, only_of, the
from reveille_cli.options import DEFAULT_DIR, DEFAULT_OUTPUT, DataDirOption, OutputOption
from reveille_cli.terminal import pour

_PIECE = 1024 * 1024
POLL = 0.5


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
    offset = 0
    while True:
        request = AGENT_RUNS.request(
            "ReadRunLog", run_id=run_id, stream=stream.value_on_wire, offset=offset, limit=_PIECE
        )
        answer = client.call(AGENT_RUNS, "ReadRunLog", request)
        if answer.chunk:
            yield answer.chunk
        offset = answer.next_offset
        if answer.complete or not (answer.chunk or follow):
            return
        if not answer.chunk:
            Event().wait(POLL)


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
                in_states("states"),
            ),
            shows="runs",
        ),
        Verb("get", "Show an attempt.", "GetRun", (the("run_id", "The attempt."),), shows="run"),
    ),
    actions=(("logs", logs),),
)
