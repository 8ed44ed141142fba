"""`reveille wakeups`: why agents were woken, and waking them by hand."""

from __future__ import annotations

from typing import Annotated

import typer

from reveille.heartbeat.v1 import wakeup_pb2
from reveille_cli.apis import WAKEUPS
from reveille_cli.build import session
from reveille_cli.declare import Noun, Param, Verb
from reveille_cli.exits import ExitCode
from reveille_cli.failures import refused
from reveille_cli.jsonform import plain
from reveille_cli.names import AGENT, SQUAD, WORKSPACE_VARIABLE, find_id, find_workspace
from reveille_cli.nouns.shared import WORKSPACE, in_states, only_of, the
from reveille_cli.options import DEFAULT_DIR, DEFAULT_OUTPUT, DataDirOption, OutputOption
from reveille_cli.printer import Printer
from reveille_cli.values import read_file


def create(
    title: Annotated[str, typer.Argument(help="What is asked, in one line.")],
    agent: Annotated[str | None, typer.Option(help="The agent, by id or name.")] = None,
    squad: Annotated[str | None, typer.Option(help="The squad to wake, by id or name.")] = None,
    workspace: Annotated[
        str | None,
        typer.Option(
            "--workspace",
            "-w",
            envvar=WORKSPACE_VARIABLE,
            help="The workspace, by id or name; the only one there is when left out.",
        ),
    ] = None,
    prompt: Annotated[str | None, typer.Option(help="What is asked, in full.")] = None,
    prompt_file: Annotated[
        str | None, typer.Option(help="The same from a file, or from stdin for -.")
    ] = None,
    issue: Annotated[
        str | None, typer.Option(help="The issue it is about, by id or identifier.")
    ] = None,
    task_key: Annotated[
        str | None, typer.Option(help="What keeps wakes about no issue together.")
    ] = None,
    fresh_session: Annotated[
        bool, typer.Option("--fresh-session", help="Begin anew instead of going on.")
    ] = False,
    reason: Annotated[str, typer.Option(help="Why, as a code.")] = "on_demand",
    idempotency_key: Annotated[
        str | None,
        typer.Option(help="Makes the call repeatable: the same key again has no second effect."),
    ] = None,
    data_dir: DataDirOption = DEFAULT_DIR,
    output: OutputOption = DEFAULT_OUTPUT,
) -> None:
    """Wake an agent by hand; you answer for what it does.

    Exits with 0 when the wake was taken, and with 5 when a rule refused it: stderr has the reason.
    """
    with session(data_dir, output) as (client, printer):
        if (agent is None) == (squad is None):
            raise refused("agent", "give either --agent or --squad")
        if prompt is not None and prompt_file is not None:
            raise refused("prompt", "give --prompt or --prompt-file, not both")
        if prompt_file is not None:
            prompt = _text(read_file(prompt_file, "prompt"))
        wish = wakeup_pb2.Wakeup(
            workspace_id=find_workspace(client, workspace),
            agent_id=find_id(client, AGENT, agent, workspace, "agent") if agent else "",
            squad_id=find_id(client, SQUAD, squad, workspace, "squad") if squad else "",
            source=wakeup_pb2.WAKEUP_SOURCE_ON_DEMAND,
            reason=reason,
            title=title,
            prompt=prompt or "",
            issue_id=issue or "",
            task_key=task_key or "",
            fresh_session=fresh_session,
            idempotency_key=idempotency_key or "",
        )
        request = WAKEUPS.request("EnqueueWakeups", wakeups=[wish])
        (result,) = client.call(WAKEUPS, "EnqueueWakeups", request).results
        printer.one(result)
        _judge(result, printer)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise refused("prompt", f"this is no UTF-8: {error}") from error


def _judge(result: wakeup_pb2.WakeupResult, printer: Printer) -> None:
    """Tell a wake that a rule refused from one that was taken."""
    if result.state == wakeup_pb2.WAKEUP_STATE_SKIPPED:
        printer.note(f"skipped: {result.message} ({plain(result)['reason']})")
        raise typer.Exit(ExitCode.CONFLICT)


_ID = the("wakeup_id", "The wakeup.")
NOUN = Noun(
    name="wakeups",
    help="Wakeups: why somebody wanted an agent awake, and what came of it.",
    api=WAKEUPS,
    verbs=(
        Verb(
            "list",
            "List wakeups, newest first, with the reasons of those that were skipped.",
            "ListWakeups",
            (
                WORKSPACE,
                only_of("agent_id", "--agent", "agent", AGENT),
                # The service knows issues by their identifiers, too.
                only_of("issue_id", "--issue", "issue"),
                in_states("states"),
                Param("reasons", "Only for this reason; may be repeated.", flag="--reason"),
            ),
            shows="wakeups",
        ),
        Verb("get", "Show a wakeup.", "GetWakeup", (_ID,), shows="wakeup"),
        Verb(
            "cancel",
            "Cancel a wakeup and the attempt made for it; one that has ended stays as it is.",
            "CancelWakeup",
            (_ID,),
            shows="wakeup",
        ),
    ),
    actions=(("create", create),),
)
