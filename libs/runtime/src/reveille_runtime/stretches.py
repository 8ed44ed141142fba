"""Removing what is old in stretches, each a transaction of its own, for as long as the time lasts.

Work that is cut short has done something, and the next run of it goes on.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

# What of a job's ten minutes is used.
PATIENCE_SECONDS = 480.0


class Stretches:
    """One run: `size` is how many rows a stretch may take, `after` is called behind each."""

    def __init__(
        self,
        size: int,
        *,
        after: Callable[[], None],
        patience: float = PATIENCE_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.size = size
        # Whether everything asked for was done to its end.
        self.finished = True
        self._after = after
        self._monotonic = monotonic
        self._until = monotonic() + patience

    @property
    def in_time(self) -> bool:
        """Whether another stretch may begin."""
        return self._monotonic() < self._until

    async def all(self, stretch: Callable[[], Awaitable[tuple[int, bool]]]) -> int:
        """Repeat a stretch while it says that there is more; give how many rows went in all."""
        removed, more = 0, True
        while more and self.in_time:
            count, more = await stretch()
            self._after()
            removed += count
        self.finished = self.finished and not more
        return removed

    async def all_rows(self, stretch: Callable[[], Awaitable[int]]) -> int:
        """Do the same with a stretch that only counts its rows: a short one is the last."""

        async def counted() -> tuple[int, bool]:
            count = await stretch()
            return count, count >= self.size

        return await self.all(counted)
