"""Leases: a lost one stops writes, and a paused database is nobody's death."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

import pytest

from reveille_runtime.ids import new_id, new_token
from reveille_runtime.lease import ExpiryWitness, Lease, LeaseKeeper, LeaseLost
from reveille_testkit.waiting import eventually


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Rows:
    """The renewals as a database would answer them: ids whose token still matches."""

    def __init__(self) -> None:
        self.tokens: dict[UUID, UUID] = {}
        self.down = False
        self.rounds: list[int] = []

    def claim(self) -> Lease:
        lease = Lease(new_id(), new_token())
        self.tokens[lease.id] = lease.token
        return lease

    async def renew(self, leases: Sequence[Lease]) -> Collection[UUID]:
        self.rounds.append(len(leases))
        if self.down:
            raise ConnectionRefusedError("down")
        return [lease.id for lease in leases if self.tokens.get(lease.id) == lease.token]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def rows() -> Rows:
    return Rows()


@pytest.fixture
def keeper(rows: Rows, clock: Clock) -> LeaseKeeper:
    return LeaseKeeper(rows.renew, duration=30, interval=10, monotonic=clock)


def test_an_interval_that_could_not_keep_the_lease_is_refused(rows: Rows) -> None:
    with pytest.raises(ValueError, match="cannot be renewed"):
        LeaseKeeper(rows.renew, duration=30, interval=11)


async def test_a_renewed_lease_holds(keeper: LeaseKeeper, rows: Rows, clock: Clock) -> None:
    async with keeper.hold(rows.claim()) as held:
        for _ in range(10):
            clock.now += 10
            await keeper.tick()
            held.check()
    assert rows.rounds == [1] * 10
    assert keeper.held == ()


async def test_all_leases_are_renewed_in_one_round(keeper: LeaseKeeper, rows: Rows) -> None:
    async with keeper.hold(rows.claim()), keeper.hold(rows.claim()), keeper.hold(rows.claim()):
        await keeper.tick()
    assert rows.rounds == [3]


async def test_a_taken_row_is_lost_at_the_next_round(keeper: LeaseKeeper, rows: Rows) -> None:
    lease = rows.claim()
    async with keeper.hold(lease) as held, keeper.hold(rows.claim()) as other:
        rows.tokens[lease.id] = new_token()
        await keeper.tick()
        assert held.lost.is_set()
        with pytest.raises(LeaseLost) as lost:
            held.check()
        assert lost.value.lease == lease
        other.check()


async def test_two_thirds_without_renewal_is_lost_even_if_the_loop_never_ran(
    keeper: LeaseKeeper, rows: Rows, clock: Clock
) -> None:
    async with keeper.hold(rows.claim()) as held:
        clock.now += 19.9
        held.check()
        clock.now += 0.1
        with pytest.raises(LeaseLost):
            held.check()


async def test_a_lease_may_have_a_length_of_its_own(
    keeper: LeaseKeeper, rows: Rows, clock: Clock
) -> None:
    async with (
        keeper.hold(rows.claim(), duration=90) as long,
        keeper.hold(rows.claim()) as short,
    ):
        clock.now += 20
        with pytest.raises(LeaseLost):
            short.check()
        clock.now += 39.9
        long.check()
        clock.now += 0.1
        with pytest.raises(LeaseLost):
            long.check()


async def test_a_lease_that_cannot_wait_for_the_next_round_is_renewed_sooner(clock: Clock) -> None:
    """Who claims with a shorter lease than this process was set up for keeps it all the same."""
    rounds: asyncio.Queue[int] = asyncio.Queue()

    async def renew(leases: Sequence[Lease]) -> Collection[UUID]:
        rounds.put_nowait(len(leases))
        return [lease.id for lease in leases]

    keeper = LeaseKeeper(renew, duration=3000, interval=1000, monotonic=clock)

    async def over() -> bool:
        return keeper.ok_for(1)

    loop = asyncio.create_task(keeper.run())
    async with asyncio.timeout(10):
        assert await rounds.get() == 0
        # Until that round is over, and the next one planned.
        await eventually(over, "the first round")
        async with keeper.hold(Lease(new_id(), new_token()), duration=0.3) as held:
            assert [await rounds.get() for _ in range(2)] == [1, 1]
            held.check()
    loop.cancel()


async def test_the_time_of_the_claim_itself_counts(
    keeper: LeaseKeeper, rows: Rows, clock: Clock
) -> None:
    before = keeper.now()
    clock.now += 15
    async with keeper.hold(rows.claim(), since=before) as held:
        clock.now += 5
        with pytest.raises(LeaseLost):
            held.check()


async def test_a_renewal_counts_from_when_it_was_asked(rows: Rows, clock: Clock) -> None:
    async def slow(leases: Sequence[Lease]) -> Collection[UUID]:
        clock.now += 8
        return await rows.renew(leases)

    keeper = LeaseKeeper(slow, duration=30, interval=10, monotonic=clock)
    async with keeper.hold(rows.claim()) as held:
        await keeper.tick()
        clock.now += 11.9
        held.check()
        clock.now += 0.1
        with pytest.raises(LeaseLost):
            held.check()


async def test_a_database_that_is_down_loses_leases_only_after_two_thirds(
    keeper: LeaseKeeper, rows: Rows, clock: Clock
) -> None:
    async with keeper.hold(rows.claim()) as held:
        rows.down = True
        clock.now += 10
        assert await keeper.tick() is False
        held.check()
        clock.now += 9.9
        assert await keeper.tick() is False
        assert not held.lost.is_set()
        clock.now += 0.1
        await keeper.tick()
        assert held.lost.is_set()


async def test_a_renewal_that_hangs_is_given_up_in_time(clock: Clock, rows: Rows) -> None:
    async def hang(leases: Sequence[Lease]) -> Collection[UUID]:
        await asyncio.Event().wait()
        return ()

    keeper = LeaseKeeper(hang, duration=0.06, interval=0.02)
    async with keeper.hold(rows.claim()) as held:
        loop = asyncio.create_task(keeper.run())
        async with asyncio.timeout(5):
            await held.lost.wait()
        loop.cancel()


async def test_rounds_that_hang_leave_a_short_lease_time_for_another(
    rows: Rows, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = True

    async def renew(leases: Sequence[Lease]) -> Collection[UUID]:
        if hanging:
            await asyncio.Event().wait()
        return await rows.renew(leases)

    real = asyncio.wait

    async def at_once(waited: set[asyncio.Future[Any]], timeout: float) -> tuple[Any, Any]:
        clock.now += timeout if hanging else 0
        return await real(waited, timeout=0 if hanging else 10)

    monkeypatch.setattr(asyncio, "wait", at_once)
    keeper = LeaseKeeper(renew, duration=30, interval=10, monotonic=clock)
    async with keeper.hold(rows.claim()) as held:
        clock.now += 9
        for _ in range(2):
            assert await keeper.tick() is False
        hanging = False
        assert await keeper.tick() is True
        clock.now += 9
        held.check()


async def test_a_renewal_that_hears_nothing_holds_nobody_up(rows: Rows) -> None:
    """A pool waits for its server also when the caller has gone; the work stops all the same."""
    over = asyncio.Event()

    async def deaf(leases: Sequence[Lease]) -> Collection[UUID]:
        while not over.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await over.wait()
        return ()

    keeper = LeaseKeeper(deaf, duration=0.06, interval=0.02)
    async with keeper.hold(rows.claim()) as held:
        loop = asyncio.create_task(keeper.run())
        try:
            with pytest.raises(LeaseLost):
                async with asyncio.timeout(5):
                    await held.guard(asyncio.Event().wait())
        finally:
            over.set()
            loop.cancel()


async def test_guarded_work_is_stopped_and_cleaned_up_when_the_lease_is_lost(
    keeper: LeaseKeeper, rows: Rows
) -> None:
    lease = rows.claim()
    steps: list[str] = []

    async def work() -> None:
        steps.append("started")
        try:
            await asyncio.Event().wait()
        finally:
            steps.append("cleaned")

    async with keeper.hold(lease) as held:
        guarded = asyncio.create_task(held.guard(work()))
        await asyncio.sleep(0)
        del rows.tokens[lease.id]
        await keeper.tick()
        with pytest.raises(LeaseLost):
            await guarded
    assert steps == ["started", "cleaned"]


async def test_guarded_work_gives_its_result_or_error(keeper: LeaseKeeper, rows: Rows) -> None:
    async def answer() -> int:
        return 42

    async def fail() -> int:
        raise KeyError("x")

    async with keeper.hold(rows.claim()) as held:
        assert await held.guard(answer()) == 42
        with pytest.raises(KeyError):
            await held.guard(fail())


async def test_cancelling_the_holder_cancels_the_guarded_work(
    keeper: LeaseKeeper, rows: Rows
) -> None:
    stopped = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with keeper.hold(rows.claim()) as held:
        guarded = asyncio.create_task(held.guard(work()))
        await asyncio.sleep(0)
        guarded.cancel()
        with pytest.raises(asyncio.CancelledError):
            await guarded
    assert stopped.is_set()


async def test_a_released_lease_is_not_reported_lost_by_a_renewal_under_way(clock: Clock) -> None:
    asked = asyncio.Event()
    answer = asyncio.Event()

    async def renew(leases: Sequence[Lease]) -> Collection[UUID]:
        asked.set()
        await answer.wait()
        return ()

    keeper = LeaseKeeper(renew, duration=30, monotonic=clock)
    async with keeper.hold(Lease(new_id(), new_token())) as held:
        round_ = asyncio.create_task(keeper.tick())
        await asked.wait()
        held.release()
        held.release()
        answer.set()
        await round_
        assert not held.lost.is_set()


async def test_claiming_a_row_again_loses_the_older_claim(keeper: LeaseKeeper, rows: Rows) -> None:
    lease = rows.claim()
    async with keeper.hold(lease) as older:
        newer_lease = Lease(lease.id, new_token())
        rows.tokens[lease.id] = newer_lease.token
        async with keeper.hold(newer_lease) as newer:
            assert older.lost.is_set()
            await keeper.tick()
            newer.check()


class Replica:
    """A sweeping replica: its own renewals, and its view of who is expired."""

    def __init__(self, rows: Rows, clock: Clock) -> None:
        self.keeper = LeaseKeeper(rows.renew, duration=30, interval=10, monotonic=clock)
        self.witness = ExpiryWitness(10, monotonic=clock)

    def look(self, expired: Sequence[Lease]) -> list[Lease]:
        return self.witness.observe(expired, self.keeper.ok_for(self.witness.interval))


async def test_a_dead_holder_is_confirmed_on_the_second_look(rows: Rows, clock: Clock) -> None:
    replica = Replica(rows, clock)
    dead = rows.claim()
    await replica.keeper.tick()
    assert replica.look([dead]) == []
    clock.now += 9.9
    await replica.keeper.tick()
    assert replica.look([dead]) == []
    clock.now += 0.1
    assert replica.look([dead]) == [dead]


async def test_a_holder_that_renews_between_the_looks_lives(rows: Rows, clock: Clock) -> None:
    replica = Replica(rows, clock)
    slow = rows.claim()
    await replica.keeper.tick()
    assert replica.look([slow]) == []
    clock.now += 5
    await replica.keeper.tick()
    assert replica.look([]) == []
    clock.now += 5
    await replica.keeper.tick()
    # Expired once more, but that is a first look again.
    assert replica.look([slow]) == []


async def test_another_token_on_the_same_row_starts_anew(rows: Rows, clock: Clock) -> None:
    replica = Replica(rows, clock)
    first = rows.claim()
    await replica.keeper.tick()
    replica.look([first])
    clock.now += 10
    await replica.keeper.tick()

    assert replica.look([Lease(first.id, new_token())]) == []


async def test_a_paused_database_kills_nobody(rows: Rows, clock: Clock) -> None:
    replica = Replica(rows, clock)
    everyone = [rows.claim() for _ in range(5)]
    await replica.keeper.tick()
    rows.down = True
    for _ in range(6):
        clock.now += 10
        await replica.keeper.tick()
        # Even a read that gets through during the outage confirms nothing.
        assert replica.look(everyone) == []
    rows.down = False
    # The database is back, all leases look expired, and our own first renewal has just succeeded.
    clock.now += 1
    await replica.keeper.tick()
    assert replica.look(everyone) == []
    # Only those that still do not renew a full interval later are gone.
    clock.now += 9.9
    await replica.keeper.tick()
    assert replica.look(everyone[:1]) == []
    clock.now += 0.1
    assert replica.look(everyone[:1]) == everyone[:1]


async def test_a_jump_of_the_database_clock_kills_nobody(rows: Rows, clock: Clock) -> None:
    replica = Replica(rows, clock)
    everyone = [rows.claim() for _ in range(3)]
    await replica.keeper.tick()
    assert replica.look(everyone) == []
    clock.now += 10
    await replica.keeper.tick()
    # All holders renewed on the new clock in between.
    assert replica.look([]) == []


async def test_a_process_that_was_stopped_for_a_while_does_not_trust_its_first_look(
    rows: Rows, clock: Clock
) -> None:
    replica = Replica(rows, clock)
    other = rows.claim()
    await replica.keeper.tick()
    replica.look([other])
    clock.now += 300
    # It wakes and sweeps before its renewal loop had a turn.
    assert replica.look([other]) == []


async def test_ok_for_needs_a_success_and_no_failure(
    keeper: LeaseKeeper, rows: Rows, clock: Clock
) -> None:
    assert not keeper.ok_for(10)
    await keeper.tick()
    assert keeper.ok_for(10)
    assert rows.rounds == [0]
    rows.down = True
    clock.now += 1
    await keeper.tick()
    rows.down = False
    clock.now += 1
    await keeper.tick()
    assert not keeper.ok_for(10)
    clock.now += 9.1
    await keeper.tick()
    assert keeper.ok_for(10)


async def test_leases_of_one_keeper_may_have_lengths_of_their_own() -> None:
    clock = 0.0

    async def renew(_: object) -> list[UUID]:
        raise ConnectionError("the database is away")

    keeper = LeaseKeeper(renew, duration=300.0, interval=10.0, monotonic=lambda: clock)
    async with (
        keeper.hold(Lease(new_id(), new_token()), duration=30.0) as short,
        keeper.hold(Lease(new_id(), new_token())) as long,
    ):
        clock = 20.0
        await keeper.tick()

        assert short.lost.is_set()
        assert not long.lost.is_set()
