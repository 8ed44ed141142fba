"""The conformance map: which rule of the references is held by which test, or why by none.

Owns the format of `tests/conformance.toml` and its check; says nothing about what a rule means.
Run as `python -m reveille_testkit.conformance tests/conformance.toml`: exit 1 names every gap.

`[families]` lists the numbers that exist (`T = "1-12, 20"`), `[finished]` those that must be
mapped by now. Every other table is one rule, `[T-1]`, with a `text` and either `tests` or `na`.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

RULE_ID = re.compile(r"([A-Za-z]+)-([1-9][0-9]*)")
RANGE = re.compile(r"([1-9][0-9]*)(?:-([1-9][0-9]*))?")
FIELDS = frozenset({"text", "tests", "na"})


class MalformedMap(Exception):
    """The map cannot be read: broken TOML, or a range that is none."""


def parse_numbers(text: str) -> frozenset[int]:
    """Read `"1-3, 7"` as {1, 2, 3, 7}; an empty text is the empty set."""
    numbers: set[int] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = RANGE.fullmatch(part)
        if match is None:
            raise MalformedMap(f"not a number or a range: {part!r}")
        first = int(match[1])
        last = int(match[2] or first)
        if last < first:
            raise MalformedMap(f"the range runs backwards: {part!r}")
        numbers.update(range(first, last + 1))
    return frozenset(numbers)


def tests_in(file: Path) -> frozenset[str]:
    """Name the tests a file defines, methods as `Class::method`, without importing it."""

    def names(body: list[ast.stmt], prefix: str) -> Iterator[str]:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                if node.name.startswith("test"):
                    yield prefix + node.name
            elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
                yield from names(node.body, f"{prefix}{node.name}::")

    return frozenset(names(ast.parse(file.read_text(encoding="utf-8")).body, ""))


class ConformanceCheck:
    """Holds one map against its own families and against the test files below `root`."""

    def __init__(self, root: Path, document: Mapping[str, object]) -> None:
        self._root = root
        self._families = self._ranges(document, "families")
        self._finished = self._ranges(document, "finished")
        self._rules = {
            key: value for key, value in document.items() if key not in {"families", "finished"}
        }
        self._known_tests: dict[str, frozenset[str]] = {}

    def problems(self) -> list[str]:
        """Say everything that is wrong, in the order of the file; nothing wrong is no line."""
        return [*self._finished_problems(), *self._rule_problems()]

    def counts(self) -> tuple[int, int, int]:
        """Count the rules held by tests, those that do not apply, and those without an entry."""
        tested = sum("tests" in rule for rule in self._rules.values() if isinstance(rule, dict))
        known = sum(len(numbers) for numbers in self._families.values())
        return tested, len(self._rules) - tested, known - len(self._rules)

    @staticmethod
    def _ranges(document: Mapping[str, object], table: str) -> dict[str, frozenset[int]]:
        ranges = document.get(table)
        if not isinstance(ranges, dict):
            raise MalformedMap(f"the table [{table}] is missing")
        if bad := [family for family, text in ranges.items() if not isinstance(text, str)]:
            raise MalformedMap(f"[{table}] {bad[0]}: ranges are one text, as in '1-12, 20'")
        return {family: parse_numbers(text) for family, text in ranges.items()}

    def _finished_problems(self) -> Iterator[str]:
        for family, numbers in self._finished.items():
            known = self._families.get(family, frozenset())
            for number in sorted(numbers):
                if number not in known:
                    yield f"[finished] {family}-{number}: no such rule in [families]"
                elif f"{family}-{number}" not in self._rules:
                    yield f"{family}-{number}: finished, but neither tests nor a reason is given"

    def _rule_problems(self) -> Iterator[str]:
        for rule_id, rule in self._rules.items():
            match = RULE_ID.fullmatch(rule_id)
            if match is None or int(match[2]) not in self._families.get(match[1], frozenset()):
                yield f"[{rule_id}]: no such rule in [families]"
            elif not isinstance(rule, dict):
                yield f"{rule_id}: not a table"
            else:
                yield from (f"{rule_id}: {problem}" for problem in self._entry_problems(rule))

    def _entry_problems(self, rule: Mapping[str, object]) -> Iterator[str]:
        for unknown in sorted(rule.keys() - FIELDS):
            yield f"unknown field {unknown!r}"
        if not _is_text(rule.get("text")):
            yield "text is empty: say the rule in one line"
        if ("tests" in rule) == ("na" in rule):
            yield "give either tests or na"
        if "na" in rule and not _is_text(rule["na"]):
            yield "na is empty: say why it does not apply"
        if "tests" in rule:
            yield from self._test_problems(rule["tests"])

    def _test_problems(self, tests: object) -> Iterator[str]:
        if not isinstance(tests, list) or not tests:
            yield "tests is not a list with at least one test"
            return
        for test in tests:
            file, separator, name = str(test).partition("::")
            if not separator:
                yield f"{test} names no test: write file.py::test_name"
            elif name not in self._tests(file):
                yield f"{test} does not exist"

    def _tests(self, file: str) -> frozenset[str]:
        """Name the tests of a file that pytest collects; a file it does not collect has none."""
        if file not in self._known_tests:
            path = (self._root / file).resolve()
            collected = (
                path.is_relative_to((self._root / "tests").resolve())
                and path.match("test_*.py")
                and path.is_file()
            )
            self._known_tests[file] = tests_in(path) if collected else frozenset()
        return self._known_tests[file]


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def load(path: Path) -> ConformanceCheck:
    """Read the map at `path`; the tests it names are looked for beside its own folder."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise MalformedMap(str(error)) from error
    return ConformanceCheck(path.resolve().parent.parent, document)


def main(arguments: list[str]) -> int:
    """Check the map named on the command line."""
    path = Path(arguments[0])
    try:
        check = load(path)
    except (MalformedMap, OSError) as error:
        sys.stderr.write(f"{path}: {error}\n")
        return 1
    problems = check.problems()
    sys.stderr.writelines(f"{path}: {problem}\n" for problem in problems)
    tested, not_applicable, open_ = check.counts()
    sys.stdout.write(
        f"conformance: {tested} rules tested, {not_applicable} not applicable, {open_} to come\n"
    )
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
