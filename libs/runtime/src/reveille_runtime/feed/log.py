"""Writing to a feed: events in the business transaction, and retention."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

from reveille_runtime.queries import Query, load_queries

if TYPE_CHECKING:
    from reveille_runtime.db import Database, Tx

Q = load_queries("reveille_runtime.feed", "feed.sql")
_PARAMETER = re.compile(r"\$(\d+)")
_EVENT_COLUMNS = 6
_MADE = f"SELECT unnest(${_EVENT_COLUMNS + 1}::uuid[])"


@dataclass(frozen=True, slots=True)
class FeedEvent:
    """Something that happened, as the business transaction tells it.

    `payload` is JSON and is kept small: ids and outcomes, not contents.
    """

    type: str
    subject_id: UUID | str
    workspace_id: UUID | None = None
    occurrence_key: str = ""
    payload: Mapping[str, Any] = field(default_factory=dict)
    trace_carrier: Mapping[str, str] = field(default_factory=dict)


async def append(tx: Tx, events: Sequence[FeedEvent]) -> None:
    """Write events in this transaction: they exist exactly if its other writes do."""
    if events:
        await tx.execute(Q["feed_append"], *_columns(events))


async def make_and_tell(
    tx: Tx, insertion: Query, values: Sequence[object], events: Sequence[FeedEvent]
) -> list[str]:
    """Run an insertion and write the events of what it made, in one statement.

    The insertion takes `values` and returns the id of each row it has made. An event whose subject
    is not among them is not written; gives the subjects of the others, in order.
    """
    found = await tx.fetch(_told(insertion), *_columns(events), *values)
    return [row["subject_id"] for row in found]


def _columns(events: Sequence[FeedEvent]) -> tuple[Sequence[object], ...]:
    return (
        [event.type for event in events],
        [event.workspace_id for event in events],
        [event.occurrence_key for event in events],
        [str(event.subject_id) for event in events],
        [dict(event.payload) for event in events],
        [dict(event.trace_carrier) for event in events],
    )


@cache
def _told(insertion: Query) -> Query:
    """Put an insertion in the place of the ids that it makes; its values come after the events'."""
    outer = Q["feed_append_made"].sql
    inner = _PARAMETER.sub(lambda each: f"${int(each[1]) + _EVENT_COLUMNS}", insertion.sql)
    return Query(insertion.name, outer.replace(_MADE, inner), insertion.why)


async def begin_epoch(db: Database) -> int:
    """Begin this database's epoch unless it has begun; a producer calls it at start.

    Otherwise the first event of a new life begins it, and the other writers wait for that
    transaction to end.
    """
    async with db.session() as tx:
        epoch: int = await tx.fetchval(Q["feed_begin_epoch"])
        return epoch


async def prune(db: Database, keep: timedelta, limit: int = 1000) -> int:
    """Remove up to `limit` of the events older than `keep`; returns how many, less means done.

    Readers whose cursor lies before the last one removed get CursorExpired.
    """
    async with db.transaction() as tx:
        removed: int = await tx.fetchval(Q["feed_prune"], keep, limit)
        return removed
