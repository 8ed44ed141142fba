"""Hints: heard at once when all is well; a deaf or broken listener costs latency only."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator

import asyncpg
import pytest

from reveille_runtime.db import Database
from reveille_runtime.hints import Hearing, Hint, HintBus, Notifier
from reveille_runtime.supervisor import Supervisor
from reveille_testkit.database import TestDatabase

CHANNEL = "scratch.things"
# Longer than any test runs: whatever wakes a waiter is a hint.
LONG = 50.0


@pytest.fixture
async def db(scratch: TestDatabase) -> Database:
    return await scratch.open("scratch")


@pytest.fixture
async def bus(scratch: TestDatabase, db: Database) -> AsyncIterator[HintBus]:
    bus = HintBus(scratch.settings("scratch"), db, probe_interval=0.05)
    supervisor = Supervisor()
    supervisor.add(bus)
    await supervisor.start()
    yield bus
    await supervisor.stop()


@pytest.fixture
async def notifier(db: Database) -> AsyncIterator[Notifier]:
    notifier = Notifier(db, pause=0.001)
    yield notifier
    await notifier.close()


async def listening(bus: HintBus, channel: str = CHANNEL) -> Hint:
    """A hint whose channel is listened to, with its first news (look once) taken."""
    hint = bus.event(channel)
    await bus.until(Hearing.HEARS)
    assert await hint.wait(LONG)
    return hint


async def test_a_hint_wakes_its_waiter(bus: HintBus, notifier: Notifier) -> None:
    hint = await listening(bus)
    notifier.notify(CHANNEL)
    assert await hint.wait(LONG) is True


async def test_each_waiter_of_a_channel_is_woken_and_others_are_not(
    bus: HintBus, notifier: Notifier
) -> None:
    one = await listening(bus)
    two = bus.event(CHANNEL)
    other = await listening(bus, "scratch.other")
    notifier.notify(CHANNEL)
    assert await one.wait(LONG)
    assert await two.wait(LONG)
    assert await other.wait(0) is False


async def test_news_told_before_the_wait_is_not_lost_and_counts_once() -> None:
    hint = Hint()
    hint.set()
    hint.set()
    assert await hint.wait(0.001) is True
    assert await hint.wait(0.001) is False


async def test_a_channel_can_be_added_while_listening(bus: HintBus, notifier: Notifier) -> None:
    await bus.until(Hearing.HEARS)
    late = await listening(bus, "scratch.late")
    notifier.notify("scratch.late")
    assert await late.wait(LONG)


async def test_a_hint_that_nobody_keeps_is_forgotten(bus: HintBus, notifier: Notifier) -> None:
    kept = await listening(bus)
    forgotten = weakref.ref(bus.event(CHANNEL))
    gc.collect()
    assert forgotten() is None
    notifier.notify(CHANNEL)
    assert await kept.wait(LONG)


async def listener_pid(scratch: TestDatabase) -> int | None:
    admin = await scratch.admin()
    pid: int | None = await admin.fetchval(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name = 'test-scratch-hints'"
    )
    return pid


async def test_a_killed_listener_comes_back_and_tells_everyone_to_look(
    bus: HintBus, notifier: Notifier, scratch: TestDatabase
) -> None:
    hint = await listening(bus)
    pid = await listener_pid(scratch)
    admin = await scratch.admin()
    assert await admin.fetchval("SELECT pg_terminate_backend($1, 5000)", pid)
    # What was notified while nobody listened may be lost, so the new connection says "look".
    notifier.notify(CHANNEL)
    assert await hint.wait(LONG)
    await bus.until(Hearing.HEARS)
    assert await listener_pid(scratch) != pid


async def test_losing_every_hint_costs_latency_only(
    bus: HintBus, scratch: TestDatabase, db: Database
) -> None:
    """A loop that waits on a hint still ticks by its own clock."""
    hint = await listening(bus)
    await bus.stop()
    looked = 0
    while looked < 3:
        await hint.wait(0.001)
        looked += 1
    assert looked == 3


class Swallowing(HintBus):
    """A listener behind a pooler that takes LISTEN and never passes anything on."""

    def _heard(self, *_: object) -> None:
        return


async def test_a_deaf_listener_is_noticed_by_its_probe_and_connects_anew(
    scratch: TestDatabase, db: Database
) -> None:
    bus = Swallowing(scratch.settings("scratch"), db, probe_interval=0.01, probe_timeout=0.1)
    bus.hearing = Hearing.HEARS
    supervisor = Supervisor()
    supervisor.add(bus)
    await supervisor.start()
    await bus.until(Hearing.DEAF)
    await supervisor.stop()


class Confused(HintBus):
    """A listener whose driver loses the thread, as when a farewell comes between two statements."""

    async def _probe(self, broken: asyncio.Event) -> None:
        raise asyncpg.InternalClientError("got result for unknown protocol state 3")


async def test_a_confused_driver_does_not_end_the_listener(
    scratch: TestDatabase, db: Database
) -> None:
    bus = Confused(scratch.settings("scratch"), db)
    bus.hearing = Hearing.HEARS
    running = asyncio.create_task(bus.run())
    hearing_lost = asyncio.create_task(bus.until(Hearing.DEAF))
    await asyncio.wait({running, hearing_lost}, return_when=asyncio.FIRST_COMPLETED)
    assert not running.done()
    await bus.stop()
    await running
    await hearing_lost


async def test_a_database_that_is_away_does_not_end_the_listener(
    scratch: TestDatabase, db: Database
) -> None:
    settings = scratch.settings("scratch").model_copy(
        update={"url": "postgresql://reveille_scratch_app@127.0.0.1:1/nowhere"}
    )
    bus = HintBus(settings, db)
    bus.hearing = Hearing.HEARS
    running = asyncio.create_task(bus.run())
    await bus.until(Hearing.DEAF)
    assert not running.done()
    await bus.stop()
    await running


async def test_a_disabled_bus_never_connects_and_stops(scratch: TestDatabase, db: Database) -> None:
    bus = HintBus(scratch.settings("scratch"), db, enabled=False)
    hint = bus.event(CHANNEL)
    await bus.stop()
    await bus.run()
    assert bus.hearing is Hearing.OFF
    assert await hint.wait(0) is False


async def test_a_bus_may_be_stopped_before_start_and_twice(
    scratch: TestDatabase, db: Database
) -> None:
    bus = HintBus(scratch.settings("scratch"), db)
    await bus.stop()
    await bus.stop()
    await bus.run()


async def test_a_burst_of_notifications_is_sent_as_few(scratch: TestDatabase, db: Database) -> None:
    admin = await scratch.admin()
    heard: list[str] = []
    done = asyncio.Event()

    def hear(_connection: object, _pid: int, channel: str, _payload: object) -> None:
        heard.append(channel)
        if channel == "scratch.end":
            done.set()

    await admin.add_listener(CHANNEL, hear)
    await admin.add_listener("scratch.end", hear)
    notifier = Notifier(db, pause=0.001)
    for _ in range(1000):
        notifier.notify(CHANNEL)
    notifier.notify("scratch.end")
    async with asyncio.timeout(LONG):
        await done.wait()
    await notifier.close()
    assert heard.count(CHANNEL) <= 2
    assert heard.count(CHANNEL) >= 1


async def test_a_channel_is_not_told_again_within_the_pause(
    scratch: TestDatabase,
) -> None:
    admin = await scratch.admin()
    # One connection: whatever the notifier would send goes before what follows.
    db = await scratch.open("scratch", pool_max=1)
    heard: asyncio.Queue[str] = asyncio.Queue()
    for channel in (CHANNEL, "scratch.end"):
        await admin.add_listener(channel, lambda _c, _p, name, _x: heard.put_nowait(name))
    notifier = Notifier(db, pause=LONG)
    notifier.notify(CHANNEL)
    assert await heard.get() == CHANNEL
    notifier.notify(CHANNEL)
    await db.now()
    await db.now()
    await admin.execute('NOTIFY "scratch.end"')
    assert await heard.get() == "scratch.end"
    await notifier.close()


async def test_a_notifier_sends_what_came_while_it_was_sending(
    bus: HintBus, notifier: Notifier
) -> None:
    hint = await listening(bus)
    for _ in range(50):
        notifier.notify(CHANNEL)
        assert await hint.wait(LONG)


async def test_a_disabled_notifier_sends_nothing(db: Database) -> None:
    notifier = Notifier(db, enabled=False)
    notifier.notify(CHANNEL)
    await notifier.close()


async def test_a_notifier_survives_a_database_that_is_away(
    scratch: TestDatabase, db: Database
) -> None:
    notifier = Notifier(db, pause=0.001)
    await db.close()
    notifier.notify(CHANNEL)
    with pytest.raises(asyncpg.InterfaceError):
        async with db.session():
            pass
    await notifier.close()
