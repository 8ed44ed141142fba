"""The one order in which rows are locked, and a guard that holds a transaction to it.

Everybody takes levels from the top, and ids within a level ascending; then no two transactions
can wait for each other. Lock in one statement and read counts and gates in a later one: the later
statement sees what was committed while the lock was awaited.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    import asyncpg

    from reveille_runtime.db import Tx
    from reveille_runtime.queries import Query


class Level(IntEnum):
    """What is locked, from first to last."""

    AUTOPILOT = 10
    WORKSPACE = 20
    AGENT = 30
    ISSUE = 40
    WAKEUP = 50
    RUN = 60
    BUDGET = 70


class LockOrderViolation(AssertionError):
    """A lock was asked for after one that comes later; a bug that would deadlock under load."""


class LockOrder:
    """What one transaction has locked so far. Make one per transaction and pass it along.

    The query given to `take` gets the ids as `$1 uuid[]` and must itself say `ORDER BY id` beside
    its `FOR UPDATE`: PostgreSQL locks rows in the order in which it returns them.
    """

    __slots__ = ("_held", "_last", "_tx")

    def __init__(self) -> None:
        self._tx: Tx | None = None
        self._held: set[tuple[Level, UUID]] = set()
        self._last: tuple[Level, UUID] | None = None

    async def take(
        self, tx: Tx, level: Level, query: Query, ids: Iterable[UUID]
    ) -> list[asyncpg.Record]:
        """Lock rows, sorted and each once, and give what the query returns (gone rows are missing).

        Raises:
            LockOrderViolation: a later level or id is already held, or another transaction uses
            this.
        """
        if self._tx is None:
            self._tx = tx
        elif self._tx.raw is not tx.raw:
            raise LockOrderViolation("this lock order belongs to another transaction")
        ordered = self.note(level, ids)
        return await tx.fetch(query, ordered) if ordered else []

    def note(self, level: Level, ids: Iterable[UUID]) -> list[UUID]:
        """Record locks that another statement takes (an UPDATE locks too); returns the ids sorted.

        Rows already held may be named again: nothing can be waited for.
        """
        ordered = sorted(set(ids))
        new = [row_id for row_id in ordered if (level, row_id) not in self._held]
        if new and self._last is not None and (level, new[0]) < self._last:
            last_level, last_id = self._last
            raise LockOrderViolation(
                f"{level.name} {new[0]} asked for while {last_level.name} {last_id} is held"
            )
        if new:
            self._last = (level, new[-1])
            self._held.update((level, row_id) for row_id in new)
        return ordered

    def holds(self, level: Level, row_id: UUID) -> bool:
        """Tell whether this transaction has locked the row through this guard."""
        return (level, row_id) in self._held
