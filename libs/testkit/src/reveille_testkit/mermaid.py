"""State diagrams in Markdown, read as data.

Owns the part of Mermaid's `stateDiagram-v2` that our pages use: one arrow a line, states named by
their stored text, `[*]` for the start and the end. Anything else in a diagram is refused, so that
nothing drawn escapes the comparison with the code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

HEADING = re.compile(r"^## (?P<title>.+?)\s*$")
ARROW = re.compile(
    r"^(?P<source>\[\*\]|[A-Za-z_]+) --> (?P<target>\[\*\]|[A-Za-z_]+)(?: ?: ?(?P<why>\S.*))?$"
)
OUTSIDE = "[*]"


class MalformedDiagram(Exception):
    """A line of a diagram that is no arrow, an arrow drawn twice, or a page without a heading."""


@dataclass(frozen=True, slots=True)
class StateDiagram:
    """One state machine as it is drawn."""

    initial: frozenset[str]
    terminal: frozenset[str]
    transitions: Mapping[str, frozenset[str]]

    @property
    def states(self) -> frozenset[str]:
        """Every state that is drawn."""
        return frozenset(self.transitions)


def read_diagram(lines: list[str]) -> StateDiagram:
    """Read the lines between the fences of one diagram."""
    if not lines or lines[0].strip() != "stateDiagram-v2":
        raise MalformedDiagram("a state diagram begins with stateDiagram-v2")
    arrows: set[tuple[str, str]] = set()
    for line in filter(None, (line.strip() for line in lines[1:])):
        match = ARROW.fullmatch(line)
        if match is None:
            raise MalformedDiagram(f"not an arrow: {line!r}")
        arrow = (match["source"], match["target"])
        if arrow in arrows:
            raise MalformedDiagram(f"drawn twice: {line!r}")
        arrows.add(arrow)
    states = {end for arrow in arrows for end in arrow} - {OUTSIDE}
    return StateDiagram(
        initial=frozenset(target for source, target in arrows if source == OUTSIDE),
        terminal=frozenset(source for source, target in arrows if target == OUTSIDE),
        transitions={
            state: frozenset(
                target for source, target in arrows if source == state and target != OUTSIDE
            )
            for state in states
        },
    )


def read_diagrams(markdown: str) -> dict[str, StateDiagram]:
    """Read every Mermaid diagram of a page, by the `##` heading it stands under."""
    diagrams: dict[str, StateDiagram] = {}
    title: str | None = None
    inside: list[str] | None = None
    for line in markdown.splitlines():
        if inside is not None:
            if line.strip() != "```":
                inside.append(line)
                continue
            if title is None or title in diagrams:
                raise MalformedDiagram("each diagram has a heading of its own")
            diagrams[title] = read_diagram(inside)
            inside = None
        elif heading := HEADING.match(line):
            title = heading["title"]
        elif line.strip() == "```mermaid":
            inside = []
    if inside is not None:
        raise MalformedDiagram("a diagram is not closed")
    return diagrams
