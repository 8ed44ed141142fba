"""Something that people wish for by a signal: a stop, or the end of all patience."""

from __future__ import annotations

from queue import Empty, SimpleQueue


class Wish:
    """A flag that a signal's handler may raise, wherever it interrupted the main thread.

    That thread may be within `wait`, or within `utter` itself. An event of `threading` would then
    have it wait for a lock that it holds; putting into this queue takes none.
    """

    def __init__(self) -> None:
        self._uttered = False
        self._queue: SimpleQueue[None] = SimpleQueue()

    def utter(self) -> None:
        """Raise the flag; it stays up."""
        self._uttered = True
        self._queue.put(None)

    @property
    def uttered(self) -> bool:
        """Whether the flag is up."""
        return self._uttered

    def wait(self, seconds: float) -> bool:
        """Wait for the flag, for a while; tell whether it is up."""
        if not self._uttered:
            try:
                self._queue.get(timeout=seconds)
            except Empty:
                return self._uttered
            # For whoever else waits.
            self._queue.put(None)
        return self._uttered
