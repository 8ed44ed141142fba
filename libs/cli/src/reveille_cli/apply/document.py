"""A YAML file as values that know their lines, and all that is wrong with it, told at once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from reveille_cli.exits import ExitCode
from reveille_cli.failures import Failure, Violation
from reveille_cli.values import read_file

FROM_ENV, FROM_FILE = "fromEnv", "fromFile"


@dataclass(frozen=True, slots=True)
class Node:
    """A value of the file: a scalar, a list of nodes, or nodes by key."""

    value: Any
    line: int
    # A scalar as it stands in the file: what YAML reads as a number may be meant as a text.
    written: str = ""

    def plain(self) -> Any:
        """Give the value without its lines."""
        if isinstance(self.value, Mapping):
            return {key: each.plain() for key, each in self.value.items()}
        if isinstance(self.value, Sequence) and not isinstance(self.value, str):
            return [each.plain() for each in self.value]
        return self.value


@dataclass(slots=True)
class Problems:
    """What is wrong with a file, by line."""

    name: str
    # Where `fromFile` begins.
    folder: Path
    found: list[tuple[int, str]] = field(default_factory=list)

    def add(self, line: int, text: str) -> None:
        """Note something."""
        self.found.append((line, text))

    def check(self) -> None:
        """Refuse the file if anything was noted."""
        if not self.found:
            return
        violations = tuple(
            Violation(f"{self.name}:{line}", text, "invalid_field")
            for line, text in sorted(self.found)
        )
        first = violations[0]
        raise Failure(
            "invalid_field",
            f"{first.field}: {first.description}",
            ExitCode.REFUSED,
            violations=violations,
        )

    def mapping(self, node: Node, what: str, known: Sequence[str]) -> Mapping[str, Node]:
        """Read a mapping; keys that nobody knows are noted."""
        if not isinstance(node.value, Mapping):
            self.add(node.line, f"{what} must have fields: {', '.join(known)}")
            return {}
        for key, each in node.value.items():
            if key not in known:
                self.add(each.line, f"{what} has no {key!r}; it may have {', '.join(known)}")
        return {key: each for key, each in node.value.items() if key in known}

    def items(self, node: Node | None, what: str) -> Iterator[Node]:
        """Read a list."""
        if node is None or node.value is None:
            return
        if not isinstance(node.value, list):
            self.add(node.line, f"{what} must be a list")
            return
        yield from node.value

    def text(self, node: Node, what: str) -> str:
        """Read a text, or where it is to be had: a variable, or a file beside this one."""
        if isinstance(node.value, Mapping):
            return self._elsewhere(node, what)
        if isinstance(node.value, str):
            return node.value
        if isinstance(node.value, int | float) and not isinstance(node.value, bool):
            return node.written
        how = f": {node.written} is none without quotes" if node.written else ""
        self.add(node.line, f"{what} must be a text{how}")
        return ""

    def number(self, node: Node, what: str) -> int:
        """Read a whole number."""
        if isinstance(node.value, int) and not isinstance(node.value, bool):
            return node.value
        self.add(node.line, f"{what} must be a whole number")
        return 0

    def truth(self, node: Node, what: str) -> bool:
        """Read true or false."""
        if not isinstance(node.value, bool):
            self.add(node.line, f"{what} must be true or false")
        return node.value is True

    def settings(self, node: Node, what: str) -> Any:
        """Read free settings, in which any value may come from elsewhere."""
        if isinstance(node.value, Mapping):
            if is_elsewhere(node):
                return self._elsewhere(node, what)
            return {key: self.settings(each, key) for key, each in node.value.items()}
        if isinstance(node.value, list):
            return [self.settings(each, what) for each in node.value]
        return node.value

    def _elsewhere(self, node: Node, what: str) -> str:
        if not is_elsewhere(node):
            self.add(node.line, f"{what} must be a text, {FROM_ENV}: NAME or {FROM_FILE}: PATH")
            return ""
        ((way, source),) = node.value.items()
        name = str(source.value)
        if way == FROM_ENV:
            value = os.environ.get(name)
            if not value:
                self.add(node.line, f"{what}: the variable {name} is not set")
            return value or ""
        try:
            return read_file(str(self.folder / name), what).decode().removesuffix("\n")
        except Failure as failure:
            self.add(node.line, failure.message)
        except UnicodeDecodeError:
            self.add(node.line, f"{what}: {name} holds no UTF-8 text")
        return ""


def is_elsewhere(node: Node) -> bool:
    """Tell whether a value is to be had from a variable or a file."""
    return (
        isinstance(node.value, Mapping)
        and len(node.value) == 1
        and set(node.value) <= {FROM_ENV, FROM_FILE}
    )


def from_elsewhere(node: Node) -> bool:
    """Tell whether a value, or one inside it, comes from elsewhere: it is not shown then."""
    if is_elsewhere(node):
        return True
    if isinstance(node.value, Mapping):
        return any(from_elsewhere(each) for each in node.value.values())
    if isinstance(node.value, list):
        return any(from_elsewhere(each) for each in node.value)
    return False


def load(text: str, problems: Problems) -> Node:
    """Read a file; what is no YAML is refused with its line."""
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if root is None:
            problems.add(1, "the file is empty")
        else:
            return _node(loader, root, problems)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = 1 if mark is None else mark.line + 1
        problems.add(line, f"this is no YAML: {getattr(error, 'problem', None) or error}")
    problems.check()
    raise AssertionError("a file without a root has problems")


def _node(loader: Any, node: yaml.Node, problems: Problems) -> Node:
    line = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        values: dict[str, Node] = {}
        for key, value in node.value:
            name = str(key.value)
            if name in values:
                problems.add(key.start_mark.line + 1, f"{name!r} stands here twice")
            values[name] = _node(loader, value, problems)
        return Node(values, line)
    if isinstance(node, yaml.SequenceNode):
        return Node([_node(loader, each, problems) for each in node.value], line)
    value = loader.construct_object(node)
    # A date is written as a text in every field of ours.
    if value is not None and not isinstance(value, str | bool | int | float):
        value = node.value
    return Node(value, line, str(node.value))
