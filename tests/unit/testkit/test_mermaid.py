"""State diagrams are read whole or refused: nothing drawn escapes the comparison with the code."""

from __future__ import annotations

import pytest

from reveille_testkit.mermaid import MalformedDiagram, read_diagram, read_diagrams

PAGE = """# States

## Lamp

A lamp.

```mermaid
stateDiagram-v2
    [*] --> off
    off --> on : pressed
    on --> off
    on --> broken : worn out
    broken --> [*]
```

## Door

```mermaid
stateDiagram-v2
    [*] --> shut
    shut --> [*]
```

```sh
echo not a diagram
```
"""


def test_a_page_is_read_by_its_headings() -> None:
    diagrams = read_diagrams(PAGE)

    assert set(diagrams) == {"Lamp", "Door"}
    lamp = diagrams["Lamp"]
    assert lamp.initial == {"off"}
    assert lamp.terminal == {"broken"}
    assert lamp.states == {"off", "on", "broken"}
    assert lamp.transitions == {"off": {"on"}, "on": {"off", "broken"}, "broken": set()}


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["flowchart LR"],
        ["stateDiagram-v2", "off -> on"],
        ["stateDiagram-v2", "off --> on and on"],
        ["stateDiagram-v2", "state off {"],
        ["stateDiagram-v2", "off --> on", "off --> on : again"],
    ],
)
def test_what_is_not_an_arrow_is_refused(lines: list[str]) -> None:
    with pytest.raises(MalformedDiagram):
        read_diagram(lines)


@pytest.mark.parametrize(
    "page",
    [
        "```mermaid\nstateDiagram-v2\n[*] --> a\n```\n",
        "## A\n```mermaid\nstateDiagram-v2\n[*] --> a\n",
        "## A\n" + "```mermaid\nstateDiagram-v2\n[*] --> a\n```\n" * 2,
    ],
)
def test_a_diagram_has_one_heading_and_an_end(page: str) -> None:
    with pytest.raises(MalformedDiagram):
        read_diagrams(page)
