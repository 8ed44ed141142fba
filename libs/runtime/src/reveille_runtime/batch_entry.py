"""One item that was handed to a batcher, and how long its caller waits for the answer."""

from __future__ import annotations

import asyncio
import contextvars
import math
from typing import Any, Generic, Protocol, TypeVar

I = TypeVar("I")  # noqa: E741 - an item
R = TypeVar("R")


class ConflictKey(Protocol):
    """What a conflict key must do: be comparable with its like, and hashable."""

    def __hash__(self) -> int: ...
    def __lt__(self, other: Any, /) -> bool: ...


class Entry(Generic[I, R]):
    """Compared by identity: equal items of two callers are two entries."""

    __slots__ = ("answer", "item", "key", "patience", "size")

    def __init__(
        self,
        item: I,
        answer: asyncio.Future[R],
        key: ConflictKey | None,
        size: int,
        patience: float,
    ) -> None:
        self.item = item
        self.answer = answer
        self.key = key
        self.size = size
        # Until when its caller waits, by the loop's clock.
        self.patience = patience

    def settle(self, result: R | Exception) -> None:
        """Answer the caller, unless that one has an answer or has gone."""
        if self.answer.done():
            return
        if isinstance(result, Exception):
            self.answer.set_exception(result)
        else:
            self.answer.set_result(result)

    def abandon(self) -> None:
        """Note that nobody waits for the answer any more, whatever it is."""
        if not self.answer.cancel() and not self.answer.cancelled():
            # Looked at, so that the loop does not report an error that nobody saw.
            self.answer.exception()


class Patience:
    """Ends the wait of callers whose time is over, by one timer for all of them.

    Nearly all are answered long before: setting a timer for each would cost more than their waits.
    """

    def __init__(self, context: contextvars.Context) -> None:
        self._context = context
        self._waiting: set[Entry[Any, Any]] = set()
        self._rings_at = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, entry: Entry[Any, Any]) -> None:
        """Let an entry wait until its patience ends."""
        self._waiting.add(entry)
        if entry.patience < self._rings_at:
            self._set(entry.patience)

    def forget(self, entry: Entry[Any, Any]) -> None:
        """Leave an entry alone."""
        self._waiting.discard(entry)

    def _set(self, moment: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at = moment
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(moment, self._ring, context=self._context)

    def _ring(self) -> None:
        self._timer = None
        self._rings_at = math.inf
        now = asyncio.get_running_loop().time()
        for entry in [each for each in self._waiting if each.patience <= now]:
            self._waiting.remove(entry)
            entry.settle(TimeoutError())
        if self._waiting:
            self._set(min(each.patience for each in self._waiting))
