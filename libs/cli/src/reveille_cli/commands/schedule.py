"""`reveille schedule`: what a cron expression means, by the evaluator that planning uses.

Needs no stack, and imports nothing of one.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated

import typer

from reveille_cli.exits import ExitCode
from reveille_cli.failures import Failure, Violation, refused, reporting
from reveille_cli.options import DEFAULT_OUTPUT, OutputFormat, OutputOption
from reveille_cli.times import instant, rfc3339
from reveille_cron import CronError, Schedule, parse, zone
from reveille_cron.schedule import HORIZON_YEARS, LAST_YEAR

MAX_COUNT = 100
UTC_NAME = "UTC"
app = typer.Typer(
    help="Schedules: when cron expressions fire.", no_args_is_help=True, add_completion=False
)


@app.callback()
def _root() -> None:
    """Keep `preview` a verb, although it is the only one."""


# An expression may begin with a dash, and then deserves to be told what is wrong with it.
@app.command(context_settings={"ignore_unknown_options": True})
def preview(
    expression: Annotated[str, typer.Argument(help="Five cron fields, or a macro.")],
    tz: Annotated[str, typer.Option(help="The IANA zone the fields are read in.")] = UTC_NAME,
    count: Annotated[int, typer.Option(help=f"How many, 1 to {MAX_COUNT}.")] = 5,
    after: Annotated[
        str | None,
        typer.Option(help="Strictly after this instant, such as 2026-03-08T00:00:00Z; else now."),
    ] = None,
    output: OutputOption = DEFAULT_OUTPUT,
) -> None:
    """Tell when an expression fires next."""
    with reporting(output):
        if not 1 <= count <= MAX_COUNT:
            raise refused("count", f"must be 1 to {MAX_COUNT}")
        start = datetime.now(UTC) if after is None else instant(after, "after")
        zone_name = tz or UTC_NAME
        fired = _upcoming(expression, zone_name, start, count)
    if output is OutputFormat.JSON:
        instants = [rfc3339(each) for each in fired]
        document = {"expression": expression, "time_zone": zone_name, "next": instants}
        typer.echo(json.dumps(document, ensure_ascii=False))
        return
    place = zone(zone_name)
    for each in fired:
        typer.echo(f"{rfc3339(each)}  {each.astimezone(place):%a %Y-%m-%d %H:%M:%S %Z}")


def _upcoming(expression: str, tz: str, start: datetime, count: int) -> list[datetime]:
    try:
        schedule = Schedule(parse(expression), zone(tz))
        fired = schedule.upcoming(start, count)
        # Near the end of time nothing follows, whatever the expression says.
        if not fired and start.year > LAST_YEAR - HORIZON_YEARS:
            raise refused("after", f"is out of range: nothing fires after the year {LAST_YEAR}")
        return fired or [schedule.require_firing(start)]
    except CronError as error:
        reason = error.reason.value
        raise Failure(
            reason,
            f"{error.field}: {error.message}",
            ExitCode.REFUSED,
            hint=error.hint,
            violations=(Violation(error.field, error.message, reason),),
        ) from error
