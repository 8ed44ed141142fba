"""`reveille runs`: what triggers produced."""

from __future__ import annotations

from time import monotonic
from typing import Annotated

import typer

from reveille.autopilot.v1 import run_pb2
from reveille_cli.apis import AUTOPILOTS
from reveille_cli.build import session
from reveille_cli.connection import TIMEOUT
from reveille_cli.declare import Noun, Verb
from reveille_cli.exits import ExitCode
from reveille_cli.following import follow
from reveille_cli.jsonform import plain
from reveille_cli.names import AUTOPILOT, WORKSPACE_VARIABLE, find_id, find_workspace
from reveille_cli.nouns.shared import WORKSPACE, in_states, only_of, the
from reveille_cli.options import DEFAULT_DIR, DEFAULT_OUTPUT, DataDirOption, OutputOption
from reveille_cli.times import duration

_ID = the("run_id", "The run.")
# What the service accepts at once.
_LONGEST_WAIT = 60.0
ENDED = frozenset(
    {
        run_pb2.RUN_STATE_COMPLETED,
        run_pb2.RUN_STATE_FAILED,
        run_pb2.RUN_STATE_SKIPPED,
        run_pb2.RUN_STATE_CANCELLED,
    }
)


def wait(
    run_id: Annotated[str, typer.Argument(help="The run.")],
    timeout: Annotated[str, typer.Option(help="At most this long, such as 90s or 10m.")] = "5m",
    data_dir: DataDirOption = DEFAULT_DIR,
    output: OutputOption = DEFAULT_OUTPUT,
) -> None:
    """Wait for a run's outcome and show it.

    Exits with 0 when it completed, 1 when it failed, was skipped or cancelled, 6 when the time
    ran out before it had an outcome.
    """
    with session(data_dir, output) as (client, printer):
        end = monotonic() + duration(timeout, "timeout").total_seconds()
        while True:
            left = min(_LONGEST_WAIT, max(0.0, end - monotonic()))
            request = AUTOPILOTS.request("WaitRun", run_id=run_id)
            request.timeout.FromMilliseconds(int(left * 1000))
            run = client.call(AUTOPILOTS, "WaitRun", request, timeout=left + TIMEOUT).run
            if run.state in ENDED or monotonic() >= end:
                break
        printer.one(run)
        if run.state not in ENDED:
            printer.note(f"It has no outcome after {timeout}.")
            raise typer.Exit(ExitCode.UNAVAILABLE)
        if run.state != run_pb2.RUN_STATE_COMPLETED:
            raise typer.Exit(ExitCode.FAILED)


def watch(
    workspace: Annotated[
        str | None,
        typer.Option(
            "--workspace",
            "-w",
            envvar=WORKSPACE_VARIABLE,
            help="The workspace, by id or name; the only one there is when left out.",
        ),
    ] = None,
    autopilot: Annotated[
        str | None, typer.Option(help="Only of this autopilot, by id or title.")
    ] = None,
    trigger: Annotated[str | None, typer.Option(help="Only of this trigger.")] = None,
    cursor: Annotated[str | None, typer.Option(help="Go on after an earlier watch.")] = None,
    data_dir: DataDirOption = DEFAULT_DIR,
    output: OutputOption = DEFAULT_OUTPUT,
) -> None:
    """Show runs as they change, until Ctrl-C: first those without an outcome.

    In JSON each change is a document on a line of its own, with the cursor to go on after it.
    """
    with session(data_dir, output) as (client, printer):
        workspace_id = find_workspace(client, workspace)
        request = AUTOPILOTS.request(
            "WatchRuns",
            workspace_id=workspace_id,
            autopilot_id=find_id(client, AUTOPILOT, autopilot, workspace_id, "autopilot")
            if autopilot
            else "",
            trigger_id=trigger or "",
            cursor=cursor or "",
        )
        for change in follow(client, AUTOPILOTS, "WatchRuns", request):
            if printer.as_json:
                printer.document(plain(change))
            elif change.HasField("run"):
                run = plain(change.run)
                words = (run["run_id"], run["state"], run["reason"] or "", run["title"])
                printer.text("  ".join(word for word in words if word))


NOUN = Noun(
    name="runs",
    help="Runs: what triggers produced.",
    api=AUTOPILOTS,
    verbs=(
        Verb(
            "list",
            "List runs, newest first.",
            "ListRuns",
            (
                WORKSPACE,
                only_of("autopilot_id", "--autopilot", "autopilot", AUTOPILOT),
                only_of("trigger_id", "--trigger", "trigger"),
                in_states("states"),
            ),
            shows="runs",
        ),
        Verb("get", "Show a run.", "GetRun", (_ID,), shows="run"),
        Verb(
            "cancel",
            "Ask for a run to be cancelled; one that has its outcome keeps it.",
            "CancelRun",
            (_ID,),
            shows="run",
        ),
    ),
    actions=(("wait", wait), ("watch", watch)),
)
