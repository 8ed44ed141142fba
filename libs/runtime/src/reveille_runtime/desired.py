"""Desired state of another service: send what is, until it is there.

A row carries `revision`, raised by each change, and `synced_revision`. The relay sends the current
state of rows where they differ, and writes back the revision it sent by compare-and-set; a change
made meanwhile leaves the row different and is sent again. The same query is the reconcile. The
receiver ignores older revisions and keeps tombstones. A state that the receiver refuses is offered
again after growing pauses, since another release of the receiver may take it, and what it said is
written into the row.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar
from uuid import UUID

from reveille_runtime import logs
from reveille_runtime.backoff import Backoff
from reveille_runtime.rpc_errors import is_passing

_log = logs.get_logger(__name__)
_START = UUID(int=0)
_OUTAGE = Backoff(first=0.5, longest=30.0)
_REFUSAL = Backoff(first=5.0, longest=300.0)


class DesiredRow(Protocol):
    """The state of one row, as it shall be at the receiver."""

    @property
    def id(self) -> UUID:
        """The row's id, here and at the receiver."""
        ...

    @property
    def revision(self) -> int:
        """Raised by each change; the receiver keeps the highest it has seen."""
        ...


RowT = TypeVar("RowT", bound=DesiredRow)


@dataclass(frozen=True, slots=True)
class Pushed:
    """What became of the rows that were sent; those in neither part are sent again soon."""

    taken: Collection[UUID]
    # Rows that the receiver will not have as they are, and its words for it.
    refused: Mapping[UUID, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Refusal:
    """A refused state: it rests until `due` unless the row changes."""

    revision: int
    cause: str
    times: int
    due: float


class Relay(Generic[RowT]):
    """Sends rows of one kind to one receiver.

    `pending(after, limit)` gives rows that differ, with an id above `after`, by id; `load(ids)`
    gives those of the named rows that differ; `push(rows)` sends them and tells what was
    taken and what was refused; `mark(ids, revisions)` sets synced_revision of rows whose revision
    is still the one sent, and `note(ids, revisions, causes)` writes their refusal down. One process
    never has two pushes of one row under way. `step` fits a Loop: it returns 0 while there is more
    to send and a growing pause while the receiver is away. `monotonic` is the clock of the pauses.
    """

    def __init__(
        self,
        name: str,
        *,
        pending: Callable[[UUID, int], Awaitable[Sequence[RowT]]],
        load: Callable[[Sequence[UUID]], Awaitable[Sequence[RowT]]],
        push: Callable[[Sequence[RowT]], Awaitable[Pushed]],
        mark: Callable[[Sequence[UUID], Sequence[int]], Awaitable[None]],
        note: Callable[[Sequence[UUID], Sequence[int], Sequence[str]], Awaitable[None]],
        batch: int = 200,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._pending = pending
        self._load = load
        self._push = push
        self._mark = mark
        self._note = note
        self._batch = batch
        self._monotonic = monotonic
        self._refusals: dict[UUID, _Refusal] = {}
        # Held from reading a row's state until the row is in `_under_way`.
        self._choosing = asyncio.Lock()
        self._under_way: dict[UUID, asyncio.Event] = {}
        self._after = _START
        self._outages = 0

    async def step(self) -> float | None:
        """Send one batch. Rows the receiver does not take are passed over until the next round."""
        async with self._choosing:
            found = await self._pending(self._after, self._batch)
            rows = [row for row in found if row.id not in self._under_way and self._is_due(row)]
            done = self._reserve(rows)
        # On by id, whatever happens now: rows that are refused never stand in the others' way.
        full = len(found) == self._batch
        self._forget_settled(found, full=full)
        self._after = found[-1].id if full else _START
        try:
            await self._send(rows)
        except Exception as error:
            if not is_passing(error):
                raise
            return self._outage(error)
        finally:
            self._release(rows, done)
        self._outages = 0
        return 0.0 if full else None

    async def push_now(self, row_id: UUID, timeout: float = 2.0) -> bool:
        """Send one row before its caller is answered; False when the relay has to go on with it."""
        try:
            async with asyncio.timeout(timeout):
                return await self._push_one(row_id)
        except Exception as error:
            if not is_passing(error):
                raise
            _log.info(
                "A row will be sent later.",
                action="relay.push_deferred",
                relay=self.name,
                id=str(row_id),
                cause=type(error).__name__,
            )
            return False

    async def _push_one(self, row_id: UUID) -> bool:
        while True:
            async with self._choosing:
                earlier = self._under_way.get(row_id)
                if earlier is None:
                    rows = await self._load([row_id])
                    done = self._reserve(rows)
                    break
            await earlier.wait()
        try:
            # Nothing to send means that it is there already.
            return not rows or row_id in await self._send(rows)
        finally:
            self._release(rows, done)

    async def _send(self, rows: Sequence[RowT]) -> Collection[UUID]:
        if not rows:
            return ()
        pushed = await self._push(rows)
        synced = [row for row in rows if row.id in pushed.taken]
        for row in synced:
            self._refusals.pop(row.id, None)
        if synced:
            await self._mark([row.id for row in synced], [row.revision for row in synced])
        await self._refused([row for row in rows if row.id in pushed.refused], pushed.refused)
        return pushed.taken

    async def _refused(self, rows: Sequence[RowT], causes: Mapping[UUID, str]) -> None:
        """Let refused rows rest; what is new about them is told once and written down."""
        news: list[RowT] = []
        for row in rows:
            cause, before = causes[row.id], self._refusals.get(row.id)
            known = before is not None and (before.revision, before.cause) == (row.revision, cause)
            times = before.times + 1 if before is not None and known else 1
            due = self._monotonic() + _REFUSAL.delay(times, row.id)
            self._refusals[row.id] = _Refusal(row.revision, cause, times, due)
            if known:
                continue
            news.append(row)
            _log.error(
                "The receiver refuses a row; it is offered again now and then.",
                action="relay.refused",
                relay=self.name,
                id=str(row.id),
                revision=row.revision,
                cause=cause,
            )
        if news:
            await self._note(
                [row.id for row in news],
                [row.revision for row in news],
                [causes[row.id] for row in news],
            )

    def _is_due(self, row: RowT) -> bool:
        refusal = self._refusals.get(row.id)
        if refusal is None or refusal.revision != row.revision:
            return True
        return refusal.due <= self._monotonic()

    def _forget_settled(self, found: Sequence[RowT], *, full: bool) -> None:
        """Forget refusals of rows that this page would have held: they differ no more."""
        if not self._refusals:
            return
        differing = {row.id for row in found}
        for row_id in [*self._refusals]:
            in_page = self._after < row_id and (not full or row_id <= found[-1].id)
            if in_page and row_id not in differing:
                del self._refusals[row_id]

    def _reserve(self, rows: Sequence[RowT]) -> asyncio.Event:
        done = asyncio.Event()
        for row in rows:
            self._under_way[row.id] = done
        return done

    def _release(self, rows: Sequence[RowT], done: asyncio.Event) -> None:
        for row in rows:
            del self._under_way[row.id]
        done.set()

    def _outage(self, error: Exception) -> float:
        self._outages += 1
        if self._outages == 1:
            _log.warning(
                "The receiver is away; what it lacks will be sent when it is back.",
                action="relay.outage",
                relay=self.name,
                cause=type(error).__name__,
            )
        # The rows that were not sent come first again.
        self._after = _START
        return _OUTAGE.delay(self._outages, self.name)
