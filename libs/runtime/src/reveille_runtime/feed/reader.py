"""Reading a feed without losing what commits late.

Transactions commit in another order than they began, so "everything after the last row seen"
loses rows. A tail therefore remembers the *snapshot* it has read: new is what that snapshot could
not see. The durable cursor follows only below the snapshot's xmin, where no transaction runs any
more. While an old transaction holds the xmin back, a tail that reconnects gets rows again; none
is late or lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from reveille_runtime.feed.cursor import Cursor, CursorExpired
from reveille_runtime.queries import load_queries

if TYPE_CHECKING:
    import asyncpg

    from reveille_runtime.db import Database

Q = load_queries("reveille_runtime.feed", "feed.sql")
# As asyncpg reads it: (xmin, xmax, transactions running between them).
Snapshot = tuple[int, int, tuple[int, ...]]
_NOTHING: Snapshot = (0, 0, ())


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event as it is read. `cursor` may be stored once this and all before it are handled."""

    cursor: Cursor
    xid: int
    seq: int
    type: str
    workspace_id: UUID | None
    occurrence_key: str
    subject_id: str
    payload: Mapping[str, Any]
    trace_carrier: Mapping[str, str]
    created_at: datetime


@dataclass(frozen=True, slots=True)
class FeedPage:
    """A part of the feed. `cursor` is durable after it; `more`: read again without waiting."""

    events: tuple[StoredEvent, ...]
    cursor: Cursor
    more: bool


class FeedReader:
    """Opens tails on the feed of a schema."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def head(self) -> Cursor:
        """Give the cursor from which everything not yet visible will be delivered."""
        async with self._db.session() as tx:
            row = await tx.fetchrow(Q["feed_head"])
            if row is None:
                await tx.execute(Q["feed_begin_epoch"])
                row = await tx.fetchrow(Q["feed_head"])
        if row is None:
            raise CursorExpired("the database became another one while its head was read")
        return Cursor(row["epoch"], row["snapshot"][0], 0)

    def tail(self, cursor: Cursor | None, types: Sequence[str] = ()) -> FeedTail:
        """Follow the feed from a cursor, or from the head when there is none."""
        return FeedTail(self._db, cursor, types)

    async def read(
        self, cursor: Cursor | None, types: Sequence[str] = (), limit: int = 500
    ) -> FeedPage:
        """Read one page after a cursor; what is not yet settled comes again at the next call."""
        return await self.tail(cursor, types).poll(limit)


class FeedTail:
    """One reader's place in the feed: delivers each row once while it lives.

    A pass covers what one snapshot shows beyond the one before; its pages are read by several
    statements, all bounded by the snapshot of the first.
    """

    def __init__(self, db: Database, cursor: Cursor | None, types: Sequence[str] = ()) -> None:
        self._db = db
        self._cursor = cursor
        self._types = sorted(set(types)) or None
        self._seen: Snapshot | None = None if cursor is None else _NOTHING
        self._pass: Snapshot | None = None
        self._after = (0, 0) if cursor is None else (cursor.xid, cursor.seq)

    async def poll(self, limit: int = 500) -> FeedPage:
        """Read what is new, up to `limit` events.

        Raises:
            CursorExpired: the cursor is of another epoch, or retention went past it.
        """
        rows = await self._read(limit)
        here = rows[0]
        cursor = self._checked(here)
        bound: Snapshot = self._pass or here["snapshot"]
        if self._seen is None:
            self._seen, self._cursor = bound, Cursor(here["epoch"], bound[0], 0)
            return FeedPage((), self._cursor, more=False)
        settled = Cursor(cursor.epoch, bound[0], 0)
        events = []
        for row in rows:
            if row["xid"] is not None:
                position = Cursor(cursor.epoch, row["xid"], row["seq"])
                cursor = max(cursor, min(position, settled))
                events.append(_event(row, cursor))
        more = len(events) == limit
        if more:
            self._pass, self._after = bound, (events[-1].xid, events[-1].seq)
        else:
            cursor = max(cursor, settled)
            self._seen, self._pass, self._after = bound, None, (0, 0)
        self._cursor = cursor
        return FeedPage(tuple(events), cursor, more)

    async def _read(self, limit: int) -> list[asyncpg.Record]:
        _, xmax, running = self._seen or _NOTHING
        epoch = 0 if self._cursor is None else self._cursor.epoch
        # A tail that starts at the head needs the snapshot only.
        limit = 0 if self._seen is None else limit
        async with self._db.session() as tx:
            if self._cursor is not None and self._cursor.is_beginning and not epoch:
                epoch = await tx.fetchval(Q["feed_begin_epoch"])
                self._cursor = Cursor.beginning(epoch)
            arguments = (epoch, *self._after, running, xmax, self._pass, self._types, limit)
            rows = await tx.fetch(Q["feed_read"], *arguments)
            if not rows:
                await tx.execute(Q["feed_begin_epoch"])
                rows = await tx.fetch(Q["feed_read"], *arguments)
        if not rows:
            raise CursorExpired("the database became another one while it was read")
        return rows

    def _checked(self, here: asyncpg.Record) -> Cursor:
        """Give the cursor in force, if everything after it can still be told."""
        floor = Cursor(here["epoch"], here["floor_xid"], here["floor_seq"])
        cursor = self._cursor
        if cursor is None:
            return floor
        if cursor.epoch != here["epoch"]:
            raise CursorExpired("the cursor is from before a failover or a restore of the database")
        if cursor.is_beginning:
            return cursor
        if cursor < floor:
            raise CursorExpired("events after the cursor are no longer kept")
        if cursor.xid > here["snapshot"][1]:
            # A copy of the data files was put back: nothing else tells of it.
            raise CursorExpired("the cursor is from a future that this database never had")
        return cursor


def _event(row: asyncpg.Record, cursor: Cursor) -> StoredEvent:
    return StoredEvent(
        cursor=cursor,
        xid=row["xid"],
        seq=row["seq"],
        type=row["type"],
        workspace_id=row["workspace_id"],
        occurrence_key=row["occurrence_key"],
        subject_id=row["subject_id"],
        payload=row["payload"],
        trace_carrier=row["trace_carrier"],
        created_at=row["created_at"],
    )
