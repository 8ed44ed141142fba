"""A wait counts down on a terminal, and says a plain line every ten seconds elsewhere."""

from __future__ import annotations

import io
from dataclasses import dataclass

from rich.console import Console

from reveille_cli.demo.progress import LINE_EVERY, Progress


@dataclass
class Time:
    seconds: float = 0.0

    def now(self) -> float:
        return self.seconds

    def pause(self, seconds: float) -> None:
        self.seconds += seconds


def wait(seen_at: float, timeout: float, *, terminal: bool) -> tuple[str | None, str, float]:
    written, time = io.StringIO(), Time()
    progress = Progress(
        Console(file=written, force_terminal=terminal, width=80), time.now, time.pause
    )

    seen = progress.wait(
        lambda: "here" if time.seconds >= seen_at else None,
        lambda: f"{timeout - time.seconds:.0f} s left",
        timeout=timeout,
    )

    return seen, written.getvalue(), time.seconds


def test_a_plain_line_comes_at_once_and_every_ten_seconds() -> None:
    seen, written, ended = wait(25.0, 60.0, terminal=False)

    assert seen == "here"
    assert ended == 25.0
    assert written.splitlines() == ["• 60 s left", "• 50 s left", "• 40 s left"]
    assert LINE_EVERY == 10.0


def test_what_is_there_already_needs_no_word() -> None:
    assert wait(0.0, 60.0, terminal=False) == ("here", "", 0.0)


def test_what_does_not_come_is_none() -> None:
    seen, _, ended = wait(100.0, 5.0, terminal=False)

    assert seen is None
    assert ended == 5.0


def test_a_terminal_shows_one_living_line() -> None:
    seen, written, _ = wait(3.0, 60.0, terminal=True)

    assert seen == "here"
    assert "57 s left" in written
    assert "•" not in written
