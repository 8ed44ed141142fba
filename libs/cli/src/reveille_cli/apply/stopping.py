"""Being asked to stop between two steps, instead of in the middle of one."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import current_thread, main_thread
from types import FrameType
from typing import Any

_ASKS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(slots=True)
class Wish:
    """Whether somebody wants it to stop."""

    stop: bool = False


@contextmanager
def deferred() -> Iterator[Wish]:
    """Note a signal that asks to stop; the same signal again acts as it always does."""
    wish = Wish()
    # Only the main thread is sent signals, and may say what they do.
    if current_thread() is not main_thread():
        yield wish
        return
    before: dict[signal.Signals, Any] = {}

    def ask(number: int, frame: FrameType | None) -> None:
        del frame
        wish.stop = True
        signal.signal(number, before[signal.Signals(number)])

    for number in _ASKS:
        # Who started us may want it ignored, as nohup does.
        if (handler := signal.getsignal(number)) not in {signal.SIG_IGN, None}:
            before[number] = handler
            signal.signal(number, ask)
    try:
        yield wish
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
