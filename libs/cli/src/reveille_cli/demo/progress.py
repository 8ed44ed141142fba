"""What the demo says while it works: steps, and how long a wait still takes.

On a terminal a wait is one line that counts down; elsewhere it is a plain line now and then.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TypeVar

from rich.console import Console
from rich.text import Text

T = TypeVar("T")

LINE_EVERY = 10.0
_PAUSE = 0.25


class Progress:
    """Tells a person what happens; a test brings its own time."""

    def __init__(
        self,
        console: Console,
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._console = console
        self._now = now
        self._pause = pause

    def step(self, text: str) -> None:
        """Say what is done now."""
        self._console.print(Text(f"• {text}"), soft_wrap=True)

    def wait(
        self, look: Callable[[], T | None], text: Callable[[], str], *, timeout: float
    ) -> T | None:
        """Look until there is something to see, saying `text` meanwhile; None when time is up."""
        deadline = self._now() + timeout
        next_line = self._now()
        with ExitStack() as stack:
            live = (
                stack.enter_context(self._console.status(Text(text())))
                if self._console.is_terminal
                else None
            )
            while (seen := look()) is None and self._now() < deadline:
                if live is not None:
                    live.update(Text(text()))
                elif self._now() >= next_line:
                    self.step(text())
                    next_line += LINE_EVERY
                self._pause(_PAUSE)
        return seen
