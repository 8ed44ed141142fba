"""The `reveille` command: a table of its nouns and verbs, each imported only when it is used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from reveille_cli.exits import ExitCode
from reveille_cli.failures import Failure, report
from reveille_cli.options import OutputFormat
from reveille_runtime.streams import whole

COMMANDS: dict[str, str] = {
    "up": "reveille_cli.commands.stack:up",
    "down": "reveille_cli.commands.stack:down",
    "status": "reveille_cli.commands.stack:status",
    "keys": "reveille_cli.commands.stack:keys",
    "demo": "reveille_cli.demo.command:demo",
    "tokens": "reveille_cli.commands.tokens:app",
    "workspaces": "reveille_cli.nouns.workspaces:NOUN",
    "members": "reveille_cli.nouns.members:NOUN",
    "agents": "reveille_cli.nouns.agents:NOUN",
    "squads": "reveille_cli.nouns.squads:NOUN",
    "runtimes": "reveille_cli.nouns.runtimes:NOUN",
    "autopilots": "reveille_cli.nouns.autopilots:NOUN",
    "triggers": "reveille_cli.nouns.triggers:NOUN",
    "runs": "reveille_cli.nouns.runs:NOUN",
    "agent-runs": "reveille_cli.nouns.agent_runs:NOUN",
    "deliveries": "reveille_cli.nouns.deliveries:NOUN",
    "hooks": "reveille_cli.commands.hooks:app",
    "wakeups": "reveille_cli.nouns.wakeups:NOUN",
    "issues": "reveille_cli.nouns.issues:NOUN",
    "approvals": "reveille_cli.nouns.approvals:NOUN",
    "projects": "reveille_cli.nouns.projects:NOUN",
    "jobs": "reveille_cli.nouns.jobs:NOUN",
    "scopes": "reveille_cli.nouns.scopes:NOUN",
    "executions": "reveille_cli.nouns.executions:NOUN",
    "apply": "reveille_cli.commands.apply:apply",
    "export": "reveille_cli.commands.apply:export",
    "schedule": "reveille_cli.commands.schedule:app",
    "trace": "reveille_cli.commands.trace:trace",
    "why": "reveille_cli.commands.why:why",
}
"""Name to `module:object`; the object is a function, a noun, or a typer app."""
_OUTPUT_FLAGS = ("-o", "--output")


class LazyGroup(TyperGroup):
    """Looks a command up in the table: `reveille status` need not import what a demo needs.

    Typer keeps the types of these two methods to itself, hence Any.
    """

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 (the interface)
        """Return the names in the table's order."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 (the interface)
        """Import the module of one command."""
        target = COMMANDS.get(cmd_name)
        if target is None:
            return None
        module, _, attribute = target.partition(":")
        command = _as_command(getattr(importlib.import_module(module), attribute))
        command.name = cmd_name
        return command

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run; a mistyped command line is refused in the form that any other refusal has."""
        words = list(sys.argv[1:] if args is None else args)
        if not standalone_mode:
            return super().main(
                words, prog_name, complete_var, standalone_mode, windows_expand_args, **extra
            )
        return _run(
            lambda: super(LazyGroup, self).main(
                words, prog_name, complete_var, False, windows_expand_args, **extra
            ),
            OutputFormat.JSON if asks_for_json(words) else OutputFormat.TABLE,
        )


def asks_for_json(words: Sequence[str]) -> bool:
    """Tell whether a command line says `-o json`, in any of its spellings."""
    for index, word in enumerate(words):
        if word in _OUTPUT_FLAGS and words[index + 1 : index + 2] == [OutputFormat.JSON]:
            return True
        if word in (f"-o{OutputFormat.JSON}", f"--output={OutputFormat.JSON}"):
            return True
    return False


def _run(run: Callable[[], Any], output: OutputFormat) -> NoReturn:
    try:
        code = run()
    except typer.Abort:
        sys.exit(ExitCode.FAILED)
    except UnicodeEncodeError:
        # Python takes such bytes from a command line as halves of characters; no field can.
        code = _report("the command line holds bytes that are no UTF-8 text", "", output)
    except Exception as error:
        # Typer's own errors, whose types it does not publish, know their exit code.
        if getattr(error, "exit_code", None) != ExitCode.REFUSED:
            raise
        code = _refuse(error, output)
    sys.exit(code if isinstance(code, int) else ExitCode.OK)


def _refuse(error: Any, output: OutputFormat) -> int:
    """Say what is wrong with a command line; one without any words has shown the help already."""
    context = getattr(error, "ctx", None)
    message = " ".join(error.format_message().replace("Value error, ", "").split())
    if not message:
        if output is OutputFormat.TABLE:
            return ExitCode.REFUSED
        message = "a command is missing"
    hint = f"`{context.command_path} --help` tells how it is used" if context else ""
    return _report(message, hint, output)


def _report(message: str, hint: str, output: OutputFormat) -> int:
    try:
        report(Failure("invalid_usage", message, ExitCode.REFUSED, hint=hint), output)
    except typer.Exit as end:
        return end.exit_code
    return ExitCode.REFUSED


def _as_command(target: Any) -> Any:
    if isinstance(target, typer.Typer):
        return typer.main.get_command(target)
    if not callable(target):
        from reveille_cli.build import build

        return typer.main.get_command(build(target))
    single = typer.Typer(add_completion=False)
    single.command()(target)
    return typer.main.get_command(single)


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    help="Turn schedules, webhooks and calls into durable runs of AI agents.",
    epilog=(
        "Data goes to stdout, messages to stderr. Exit codes: 0 done, 1 failed, 2 refused input,"
        " 3 not found (status and down: no stack runs here), 4 not allowed,"
        " 5 conflict or wrong state, 6 unavailable."
    ),
)


def _tell_version(asked: bool) -> None:
    if asked:
        from reveille_cli.stack.record import own_version

        typer.echo(f"reveille {own_version()}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_tell_version, help="Say the version."),
    ] = False,
) -> None:
    """Hold the commands together."""


def main() -> None:
    """Run the command line."""
    sys.stdout, sys.stderr = whole(sys.stdout), whole(sys.stderr)
    app(prog_name="reveille")


if __name__ == "__main__":
    main()
