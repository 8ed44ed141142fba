"""The lock order over real rows: no deadlock, and a wrong order never reaches the database."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from reveille_runtime.db import Database, Tx
from reveille_runtime.lockorder import Level, LockOrder, LockOrderViolation
from reveille_runtime.queries import parse_queries
from reveille_testkit.database import TestDatabase

DDL = "CREATE TABLE agents (id uuid PRIMARY KEY, name text NOT NULL);"
LOCK = parse_queries(
    """
-- name: lock_agents
-- In the order of their ids. $1 ids
SELECT id, name FROM agents WHERE id = ANY ($1::uuid[]) ORDER BY id FOR NO KEY UPDATE;
""",
    "test",
)["lock_agents"]
IDS = [UUID(int=number) for number in range(1, 21)]


@pytest.fixture
async def db(scratch: TestDatabase) -> Database:
    await scratch.ddl("scratch", DDL)
    admin = await scratch.admin()
    await admin.execute("SET search_path = scratch")
    await admin.executemany("INSERT INTO agents VALUES ($1, 'n')", [(each,) for each in IDS])
    return await scratch.open("scratch")


async def test_rows_come_back_sorted_and_gone_ones_are_missing(db: Database) -> None:
    async with db.transaction() as tx:
        locks = LockOrder()
        rows = await locks.take(tx, Level.AGENT, LOCK, [IDS[3], IDS[1], UUID(int=999), IDS[1]])
        assert [row["id"] for row in rows] == [IDS[1], IDS[3]]
        assert await locks.take(tx, Level.ISSUE, LOCK, []) == []


async def test_transactions_that_name_rows_in_opposite_orders_do_not_deadlock(
    db: Database,
) -> None:
    # A deadlock would be raised here: nothing repeats it.
    async def lock(ids: list[UUID]) -> None:
        for _ in range(10):
            async with db.transaction() as tx:
                await LockOrder().take(tx, Level.AGENT, LOCK, ids)

    await asyncio.gather(lock(IDS), lock(IDS[::-1]), lock(IDS[5:] + IDS[:5]))


async def test_a_wrong_order_is_refused_before_anything_is_locked(
    db: Database, scratch: TestDatabase
) -> None:
    async def locked_rows(tx: Tx) -> int:
        admin = await scratch.admin()
        free = await admin.fetch("SELECT id FROM scratch.agents FOR UPDATE SKIP LOCKED")
        return len(IDS) - len(free)

    async with db.transaction() as tx:
        locks = LockOrder()
        locks.note(Level.RUN, [IDS[0]])
        with pytest.raises(LockOrderViolation):
            await locks.take(tx, Level.AGENT, LOCK, IDS)
        assert await locked_rows(tx) == 0


async def test_a_guard_belongs_to_one_transaction(db: Database) -> None:
    locks = LockOrder()
    async with db.transaction() as one, db.transaction() as two:
        await locks.take(one, Level.AGENT, LOCK, [IDS[0]])
        with pytest.raises(LockOrderViolation):
            await locks.take(two, Level.RUN, LOCK, [IDS[1]])
