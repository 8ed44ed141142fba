"""The `reveille` command: a table of its nouns and verbs, each imported only when it is used."""

from __future__ import annotations

import importlib
from typing import Any

import typer
from typer.core import TyperGroup

COMMANDS: dict[str, str] = {
    "up": "reveille_cli.commands.stack:up",
    "down": "reveille_cli.commands.stack:down",
    "status": "reveille_cli.commands.stack:status",
    "keys": "reveille_cli.commands.stack:keys",
}
"""Name to `module:object`; the object is a function, or a typer app for a noun with verbs."""


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


def _as_command(target: Any) -> Any:
    if isinstance(target, typer.Typer):
        return typer.main.get_command(target)
    single = typer.Typer(add_completion=False)
    single.command()(target)
    return typer.main.get_command(single)


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    help="Turn schedules, webhooks and calls into durable runs of AI agents.",
)


@app.callback()
def _root() -> None:
    """Hold the commands together."""


def main() -> None:
    """Run the command line."""
    app(prog_name="reveille")


if __name__ == "__main__":
    main()
