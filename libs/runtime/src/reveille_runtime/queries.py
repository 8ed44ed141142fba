"""Named queries: SQL lives in `.sql` files, and a query's name is what metrics and spans call it.

A file is a sequence of blocks. A block opens with `-- name: snake_case`, is followed by a comment
that says why the statement exists, and holds one statement:

    -- name: find_job
    -- The registration as the handler last declared it. $1 name
    SELECT name, paused FROM jobs WHERE name = $1;
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources

_HEADER = re.compile(r"^--\s*name:\s*(?P<name>\S+)\s*$")
_NAME = re.compile(r"^[a-z][a-z0-9_]*$")


class QueryFileError(ValueError):
    """A `.sql` file does not follow the form; the message names the file and the line."""


@dataclass(frozen=True, slots=True)
class Query:
    """One statement: its name, its text without comment lines, and why it exists."""

    name: str
    sql: str
    why: str


class Queries(Mapping[str, Query]):
    """The queries of some files, by name; an unknown name fails where it is used."""

    __slots__ = ("_by_name", "_source")

    def __init__(self, source: str, by_name: Mapping[str, Query]) -> None:
        self._source = source
        self._by_name = dict(by_name)

    def __getitem__(self, name: str) -> Query:
        try:
            return self._by_name[name]
        except KeyError:
            raise KeyError(f"no query named {name!r} in {self._source}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)


def parse_queries(text: str, source: str) -> dict[str, Query]:
    """Split a file into its blocks."""
    found: dict[str, Query] = {}
    name = ""
    opened_at = 0
    why: list[str] = []
    body: list[str] = []

    def close() -> None:
        sql = "\n".join(body).strip().rstrip(";").rstrip()
        if not sql:
            raise QueryFileError(f"{source}:{opened_at}: query {name!r} is empty")
        if not why:
            raise QueryFileError(f"{source}:{opened_at}: query {name!r} does not say why it exists")
        found[name] = Query(name, sql, " ".join(why))

    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if header := _HEADER.match(stripped):
            if name:
                close()
            name, opened_at, why, body = header["name"], number, [], []
            if not _NAME.match(name):
                raise QueryFileError(f"{source}:{number}: {name!r} is not a snake_case name")
            if name in found:
                raise QueryFileError(f"{source}:{number}: query {name!r} is defined twice")
        elif stripped.startswith("--"):
            # Comments stay in the file: the server never parses them.
            if name and not body:
                why.append(stripped.lstrip("- "))
        elif stripped:
            if not name:
                raise QueryFileError(f"{source}:{number}: SQL before the first '-- name:' line")
            body.append(line.rstrip())
    if name:
        close()
    return found


def load_queries(package: str, *files: str) -> Queries:
    """Read the named files of a package; a name that two of them define is an error."""
    merged: dict[str, Query] = {}
    for file in files:
        source = f"{package}/{file}"
        text = resources.files(package).joinpath(file).read_text(encoding="utf-8")
        for name, query in parse_queries(text, source).items():
            if name in merged:
                raise QueryFileError(f"{source}: query {name!r} is already defined in this set")
            merged[name] = query
    return Queries(f"{package} ({', '.join(files)})", merged)


def all_queries(package: str) -> Queries:
    """Read every `.sql` file that lies directly in a package, for tests over all of its SQL."""
    names = sorted(
        entry.name for entry in resources.files(package).iterdir() if entry.name.endswith(".sql")
    )
    return load_queries(package, *names)
