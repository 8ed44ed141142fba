"""Finding an agent's program before anything is started: what is missing is named by its field."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path


class NotRunnable(Exception):
    """A setting names something that is not there, or cannot be run."""

    def __init__(self, field: str, description: str) -> None:
        super().__init__(f"adapter_config.{field}: {description}")


def runnable(command: Sequence[str], directory: Path, environment: Mapping[str, str]) -> list[str]:
    """Give the command with the path of its program.

    A name is looked up in the agent's own PATH; a path counts from its directory.

    Raises:
        NotRunnable: the directory is none, or there is no such program.
    """
    if not directory.is_dir():
        raise NotRunnable("cwd", f"{directory} is not a folder here")
    return [_located(command[0], directory, environment), *command[1:]]


def _located(program: str, directory: Path, environment: Mapping[str, str]) -> str:
    if "/" in program:
        candidates = [program]
    else:
        path = environment.get("PATH", os.defpath)
        # An empty part of the path means the directory itself.
        candidates = [f"{part or '.'}/{program}" for part in path.split(os.pathsep)]
    # Asked by the system first: most places of a path have no such program.
    there = [each for each in candidates if os.access(_from(directory, each), os.F_OK)]
    found = [each for each in there if Path(_from(directory, each)).is_file()]
    for each in found:
        if os.access(_from(directory, each), os.X_OK):
            return each
    if found:
        raise NotRunnable("command", f"{found[0]} is not executable")
    where = "" if "/" in program else " in PATH"
    raise NotRunnable("command", f"there is no program {program}{where}")


def _from(directory: Path, program: str) -> str:
    return program if program.startswith("/") else f"{directory}/{program}"
