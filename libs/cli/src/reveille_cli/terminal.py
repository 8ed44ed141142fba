r"""What of a text may reach a terminal: stored text comes from outside, and must not steer it.

Control characters, escape sequences and marks that turn the direction of a line are shown as
`\x1b`, never sent. Nothing in a text is markup, an emoji code or a thing to highlight.
"""

from __future__ import annotations

import codecs
import io
import json
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.text import Text

LINES = "\n\t"
"""What a text of several lines may hold beside its letters."""
_PIPE_WIDTH = 1000
# C0 and C1, DEL, bidi marks, overrides and isolates, separators of lines, and halves of characters.
_CONTROLS = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def visible(text: str, keep: str = "") -> str:
    """Return a text in which every control character is spelled out, but for those in `keep`."""
    return _CONTROLS.sub(
        lambda found: _spelled(found[0]) if found[0] not in keep else found[0], text
    )


def json_line(values: Any) -> str:
    """Write JSON on one line; what would steer a terminal is escaped, as JSON knows how."""
    written = json.dumps(values, ensure_ascii=False)
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", written)


class PlainConsole(Console):
    """A console that takes text for text, whoever made what is drawn."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """Render; only what rich itself means for the terminal stays a control sequence."""
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(visible(segment.text, "\n"), segment.style)


def draw(renderable: RenderableType) -> None:
    """Draw on stdout: in colour on a terminal, in whole lines into a pipe."""
    if sys.stdout.isatty():
        console = PlainConsole()
        # Too narrow for what must not be broken: the terminal wraps the lines, nothing is squeezed.
        options = console.options.update(max_width=_PIPE_WIDTH)
        needed = Measurement.get(console, options, renderable).minimum
        console.width = max(console.width, needed)
        console.print(renderable)
        return
    drawn = io.StringIO()
    PlainConsole(file=drawn, width=_PIPE_WIDTH, no_color=True).print(renderable)
    for line in drawn.getvalue().splitlines():
        sys.stdout.write(line.rstrip() + "\n")


def pour(pieces: Iterable[bytes]) -> None:
    """Write bytes that were stored: as they are into a pipe, made harmless on a terminal."""
    if not sys.stdout.isatty():
        for piece in pieces:
            sys.stdout.buffer.write(piece)
            sys.stdout.flush()
        return
    # Also takes a carriage return for the end of a line, which could overwrite what was shown.
    decoder = io.IncrementalNewlineDecoder(
        codecs.getincrementaldecoder("utf-8")("replace"), translate=True
    )
    for piece in pieces:
        sys.stdout.write(visible(decoder.decode(piece), LINES))
        sys.stdout.flush()
    sys.stdout.write(visible(decoder.decode(b"", final=True), LINES))
    sys.stdout.flush()


def cell(value: Text | str) -> Text:
    """Return what stands in one cell of a list: one line, harmless before it is measured."""
    text = Text(visible(value)) if isinstance(value, str) else value
    harmless = visible(text.plain)
    return text if harmless == text.plain else Text(harmless, style=text.style)


def _spelled(char: str) -> str:
    code = ord(char)
    if char in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[char]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
