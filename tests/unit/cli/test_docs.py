"""The page about the command names the nouns, verbs and exit codes that there are."""

from __future__ import annotations

import re
from pathlib import Path

import typer

from reveille_cli.exits import ExitCode
from reveille_cli.main import COMMANDS, app

PAGE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the first table under a heading of a column."""
    table = PAGE[PAGE.index(f"| {heading} |") :].split("\n\n")[0]
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]
    ]


def quoted(text: str) -> list[str]:
    return sorted(re.findall(r"`([^`]+)`", text))


def test_nouns_and_verbs() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    found: dict[str, list[str]] = {}
    for name in COMMANDS:
        command = group.get_command(None, name)  # type: ignore[arg-type]  # the table needs none
        if isinstance(command, typer.core.TyperGroup):
            found[name] = sorted(command.commands)
            # The shell completes the whole command, whose own option sets that up.
            assert not any("--install-completion" in each.opts for each in command.params)
    written = {
        noun.strip("`"): sorted(re.findall(r"`([^`]+)`", verbs)) for noun, verbs in rows("noun")
    }

    assert written == found
    alone = PAGE[PAGE.index("Without a noun stand") :].split("\n\n")[0]
    assert set(quoted(alone)) == COMMANDS.keys() - found.keys()


def test_exit_codes() -> None:
    assert [int(code) for code, _ in rows("exit code")] == sorted({int(code) for code in ExitCode})
