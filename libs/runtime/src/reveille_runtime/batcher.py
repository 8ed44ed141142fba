"""Group commit for callers with one item each: while batches are in flight, the next one fills.

An idle batcher sends an item at once; under load a batch is what arrived while the ones before it
ran, and begins before their callers go on. The batch function sees items sorted by conflict key,
never two with an equal one: one multi-row statement neither deadlocks with its like nor meets its
own rows.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from operator import attrgetter
from typing import Any, Generic, TypeVar

from reveille_runtime.batch_attempts import Attempts
from reveille_runtime.batch_entry import ConflictKey, Entry, Patience
from reveille_runtime.errors import ResourceExhausted, Unavailable
from reveille_runtime.sqlstate import is_bad_data, is_transient

I = TypeVar("I")  # noqa: E741 - an item
R = TypeVar("R")


class Batcher(Generic[I, R]):
    """Collects items of many callers into batches for one function.

    `run` gets at most `max_items` items (`max_bytes` by `size`, a larger single item travels
    alone) and returns one result per item, in order; a result that is an exception is raised to
    its caller. What `run` raises decides: what `poisoned` accepts (SQLSTATE 22/23) halves the batch
    until the bad item stands alone and its caller gets that error; what `transient` accepts (40,
    08, 57, a lost connection) repeats the batch with backoff for as long as its callers wait
    (`retry_for` seconds when they set no limit); anything else goes to every caller of the batch. A
    repeat may follow a COMMIT of unknown outcome, so ids are made by callers and the statement must
    tolerate its own rows.

    Items with an equal `key` never share a batch and never run at the same time: the later one
    waits for the earlier one's answer. All of them are answered, which is what an insert that
    de-duplicates needs.

    What a batch costs by itself is shared by more items when fewer run beside each other: with
    `gather` a batch that is not full waits for the one before it, but no longer than that many
    seconds, so that a slow one holds nobody up. With `linger` too, one that follows another within
    the seconds of `gather` waits that long for company: what was answered together asks again
    together, one after the other. What comes to an idle batcher never waits.
    """

    def __init__(
        self,
        name: str,
        run: Callable[[Sequence[I]], Awaitable[Sequence[R | Exception]]],
        *,
        max_items: int = 200,
        max_bytes: int = 1 << 20,
        max_in_flight: int = 4,
        gather: float = 0.0,
        linger: float = 0.0,
        max_queue: int = 10_000,
        size: Callable[[I], int] | None = None,
        key: Callable[[I], ConflictKey] | None = None,
        retry_for: float = 30.0,
        transient: Callable[[BaseException], bool] = is_transient,
        poisoned: Callable[[BaseException], bool] = is_bad_data,
    ) -> None:
        self.name = name
        self._attempts = Attempts(name, run, transient=transient, poisoned=poisoned)
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._max_in_flight = max_in_flight
        self._gather = gather
        self._linger = linger
        # When the last batch began, and since when something is ready, by the loop's clock.
        self._began = -math.inf
        self._ready_since = 0.0
        self._max_queue = max_queue
        self._size = size
        self._key = key
        self._retry_for = retry_for
        # A batch serves many callers: it must not run under the trace or the actor of one of them.
        self._context = contextvars.Context()
        self._ready: OrderedDict[Entry[I, R], None] = OrderedDict()
        # Keys that are queued or in flight, each with those that wait for it.
        self._followers: dict[ConflictKey, OrderedDict[Entry[I, R], None]] = {}
        self._queued = 0
        self._batches: set[asyncio.Task[Any] | None] = set()
        self._pump_due = False
        self._alarm: tuple[float, asyncio.Handle] | None = None
        self._patience = Patience(self._context)
        self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def queued(self) -> int:
        """Count the items that wait for a batch."""
        return self._queued

    @property
    def in_flight(self) -> int:
        """Count the batches that run."""
        return len(self._batches)

    async def submit(self, item: I, timeout: float | None = None) -> R:
        """Put the item into a batch and wait for its result.

        Raises:
            ResourceExhausted: `max_queue` items wait already; nothing was done. Unavailable: the
            batcher is closed; nothing was done. TimeoutError: `timeout` seconds passed. An item
            still queued never runs; one whose batch had started may have been written.
        """
        loop = asyncio.get_running_loop()
        patience = loop.time() + (self._retry_for if timeout is None else timeout)
        entry = self._put(item, patience)
        if timeout is not None:
            self._patience.watch(entry)
        try:
            return await entry.answer
        finally:
            self._patience.forget(entry)
            self._leave(entry)

    async def submit_all(self, items: Sequence[I]) -> list[R | Exception]:
        """Put items in as `submit` does each, and wait for all of their results, in order.

        What `submit` would raise stands in the item's place. One caller of many items costs less
        than many callers, and their items share batches all the same.
        """
        patience = asyncio.get_running_loop().time() + self._retry_for
        entries: list[Entry[I, R]] = []
        refusals: list[Exception] = []
        for item in items:
            try:
                entries.append(self._put(item, patience))
            except (ResourceExhausted, Unavailable) as refusal:
                # And so are all that come after it.
                refusals.append(refusal)
        results: list[R | Exception] = []
        try:
            for entry in entries:
                try:
                    results.append(await entry.answer)
                except Exception as error:  # noqa: BLE001 - the result of its item
                    results.append(error)
        finally:
            for entry in entries:
                entry.abandon()
                self._leave(entry)
        return [*results, *refusals]

    async def close(self) -> None:
        """Refuse new items, run what is queued and wait for it; safe to call twice."""
        self._closed = True
        await self._idle.wait()

    def _put(self, item: I, patience: float) -> Entry[I, R]:
        if self._closed:
            raise Unavailable("NOT_SERVING", f"{self.name} takes no more items")
        if self._queued >= self._max_queue:
            raise ResourceExhausted(
                "OVERLOADED", f"{self.name} has {self._queued} items waiting", retry_after=1.0
            )
        entry: Entry[I, R] = Entry(
            item,
            asyncio.get_running_loop().create_future(),
            self._key(item) if self._key is not None else None,
            self._size(item) if self._size is not None else 0,
            patience,
        )
        self._enqueue(entry)
        return entry

    def _enqueue(self, entry: Entry[I, R]) -> None:
        self._queued += 1
        self._idle.clear()
        if entry.key is not None:
            if entry.key in self._followers:
                self._followers[entry.key][entry] = None
                return
            self._followers[entry.key] = OrderedDict()
        if not self._ready:
            self._ready_since = asyncio.get_running_loop().time()
        self._ready[entry] = None
        self._pump_soon()

    def _leave(self, entry: Entry[I, R]) -> None:
        """Forget a caller that was answered, gave up or was cancelled; its batch goes on."""
        if entry in self._ready:
            del self._ready[entry]
            self._queued -= 1
            self._release_key(entry)
        elif entry.key is not None and entry in self._followers.get(entry.key, ()):
            del self._followers[entry.key][entry]
            self._queued -= 1
        self._note_idle()

    def _release_key(self, entry: Entry[I, R]) -> None:
        if entry.key is None:
            return
        key, entry.key = entry.key, None
        followers = self._followers[key]
        if not followers:
            del self._followers[key]
            return
        successor, _ = followers.popitem(last=False)
        self._ready[successor] = None
        # It is older than whatever arrived while it waited for its key.
        self._ready.move_to_end(successor, last=False)
        self._pump_soon()

    def _pump_soon(self) -> None:
        """Cut batches after the callers that are ready to run now have submitted theirs."""
        if not self._pump_due:
            self._pump_due = True
            asyncio.get_running_loop().call_soon(self._pump, context=self._context)

    def _pump(self) -> None:
        self._pump_due = False
        loop = asyncio.get_running_loop()
        while self._ready and len(self._batches) < self._max_in_flight:
            now = loop.time()
            if len(self._ready) < self._max_items and now < (due := self._due(now)):
                self._pump_at(due)
                return
            self._began = now
            batch = self._cut()
            # Each in an empty context of its own: batches do not see each other's spans either.
            own = contextvars.Context()
            task = loop.create_task(self._serve(batch), name=f"batch {self.name}", context=own)
            self._batches.add(task)
            task.add_done_callback(self._served, context=self._context)

    def _due(self, now: float) -> float:
        """Say when a batch that is not full may begin."""
        busy_until = self._began + self._gather
        if self._batches:
            return busy_until
        return self._ready_since + self._linger if now < busy_until else now

    def _pump_at(self, moment: float) -> None:
        # Not every handle says when: uvloop's does not where the moment is as good as now.
        if self._alarm is not None:
            if self._alarm[0] <= moment:
                return
            self._alarm[1].cancel()
        loop = asyncio.get_running_loop()
        self._alarm = moment, loop.call_at(moment, self._rung, context=self._context)

    def _rung(self) -> None:
        self._alarm = None
        self._pump()

    def _cut(self) -> list[Entry[I, R]]:
        """Take a batch off the queue: the oldest that may run, up to either limit."""
        batch: list[Entry[I, R]] = []
        weight = 0
        while self._ready and len(batch) < self._max_items:
            entry = next(iter(self._ready))
            weight += entry.size
            if batch and weight > self._max_bytes:
                break
            del self._ready[entry]
            batch.append(entry)
        self._queued -= len(batch)
        if self._key is not None:
            batch.sort(key=attrgetter("key"))
        return batch

    def _served(self, task: asyncio.Task[None]) -> None:
        self._batches.discard(task)
        if self._ready:
            self._pump_soon()
        self._note_idle()

    def _note_idle(self) -> None:
        if not self._queued and not self._batches:
            self._idle.set()

    async def _serve(self, batch: list[Entry[I, R]]) -> None:
        try:
            await self._attempts.until_answered(batch, self._answer)
        finally:
            for entry in batch:
                if not entry.answer.done():
                    # Only when the process stops in the middle: the outcome is unknown.
                    entry.answer.set_exception(
                        Unavailable("NOT_SERVING", f"a batch of {self.name} was interrupted")
                    )
                self._release_key(entry)

    def _answer(
        self, live: list[Entry[I, R]], results: Sequence[R | Exception], last: bool
    ) -> None:
        """Give out results. First the next batch begins: callers have much to do with them."""
        for entry in live:
            self._release_key(entry)
        if last:
            self._batches.discard(asyncio.current_task())
            self._pump()
        for entry, result in zip(live, results, strict=True):
            entry.settle(result)
