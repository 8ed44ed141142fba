"""A wish may be uttered in the middle of anything, also of waiting for it."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from reveille_cli.stack.wish import Wish


@pytest.fixture
def untraced() -> Iterator[None]:
    yield
    sys.settrace(None)


def interrupted(wish: Wish, name: str, line: int) -> Callable[[FrameType, str, Any], Any]:
    """Trace a method: at that line of it the wish is uttered, as a signal's handler would."""
    seen = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal seen
        if frame.f_code.co_name != name:
            return None
        if event == "line":
            seen += 1
            if seen == line:
                sys.settrace(None)
                wish.utter()
        return trace

    return trace


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize(("name", "lines"), [("wait", 4), ("utter", 2)])
def test_a_signal_may_come_at_any_line(name: str, lines: int) -> None:
    for line in range(1, lines + 1):
        wish = Wish()
        sys.settrace(interrupted(wish, name, line))
        if name == "wait":
            wish.wait(0.01)
        else:
            wish.utter()
        sys.settrace(None)
        assert wish.uttered
        assert wish.wait(0)


def test_a_signal_ends_the_wait() -> None:
    wish = Wish()
    before = signal.signal(signal.SIGUSR1, lambda *_: wish.utter())
    try:
        timer = threading.Timer(0.01, signal.raise_signal, [signal.SIGUSR1])
        timer.start()
        while not wish.wait(0.2):
            pass
    finally:
        signal.signal(signal.SIGUSR1, before)
    timer.join()
    assert wish.uttered


def test_everybody_who_waits_hears_of_it() -> None:
    wish = Wish()
    heard: list[bool] = []
    waiting = [threading.Thread(target=lambda: heard.append(wish.wait(10))) for _ in range(3)]
    for each in waiting:
        each.start()
    wish.utter()
    for each in waiting:
        each.join()
    assert heard == [True] * 3
    assert not Wish().wait(0)
