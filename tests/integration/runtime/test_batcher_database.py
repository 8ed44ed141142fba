"""The batcher over a real table: what one bad item, a lost COMMIT or a duplicate does to others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import asyncpg
import pytest

from reveille_runtime.batcher import Batcher
from reveille_runtime.db import Database
from reveille_runtime.ids import new_id
from reveille_runtime.queries import parse_queries
from reveille_testkit.database import TestDatabase

DDL = """
CREATE TABLE deliveries (
    id uuid PRIMARY KEY,
    dedupe_key text NOT NULL UNIQUE,
    body text NOT NULL CHECK (body <> 'forbidden')
);
"""
Q = parse_queries(
    """
-- name: insert_deliveries
-- Store what is new. $1 ids, $2 dedupe keys, $3 bodies
INSERT INTO deliveries (id, dedupe_key, body)
SELECT id, dedupe_key, body
FROM unnest($1::uuid[], $2::text[], $3::text[]) AS d (id, dedupe_key, body)
ON CONFLICT DO NOTHING;

-- name: find_deliveries
-- Who holds a key now, in a statement after the insert. $1 dedupe keys
SELECT dedupe_key, id FROM deliveries WHERE dedupe_key = ANY ($1::text[]);

-- name: all_deliveries
-- Everything stored.
SELECT id, dedupe_key, body FROM deliveries;
""",
    "test",
)


@dataclass(frozen=True)
class Delivery:
    id: UUID
    dedupe_key: str
    body: str = "body"


class Store:
    """Inserts batches, as a gateway does: the answer is the id that holds the key."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.batches = 0
        self.lose_commits = 0
        self.deadlocks = 0

    async def __call__(self, batch: Sequence[Delivery]) -> list[UUID]:
        try:
            return await self.insert(batch)
        except asyncpg.DeadlockDetectedError:
            self.deadlocks += 1
            raise

    async def insert(self, batch: Sequence[Delivery]) -> list[UUID]:
        self.batches += 1
        keys = [item.dedupe_key for item in batch]
        async with self.db.transaction() as tx:
            await tx.execute(
                Q["insert_deliveries"],
                [item.id for item in batch],
                keys,
                [item.body for item in batch],
            )
            rows = await tx.fetch(Q["find_deliveries"], keys)
        if self.lose_commits:
            # Committed, and then the answer was lost on the way.
            self.lose_commits -= 1
            raise asyncpg.ConnectionDoesNotExistError("connection was closed")
        holders = {row["dedupe_key"]: row["id"] for row in rows}
        return [holders[key] for key in keys]

    async def stored(self) -> dict[str, UUID]:
        async with self.db.session() as tx:
            return {row["dedupe_key"]: row["id"] for row in await tx.fetch(Q["all_deliveries"])}


@pytest.fixture
async def store(scratch: TestDatabase) -> Store:
    await scratch.ddl("scratch", DDL)
    return Store(await scratch.open("scratch"))


@pytest.fixture
def batcher(store: Store) -> Batcher[Delivery, UUID]:
    return Batcher("deliveries", store, key=lambda item: item.dedupe_key)


async def submit_all(
    batcher: Batcher[Delivery, UUID], items: Sequence[Delivery]
) -> list[UUID | BaseException]:
    return await asyncio.gather(*(batcher.submit(item) for item in items), return_exceptions=True)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("forbidden", asyncpg.CheckViolationError),
        ("nul \x00 byte", asyncpg.CharacterNotInRepertoireError),
    ],
)
async def test_a_row_the_database_refuses_takes_no_other_row_with_it(
    batcher: Batcher[Delivery, UUID], store: Store, body: str, error: type[Exception]
) -> None:
    items = [Delivery(new_id(), f"k{n:03}", body if n == 57 else "fine") for n in range(100)]
    answers = await submit_all(batcher, items)

    assert isinstance(answers[57], error)
    good = [item for n, item in enumerate(items) if n != 57]
    assert [answer for n, answer in enumerate(answers) if n != 57] == [item.id for item in good]
    assert await store.stored() == {item.dedupe_key: item.id for item in good}


async def test_a_commit_of_unknown_outcome_is_repeated_and_stored_once(
    batcher: Batcher[Delivery, UUID], store: Store
) -> None:
    store.lose_commits = 2
    items = [Delivery(new_id(), f"k{n}") for n in range(20)]
    answers = await submit_all(batcher, items)

    assert answers == [item.id for item in items]
    assert await store.stored() == {item.dedupe_key: item.id for item in items}
    assert store.batches == 3


async def test_duplicates_in_one_burst_are_all_answered_with_the_one_that_won(
    batcher: Batcher[Delivery, UUID], store: Store
) -> None:
    items = [Delivery(new_id(), f"k{n % 5}") for n in range(50)]
    answers = await submit_all(batcher, items)

    stored = await store.stored()
    assert answers == [stored[item.dedupe_key] for item in items]
    assert len(stored) == 5


async def test_replicas_with_the_same_keys_never_deadlock(
    store: Store, scratch: TestDatabase
) -> None:
    stores = [Store(await scratch.open("scratch")) for _ in range(2)]
    replicas = [Batcher("deliveries", each, key=lambda i: i.dedupe_key) for each in stores]
    keys = [f"k{n:03}" for n in range(100)]
    answers = await asyncio.gather(
        submit_all(replicas[0], [Delivery(new_id(), key) for key in keys]),
        submit_all(replicas[1], [Delivery(new_id(), key) for key in reversed(keys)]),
    )
    stored = await store.stored()

    assert answers[0] == [stored[key] for key in keys]
    assert answers[1] == [stored[key] for key in reversed(keys)]
    assert [each.deadlocks for each in stores] == [0, 0]


async def test_a_killed_connection_in_the_middle_of_a_batch_is_repeated(
    batcher: Batcher[Delivery, UUID], store: Store, scratch: TestDatabase
) -> None:
    admin = await scratch.admin()
    blocker = admin.transaction()
    await blocker.start()
    await admin.execute("LOCK TABLE scratch.deliveries IN ACCESS EXCLUSIVE MODE")
    submitted = asyncio.create_task(batcher.submit(Delivery(new_id(), "k")))
    watcher = await scratch.admin()
    pid = None
    async with asyncio.timeout(50):
        while pid is None:
            pid = await watcher.fetchval(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
                " AND application_name = 'test-scratch' AND wait_event_type = 'Lock'"
            )
    await watcher.fetchval("SELECT pg_terminate_backend($1, 5000)", pid)
    await blocker.rollback()

    answer = await submitted
    assert await store.stored() == {"k": answer}
    assert store.batches >= 2
