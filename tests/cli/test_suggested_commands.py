"""Whatever the services tell an operator to type is a command that there is."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from reveille_cli.main import app

ROOT = Path(__file__).parents[2]
# Pieces of f-strings: a command begins with a noun in the plural, its braces are filled in.
_COMMAND = re.compile(r"reveille ((?:[a-z-]+s|up|why|trace|schedule) (?:[a-z-]+)[^\"`]*)")
_FILLED_IN = re.compile(r"\{[^}]*\}")


def suggested() -> list[str]:
    found = set()
    for file in sorted((ROOT / "services").glob("*/src/**/*.py")):
        text = re.sub(r'"\s*\n\s*f?"', "", file.read_text(encoding="utf-8"))
        found |= {_FILLED_IN.sub("X", each).strip() for each in _COMMAND.findall(text)}
    return sorted(found)


def test_there_are_some() -> None:
    assert "autopilots resume X" in suggested()


@pytest.mark.parametrize("command", suggested())
def test_it_is_a_command(command: str) -> None:
    words = shlex.split(command)
    flags = {word for word in words if word.startswith("--")}

    result = CliRunner().invoke(app, [*words[:2], "--help"], env={"COLUMNS": "200"})
    # A noun below a noun, such as `triggers secrets add`.
    if "COMMAND [ARGS]" in result.stdout:
        result = CliRunner().invoke(app, [*words[:3], "--help"], env={"COLUMNS": "200"})

    assert result.exit_code == 0, result.output
    assert "COMMAND [ARGS]" not in result.stdout
    assert all(flag in result.stdout for flag in flags)
