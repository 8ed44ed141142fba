"""The one printer: lists and single things, as a table for people or as JSON for scripts.

Data goes to stdout, messages to stderr; colour only where stdout is a terminal.
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from google.protobuf.message import Message
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from reveille_cli.jsonform import is_empty, plain
from reveille_cli.options import OutputFormat
from reveille_cli.views import COLUMNS, COMPUTED, HEADINGS, STYLES

_PIPE_WIDTH = 1000
_ID_WIDTH = 36
# Values that are objects of their own, not part of what is shown.
_WHOLE = frozenset({"adapter_config", "result"})
_FRACTION = re.compile(r"\.\d+(?=Z$)")


class Printer:
    """Prints what a command found, in the form that was asked for."""

    def __init__(self, output: OutputFormat) -> None:
        self._output = output

    @property
    def as_json(self) -> bool:
        """Whether stdout is for a script."""
        return self._output is OutputFormat.JSON

    def rows(self, name: str, messages: Sequence[Message], *, next_page_token: str = "") -> None:
        """Print a list; in JSON under its name, with the token of the next page."""
        if self.as_json:
            items = [plain(message) for message in messages]
            self.document({name: items, "next_page_token": next_page_token})
            return
        if not messages:
            self.note(f"No {name.replace('_', ' ')}.")
            return
        columns = COLUMNS[messages[0].DESCRIPTOR.full_name]
        table = grid([_heading(column) for column in columns], ids=_ids_of(columns))
        for message in messages:
            values = plain(message)
            table.add_row(*(_cell(values, column) for column in columns))
        self.draw(table)
        if next_page_token:
            self.note(f"There are more: --page-token {next_page_token}, or --limit 0 for all.")

    def one(self, message: Message) -> None:
        """Print one thing: in a table all its fields that say something."""
        values = plain(message)
        if self.as_json:
            self.document(values)
            return
        table = Table.grid(padding=(0, 2))
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in _flat(values):
            table.add_row(name, _styled(name, value))
        if table.row_count:
            self.draw(table)

    def document(self, values: Mapping[str, Any]) -> None:
        """Print a JSON document on one line."""
        self.text(json.dumps(values, ensure_ascii=False))

    def text(self, line: str) -> None:
        """Print a line of data."""
        sys.stdout.write(line + "\n")

    def draw(self, renderable: RenderableType) -> None:
        """Print a table."""
        if sys.stdout.isatty():
            Console().print(renderable)
            return
        # A pipe has no width: nothing is folded, and lines end where their text ends.
        drawn = io.StringIO()
        Console(file=drawn, width=_PIPE_WIDTH, no_color=True).print(renderable)
        for line in drawn.getvalue().splitlines():
            self.text(line.rstrip())

    def note(self, line: str) -> None:
        """Say something to the person; scripts are not bothered."""
        if not self.as_json:
            sys.stderr.write(line + "\n")


def grid(headings: Sequence[str], *, ids: Sequence[int] = ()) -> Table:
    """Make an empty table; the columns in `ids` are never folded, so that ids can be copied."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for index, heading in enumerate(headings):
        if index in ids:
            table.add_column(heading, no_wrap=True, min_width=_ID_WIDTH)
        else:
            table.add_column(heading, overflow="fold")
    return table


def state_text(word: str) -> Text:
    """Return a state in its colour."""
    return Text(word, style=STYLES.get(word, ""))


def _heading(column: str) -> str:
    return HEADINGS.get(column, column).replace("_", " ").upper()


def _ids_of(columns: Sequence[str]) -> list[int]:
    return [
        index
        for index, column in enumerate(columns)
        if column.endswith("_id") and not column.endswith("user_id")
    ]


def _cell(values: Mapping[str, Any], column: str) -> RenderableType:
    value = COMPUTED[column](values) if column in COMPUTED else values[column]
    words = _words(value)
    # In a list the second is exact enough, and leaves room.
    return _styled(column, _FRACTION.sub("", words) if column.endswith("_time") else words)


def _styled(name: str, words: str) -> Text:
    stateful = name.rpartition(".")[2] in {"state", "status", "signature_state"}
    return state_text(words) if stateful else Text(words)


def _words(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield what a thing says, deeper messages by dotted names."""
    for name, value in values.items():
        if is_empty(value):
            continue
        if isinstance(value, dict) and name not in _WHOLE:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, _words(value)
