"""`reveille why`: why something did or did not run, in the words of every service that knows."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer
from rich.padding import Padding
from rich.text import Text

from reveille_cli.build import session
from reveille_cli.connection import Client
from reveille_cli.exits import ExitCode
from reveille_cli.failures import Failure
from reveille_cli.findings import Explanation, Found, explain
from reveille_cli.names import find_issue, is_identifier
from reveille_cli.options import DEFAULT_DIR, DEFAULT_OUTPUT, DataDirOption, OutputOption
from reveille_cli.printer import Printer, state_text
from reveille_cli.terminal import LINES, visible

# As many runs of a trigger or an autopilot are told; there may be more.
RECENT_RUNS = 5
_RUNS_OF = {"trigger": "--trigger", "autopilot": "--autopilot"}
_OCCURRENCE = re.compile(r"schedule:(?P<trigger>[0-9a-f-]{36}):")


def why(
    some_id: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="A trigger, autopilot, run, delivery, execution, wakeup, agent run, issue (also by"
            " its identifier), agent, squad or occurrence key.",
        ),
    ],
    data_dir: DataDirOption = DEFAULT_DIR,
    output: OutputOption = DEFAULT_OUTPUT,
) -> None:
    """Tell why something did or did not run: newest first, with the rows each answer rests on.

    Asks all four services, and follows what they answer to what it leads to. Where a command would
    change the outcome, it is shown.
    """
    with session(data_dir, output) as (client, printer):
        found = explain(client, _id_of(client, some_id))
        if not found.findings:
            raise _nothing(found)
        if printer.as_json:
            printer.document(explanation_json(found))
            return
        for each in found.findings:
            show_finding(each, printer)
        _say_limits(found, printer)


def _id_of(client: Client, asked: str) -> str:
    """Return the id of the issue whose identifier this is; any other text as it is."""
    if not is_identifier(asked):
        return asked
    try:
        return find_issue(client, asked)
    except Failure as failure:
        if failure.exit_code is ExitCode.NOT_FOUND:
            return asked
        raise


def explanation_json(found: Explanation) -> dict[str, Any]:
    """Return an explanation as JSON."""
    return {
        "id": found.asked,
        "findings": [{"service": each.service, **each.values} for each in found.findings],
        "not_asked": [
            {"service": service, "reason": failure.reason, "message": failure.message}
            for service, failure in found.silent.items()
        ],
        "truncated": found.cut,
    }


def show_finding(found: Found, printer: Printer) -> None:
    """Print one finding."""
    values = found.values
    head = Text(f"{values['time'] or ''}  ").append(visible(values["subject"]), style="bold")
    head.append(f" {visible(values['subject_id'])}  ").append(state_text(values["state"]))
    if values["reason"]:
        head.append(visible(f" ({values['reason']})"))
    printer.draw(head)
    printer.draw(Padding(Text(visible(values["text"], LINES)), (0, 0, 0, 4)))
    rows = ", ".join(f"{row['table']} {row['id']}" for row in values["rows"])
    printer.draw(Padding(Text(visible(f"rows: {rows}"), style="dim"), (0, 0, 0, 4)))
    if values["command"]:
        printer.draw(Padding(Text(visible(f"next: {values['command']}")), (0, 0, 0, 4)))


def _say_limits(found: Explanation, printer: Printer) -> None:
    for service, failure in found.silent.items():
        printer.note(f"{service} could not be asked: {failure.message}")
    flag = _RUNS_OF.get(found.subject)
    if flag and sum(each.values["subject"] == "run" for each in found.findings) >= RECENT_RUNS:
        printer.note(
            f"Of its runs the newest are told: `reveille runs list {flag} {found.asked}"
            " --state failed` finds others."
        )
    if found.cut:
        printer.note("There is more that this leads to; ask about one of the ids above.")


def _nothing(found: Explanation) -> Failure:
    if found.silent:
        who = ", ".join(found.silent)
        first = next(iter(found.silent.values()))
        return Failure(
            first.reason,
            f"nothing is known of {found.asked}, but {who} could not be asked: {first.message}",
            first.exit_code,
            hint=first.hint,
        )
    hint = ""
    if planned := _OCCURRENCE.match(found.asked):
        hint = (
            "it was never planned, or is not kept any more;"
            f" `reveille why {planned['trigger']}` tells of its schedule"
        )
    return Failure(
        "not_found",
        f"no service knows {found.asked}, or none that you may see",
        ExitCode.NOT_FOUND,
        hint=hint,
    )
