"""The attempts at one batch: run it, halve it when its data is bad, repeat it when that may help.

Items with the same fate are answered together, so that every caller hears of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from reveille_runtime import logs
from reveille_runtime.backoff import Backoff
from reveille_runtime.batch_entry import Entry

I = TypeVar("I")  # noqa: E741 - an item
R = TypeVar("R")
_log = logs.get_logger(__name__)
_REPEAT = Backoff(first=0.02, longest=1.0)


class Attempts(Generic[I, R]):
    """Takes batches to their ends; the batcher's documentation tells which error means what."""

    def __init__(
        self,
        name: str,
        run: Callable[[Sequence[I]], Awaitable[Sequence[R | Exception]]],
        *,
        transient: Callable[[BaseException], bool],
        poisoned: Callable[[BaseException], bool],
    ) -> None:
        self._name = name
        self._run = run
        self._transient = transient
        self._poisoned = poisoned

    async def until_answered(
        self,
        batch: list[Entry[I, R]],
        answer: Callable[[list[Entry[I, R]], Sequence[R | Exception], bool], None],
        *,
        last: bool = True,
    ) -> None:
        """Run a batch until each of its items is answered or has no caller any more.

        `answer` gets items, a result for each, and whether nothing of the batch runs after them.
        """
        attempt = 0
        while live := [entry for entry in batch if not entry.answer.done()]:
            attempt += 1
            try:
                results = await self._results([entry.item for entry in live])
            except Exception as error:  # noqa: BLE001 - every caller gets it
                if self._poisoned(error) and len(live) > 1:
                    middle = len(live) // 2
                    await self.until_answered(live[:middle], answer, last=False)
                    await self.until_answered(live[middle:], answer, last=last)
                elif not self._transient(error) or not await self._pause(live, attempt, error):
                    answer(live, [error] * len(live), last)
            else:
                answer(live, results, last)

    async def _results(self, items: list[I]) -> Sequence[R | Exception]:
        results = await self._run(items)
        if len(results) != len(items):
            raise RuntimeError(f"{self._name}: {len(results)} results for {len(items)} items")
        return results

    async def _pause(self, live: list[Entry[I, R]], attempt: int, error: Exception) -> bool:
        """Wait before a repeat; False when nobody's patience lasts that long."""
        delay = _REPEAT.delay(attempt, id(self))
        now = asyncio.get_running_loop().time()
        patient = 0
        for entry in live:
            if now + delay < entry.patience:
                patient += 1
            else:
                entry.settle(error)
        if not patient:
            return False
        _log.warning(
            "A batch is repeated.",
            action="batcher.repeat",
            batcher=self._name,
            attempt=attempt,
            items=patient,
            cause=type(error).__name__,
        )
        await asyncio.sleep(delay)
        return True
