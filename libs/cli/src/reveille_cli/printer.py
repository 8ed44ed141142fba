"""The one printer: lists and single things, as a table for people or as JSON for scripts.

Data goes to stdout, messages to stderr; colour only where stdout is a terminal. Whatever comes
from outside passes `terminal`, which makes it harmless.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from google.protobuf.message import Message
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from reveille_cli.jsonform import is_empty, plain
from reveille_cli.options import OutputFormat
from reveille_cli.terminal import LINES, cell, draw, json_line, visible
from reveille_cli.views import COLUMNS, COMPUTED, HEADINGS, STYLES

_TEXT_WIDTH = 16
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

    def rows(
        self,
        name: str,
        messages: Sequence[Message],
        *,
        next_page_token: str = "",
        things: str = "",
        beside: Sequence[Message] = (),
    ) -> None:
        """Print a list; in JSON under its name, with the token of the next page.

        `things` is what people call them, where that is not the name; `beside` holds more facts
        of each.
        """
        found = [plain(message) for message in messages]
        if beside:
            found = [plain(more) | each for each, more in zip(found, beside, strict=True)]
        if self.as_json:
            self.document({name: found, "next_page_token": next_page_token})
            return
        if not messages:
            self.note(f"No {things or name.replace('_', ' ')}.")
            return
        kind = messages[0].DESCRIPTOR.full_name
        columns = COLUMNS[kind]
        rows = [[_cell(values, column) for column in columns] for values in found]
        self.draw(table_of([_heading(kind, each) for each in columns], rows, fixed=_fixed(columns)))
        if next_page_token:
            self.note(f"There are more: --page-token {next_page_token}, or --limit 0 for all.")

    def one(self, message: Message, *, main: str = "", beside: Message | None = None) -> None:
        """Print one thing: in a table all its fields that say something.

        The fields of the part that `main` names stand among the others, without its name, and so
        do those of `beside`.
        """
        values = plain(message)
        if beside is not None:
            values |= {name: each for name, each in plain(beside).items() if name not in values}
        if self.as_json:
            self.document(values)
            return
        lifted = values.pop(main, None) if main else None
        drawn = Table.grid(padding=(0, 2))
        drawn.add_column(style="bold", no_wrap=True)
        drawn.add_column(overflow="fold")
        for name, value in _flat({**(lifted or {}), **values}):
            drawn.add_row(Text(visible(name)), _styled(name, value, LINES))
        if drawn.row_count:
            self.draw(drawn)

    def document(self, values: Mapping[str, Any]) -> None:
        """Print a JSON document on one line."""
        sys.stdout.write(json_line(values) + "\n")

    def text(self, line: str) -> None:
        """Print a line of data."""
        sys.stdout.write(visible(line) + "\n")

    def draw(self, renderable: RenderableType) -> None:
        """Print a table."""
        draw(renderable)

    def note(self, line: str) -> None:
        """Say something to the person; scripts are not bothered."""
        if not self.as_json:
            sys.stderr.write(visible(line, LINES) + "\n")


def table_of(
    headings: Sequence[str], rows: Iterable[Sequence[Text | str]], *, fixed: Collection[int] = ()
) -> Table:
    """Make a table; columns that say nothing are left out, those in `fixed` are never folded.

    Ids are copied and times compared, so both stay whole; what is free text is folded.
    """
    cells = [[cell(value) for value in row] for row in rows]
    drawn = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    shown = [
        index
        for index in range(len(headings))
        if index == 0 or any(row[index].plain for row in cells)
    ]
    for index in shown:
        longest = max((row[index].cell_len for row in cells), default=0)
        least = longest if index in fixed else min(longest, _TEXT_WIDTH)
        drawn.add_column(
            Text(headings[index]),
            overflow="fold",
            no_wrap=index in fixed,
            min_width=max(least, len(headings[index])),
        )
    for row in cells:
        drawn.add_row(*(row[index] for index in shown))
    return drawn


def state_text(word: str) -> Text:
    """Return a state in its colour."""
    return Text(visible(word), style=STYLES.get(word, ""))


def _heading(kind: str, column: str) -> str:
    words = HEADINGS.get(f"{kind}.{column}") or HEADINGS.get(column, column)
    return words.replace("_", " ").upper()


def _fixed(columns: Sequence[str]) -> list[int]:
    return [
        index
        for index, column in enumerate(columns)
        if column.endswith("_time") or (column.endswith("_id") and not column.endswith("user_id"))
    ]


def _cell(values: Mapping[str, Any], column: str) -> Text:
    value = COMPUTED[column](values) if column in COMPUTED else values[column]
    words = _words(value)
    # In a list the second is exact enough, and leaves room.
    return _styled(column, _FRACTION.sub("", words) if column.endswith("_time") else words)


def _styled(name: str, words: str, keep: str = "") -> Text:
    stateful = name.rpartition(".")[2] in {"state", "status", "signature_state"}
    return state_text(words) if stateful else Text(visible(words, keep))


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
