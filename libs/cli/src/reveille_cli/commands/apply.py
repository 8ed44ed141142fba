"""`reveille apply` and `reveille export`: a workspace as one declarative file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from reveille_cli.apis import WORKSPACES
from reveille_cli.apply.carry_out import CarryOut, Hook
from reveille_cli.apply.check import check
from reveille_cli.apply.document import Problems, load
from reveille_cli.apply.export import document_of
from reveille_cli.apply.plan import Action, Change, make_plan
from reveille_cli.apply.standing import Standing, read_hints, read_standing
from reveille_cli.apply.wanted import Wanted, read_wanted
from reveille_cli.build import session
from reveille_cli.connection import Client
from reveille_cli.exits import ExitCode
from reveille_cli.failures import Failure, refused
from reveille_cli.names import WORKSPACE_VARIABLE, find_workspace
from reveille_cli.nouns.triggers import CREDENTIAL_NOTE, UNSIGNED_NOTE
from reveille_cli.options import DEFAULT_DIR, DEFAULT_OUTPUT, DataDirOption, OutputOption
from reveille_cli.printer import Printer
from reveille_cli.values import STDIN, read_file

_SIGNS = {Action.CREATE: "+", Action.UPDATE: "~"}
_LONGEST = 60


def apply(
    file: Annotated[str, typer.Option("--file", "-f", help="The file, or - for stdin.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan, and change nothing.")
    ] = False,
    data_dir: DataDirOption = DEFAULT_DIR,
    output: OutputOption = DEFAULT_OUTPUT,
) -> None:
    """Make a workspace as a file says: members, agents, autopilots and their triggers.

    Shows what differs and makes it so; applying it again changes nothing. Nothing is ever deleted:
    what the file does not name is left as it is. Whatever is wrong with the file is told at once,
    with its line, before anything is done.
    """
    with session(data_dir, output) as (client, printer):
        problems = Problems(file, Path() if file == STDIN else Path(file).parent)
        try:
            text = read_file(file, "file").decode()
        except UnicodeDecodeError as error:
            raise refused("file", "this is no UTF-8 text") from error
        things = read_wanted(load(text, problems), problems)
        standing = read_standing(client, things[0].name)
        changes = make_plan(things, standing, _hints(client, things, standing), problems)
        check(client, changes, problems, strictly=dry_run)
        if not printer.as_json:
            _show_plan(changes, len(things), printer)
        if dry_run:
            _end(printer, changes, [], dry_run=True)
            return
        carry_out = CarryOut(client, standing, file)
        try:
            carry_out(changes)
        except Failure as failure:
            if carry_out.hooks:
                failure.beside["hooks"] = [asdict(each) for each in carry_out.hooks]
            raise
        except Exception:
            # A fault of our own, which has no written form.
            if printer.as_json and carry_out.hooks:
                printer.document({"hooks": [asdict(each) for each in carry_out.hooks]})
            raise
        finally:
            # Whatever ended it: an address that is not shown now is lost.
            _show_hooks(carry_out.hooks, things, printer)
        done = [each for each in changes if each not in carry_out.idle]
        _end(printer, done, carry_out.hooks, dry_run=False)


def export(
    workspace: Annotated[
        str | None,
        typer.Option(
            "--workspace",
            "-w",
            envvar=WORKSPACE_VARIABLE,
            help="The workspace, by id or name; the only one there is when left out.",
        ),
    ] = None,
    data_dir: DataDirOption = DEFAULT_DIR,
    output: OutputOption = DEFAULT_OUTPUT,
) -> None:
    """Print a workspace as the file that `reveille apply` takes; secrets are not part of it."""
    with session(data_dir, output) as (client, printer):
        workspace_id = find_workspace(client, workspace)
        standing = read_standing(client, _name_of(client, workspace_id))
        if standing.workspace_id != workspace_id:
            raise Failure("not_found", "the workspace was renamed meanwhile", ExitCode.NOT_FOUND)
        document = document_of(standing)
        if printer.as_json:
            printer.document(document)
            return
        for line in yaml.dump(
            document, Dumper=_Dumper, sort_keys=False, allow_unicode=True
        ).splitlines():
            printer.text(line)
        if standing.unnamed:
            printer.note(
                f"{standing.unnamed} triggers without a label were left out: `reveille triggers"
                " update TRIGGER --label LABEL` gives them one."
            )


class _Dumper(yaml.SafeDumper):
    """Writes texts of many lines as blocks, as people do."""


def _text(dumper: Any, value: str) -> Any:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def _name_of(client: Client, workspace_id: str) -> str:
    request = WORKSPACES.request("GetWorkspace", workspace_id=workspace_id)
    return str(client.call(WORKSPACES, "GetWorkspace", request).workspace.name)


def _hints(client: Client, things: list[Wanted], standing: Standing) -> dict[str, set[str]]:
    """Ask for the hints of those webhooks only for which the file has a secret."""
    found = {}
    for wanted in things:
        trigger = standing.things.get(wanted.key)
        if wanted.secret and trigger is not None:
            found[trigger.trigger_id] = read_hints(client, trigger.trigger_id)
    return found


def _show_plan(changes: list[Change], things: int, printer: Printer) -> None:
    for change in changes:
        wanted = change.wanted
        of = f" of {wanted.parent}" if wanted.parent else ""
        sign = _SIGNS.get(change.action, "~")
        what = "" if change.action in _SIGNS else f": {change.action.value.replace('_', ' ')}"
        printer.text(f"{sign} {wanted.kind.word} {wanted.name}{of}{what}")
        for each in change.differences:
            before = "" if change.action is Action.CREATE else f"{_short(each.before)} -> "
            printer.text(f"    {each.path}: {before}{_short(each.after)}")
    touched = {change.wanted.key for change in changes if change.action is not Action.SEND_SECRETS}
    printer.note(f"{len(touched)} of {things} things differ.")


def _short(value: Any) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _show_hooks(hooks: list[Hook], things: list[Wanted], printer: Printer) -> None:
    if printer.as_json or not hooks:
        return
    for each in hooks:
        printer.text(f"{each.autopilot} / {each.trigger}: {each.hook_url or each.hook_path}")
    printer.note(CREDENTIAL_NOTE)
    signed = {(each.parent, each.name) for each in things if each.secret}
    for each in hooks:
        if (each.autopilot, each.trigger) not in signed:
            printer.note(f"{each.autopilot} / {each.trigger}: {UNSIGNED_NOTE}")


def _end(printer: Printer, changes: list[Change], hooks: list[Hook], *, dry_run: bool) -> None:
    if printer.as_json:
        printer.document(
            {
                "applied": not dry_run,
                "changes": [change.document() for change in changes],
                "hooks": [asdict(each) for each in hooks],
            }
        )
        return
    if dry_run:
        printer.note(
            "Nothing was changed. What a service judges only when it is done was not checked: an"
            " agent's settings, how long texts may be, and what you may do."
        )
    elif changes:
        for change in changes:
            if change.action is Action.SEND_SECRETS:
                printer.note(f"The secrets of agent {change.wanted.name} were others before.")
        printer.note("Done.")
