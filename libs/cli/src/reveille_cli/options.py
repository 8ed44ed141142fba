"""The options that commands share, declared once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from reveille_cli.stack.datadir import DATA_DIR_VARIABLE, DEFAULT_DATA_DIR


class OutputFormat(StrEnum):
    """How data is written to stdout."""

    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[
    OutputFormat, typer.Option("--output", "-o", help="How to write the result to stdout.")
]
DataDirOption = Annotated[
    Path,
    typer.Option(
        "--data-dir",
        envvar=DATA_DIR_VARIABLE,
        help="Where the local stack keeps its keys, database, logs and traces.",
    ),
]
DEFAULT_OUTPUT = OutputFormat.TABLE
DEFAULT_DIR = DEFAULT_DATA_DIR
