"""Leases on real rows: the fence, renewal on the database's clock, and who may take over."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from datetime import timedelta
from uuid import UUID

import pytest

from reveille_runtime.db import Database
from reveille_runtime.ids import new_id, new_token
from reveille_runtime.lease import ExpiryWitness, Lease, LeaseKeeper, LeaseLost
from reveille_runtime.queries import parse_queries
from reveille_testkit.database import TestDatabase

DDL = """
CREATE TABLE jobs (
    id uuid PRIMARY KEY,
    note text NOT NULL DEFAULT '',
    lease_token uuid,
    lease_expires_at timestamptz,
    CHECK ((lease_token IS NULL) = (lease_expires_at IS NULL))
);
"""
Q = parse_queries(
    """
-- name: make_job
-- A row to claim. $1 id
INSERT INTO jobs (id) VALUES ($1);

-- name: claim
-- A free row becomes ours. $1 id, $2 token, $3 duration
UPDATE jobs SET lease_token = $2, lease_expires_at = clock() + $3::interval
WHERE id = $1 AND lease_token IS NULL;

-- name: renew
-- Each row that is still ours. $1 ids, $2 tokens, $3 duration
UPDATE jobs j SET lease_expires_at = clock() + $3::interval
FROM unnest($1::uuid[], $2::uuid[]) AS held (id, token)
WHERE j.id = held.id AND j.lease_token = held.token
RETURNING j.id;

-- name: expired
-- Who looks dead.
SELECT id, lease_token FROM jobs
WHERE lease_token IS NOT NULL AND lease_expires_at < (SELECT clock()) ORDER BY id;

-- name: steal
-- From the very claim that was seen dead. $1 id, $2 old token, $3 new token, $4 duration
UPDATE jobs SET lease_token = $3, lease_expires_at = clock() + $4::interval
WHERE id = $1 AND lease_token = $2 AND lease_expires_at < (SELECT clock());

-- name: write
-- Fenced by id and token alone. $1 id, $2 token, $3 note
UPDATE jobs SET note = $3 WHERE id = $1 AND lease_token = $2;

-- name: finish
-- Ends the claim. $1 id, $2 token
UPDATE jobs SET lease_token = NULL, lease_expires_at = NULL WHERE id = $1 AND lease_token = $2;

-- name: note
-- What was written last. $1 id
SELECT note FROM jobs WHERE id = $1;
""",
    "test",
)
DURATION = 30.0
SPAN = timedelta(seconds=DURATION)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Replica:
    """One process: its pool, its renewals, and its sweep."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self.db = db
        self.keeper = LeaseKeeper(self.renew, duration=DURATION, interval=10, monotonic=clock)
        self.witness = ExpiryWitness(10, monotonic=clock)

    async def renew(self, leases: Sequence[Lease]) -> Collection[UUID]:
        async with self.db.session() as tx:
            rows = await tx.fetch(
                Q["renew"], [each.id for each in leases], [each.token for each in leases], SPAN
            )
        return [row["id"] for row in rows]

    async def claim(self) -> Lease:
        lease = Lease(new_id(), new_token())
        async with self.db.transaction() as tx:
            await tx.execute(Q["make_job"], lease.id)
            assert await tx.execute(Q["claim"], lease.id, lease.token, SPAN) == 1
        return lease

    async def write(self, lease: Lease, note: str) -> bool:
        async with self.db.session() as tx:
            return await tx.execute(Q["write"], lease.id, lease.token, note) == 1

    async def sweep(self) -> list[Lease]:
        """Look for the dead and take over those that are confirmed."""
        async with self.db.session() as tx:
            rows = await tx.fetch(Q["expired"])
            expired = [Lease(row["id"], row["lease_token"]) for row in rows]
            taken = []
            ok = self.keeper.ok_for(self.witness.interval)
            for dead in self.witness.observe(expired, ok):
                mine = Lease(dead.id, new_token())
                if await tx.execute(Q["steal"], dead.id, dead.token, mine.token, SPAN):
                    taken.append(mine)
        return taken


@pytest.fixture
async def clock() -> Clock:
    return Clock()


@pytest.fixture
async def replicas(scratch: TestDatabase, clock: Clock) -> tuple[Replica, Replica]:
    await scratch.ddl("scratch", DDL)
    return (
        Replica(await scratch.open("scratch"), clock),
        Replica(await scratch.open("scratch"), clock),
    )


def pass_time(scratch: TestDatabase, clock: Clock, seconds: float) -> None:
    """Let it pass for the database and for this host."""
    scratch.move_clock(seconds)
    clock.now += seconds


async def test_a_dead_holder_s_row_is_taken_over_and_its_late_write_is_fenced_off(
    scratch: TestDatabase, clock: Clock, replicas: tuple[Replica, Replica]
) -> None:
    holder, sweeper = replicas
    lease = await holder.claim()
    async with holder.keeper.hold(lease) as held:
        # The holder stops renewing; the sweeper lives.
        for _ in range(4):
            await sweeper.keeper.tick()
            assert await sweeper.sweep() == []
            pass_time(scratch, clock, 10)
        await sweeper.keeper.tick()
        (mine,) = await sweeper.sweep()
        assert mine.id == lease.id

        with pytest.raises(LeaseLost):
            held.check()
        # Even a holder that does not check cannot write any more.
        assert not await holder.write(lease, "late")
        assert await sweeper.write(mine, "new")
        await holder.keeper.tick()
    async with holder.db.session() as tx:
        assert await tx.fetchval(Q["note"], lease.id) == "new"


async def test_a_live_holder_is_never_taken_over(
    scratch: TestDatabase, clock: Clock, replicas: tuple[Replica, Replica]
) -> None:
    holder, sweeper = replicas
    lease = await holder.claim()
    async with holder.keeper.hold(lease) as held:
        for _ in range(12):
            pass_time(scratch, clock, 10)
            assert await holder.keeper.tick()
            await sweeper.keeper.tick()
            assert await sweeper.sweep() == []
            held.check()
            assert await holder.write(lease, "alive")


async def test_a_paused_database_is_nobody_s_death(
    scratch: TestDatabase, clock: Clock, replicas: tuple[Replica, Replica]
) -> None:
    holder, sweeper = replicas
    lease = await holder.claim()
    await sweeper.keeper.tick()
    async with holder.keeper.hold(lease) as held:
        admin = await scratch.admin()
        async with admin.transaction():
            # Reads go through, writes hang until their time is up: the worst kind of outage.
            await admin.execute("LOCK TABLE scratch.jobs IN EXCLUSIVE MODE")
            for replica in replicas:
                replica.keeper.interval = 0.05
            for _ in range(2):
                pass_time(scratch, clock, 25)
                assert [await each.keeper.tick() for each in replicas] == [False, False]
                assert await sweeper.sweep() == []
            for replica in replicas:
                replica.keeper.interval = 10
        # The holder gave up by its own clock: it stopped writing before anyone could take over.
        assert held.lost.is_set()
        assert await sweeper.keeper.tick()
        assert await sweeper.sweep() == []
        # A holder that claims its row back, or any that renews now, is seen alive.
        async with holder.keeper.hold(lease) as again:
            assert await holder.keeper.tick()
            pass_time(scratch, clock, 10)
            await sweeper.keeper.tick()
            assert await sweeper.sweep() == []
            again.check()
            assert await holder.write(lease, "still mine")


async def test_a_jump_of_the_database_clock_is_nobody_s_death(
    scratch: TestDatabase, clock: Clock, replicas: tuple[Replica, Replica]
) -> None:
    holder, sweeper = replicas
    lease = await holder.claim()
    async with holder.keeper.hold(lease) as held:
        await sweeper.keeper.tick()
        scratch.move_clock(3600)
        assert await sweeper.sweep() == []
        clock.now += 10
        assert await holder.keeper.tick()
        await sweeper.keeper.tick()
        assert await sweeper.sweep() == []
        held.check()


async def test_two_sweepers_take_a_row_over_once(
    scratch: TestDatabase, clock: Clock, replicas: tuple[Replica, Replica]
) -> None:
    lease = await replicas[0].claim()
    pass_time(scratch, clock, 31)
    for each in replicas:
        await each.keeper.tick()
        assert await each.sweep() == []
    pass_time(scratch, clock, 10)
    for each in replicas:
        await each.keeper.tick()
    taken = await asyncio.gather(*(each.sweep() for each in replicas))
    assert [len(each) for each in taken] in ([1, 0], [0, 1])
    assert not await replicas[0].write(lease, "late")


async def test_a_finished_row_has_no_token_and_no_write_gets_through(
    replicas: tuple[Replica, Replica],
) -> None:
    holder, _ = replicas
    lease = await holder.claim()
    async with holder.keeper.hold(lease) as held:
        held.release()
        async with holder.db.session() as tx:
            assert await tx.execute(Q["finish"], lease.id, lease.token) == 1
            assert await tx.execute(Q["finish"], lease.id, lease.token) == 0
        await holder.keeper.tick()
        assert not held.lost.is_set()
        assert not await holder.write(lease, "late")
