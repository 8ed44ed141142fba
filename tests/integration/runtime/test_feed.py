"""The feed: in order, nothing lost, whatever commits late, restores or holds the horizon back."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta
from importlib import resources
from typing import Any

import pytest

from reveille_runtime.db import Database, Tx
from reveille_runtime.feed import (
    Cursor,
    CursorExpired,
    FeedEvent,
    FeedPage,
    FeedReader,
    FeedTail,
    append,
    begin_epoch,
    make_and_tell,
    prune,
)
from reveille_runtime.feed.reader import Q
from reveille_runtime.ids import new_id
from reveille_runtime.queries import Query
from reveille_testkit.database import TestDatabase

Settled = Callable[..., Awaitable[None]]

FEED_DDL = resources.files("reveille_runtime.feed").joinpath("feed_ddl.sql").read_text()


@pytest.fixture
async def db(scratch: TestDatabase) -> Database:
    await scratch.ddl("scratch", FEED_DDL)
    opened = await scratch.open("scratch")
    await begin_epoch(opened)
    return opened


async def write(db: Database, *subjects: str, type_: str = "thing.done") -> None:
    async with db.transaction() as tx:
        await append_all(tx, *subjects, type_=type_)


async def append_all(tx: Tx, *subjects: str, type_: str = "thing.done") -> None:
    await append(tx, [FeedEvent(type_, subject) for subject in subjects])


def subjects(page: FeedPage) -> list[str]:
    return [event.subject_id for event in page.events]


async def drain(tail: FeedTail, limit: int = 500) -> list[str]:
    found: list[str] = []
    while True:
        page = await tail.poll(limit)
        found += subjects(page)
        if not page.more:
            return found


@contextlib.asynccontextmanager
async def writer_in_progress(db: Database, *subjects_: str) -> AsyncIterator[Tx]:
    """A transaction that has its id and has written, and commits when the block ends."""
    async with db.transaction() as tx:
        await append_all(tx, *subjects_)
        yield tx


async def test_an_event_comes_back_as_it_was_written(db: Database) -> None:
    workspace, subject = new_id(), new_id()
    event = FeedEvent(
        type="wakeup.settled",
        subject_id=subject,
        workspace_id=workspace,
        occurrence_key="webhook:1",
        payload={"outcome": "completed", "n": [1, {"ü": None}]},
        trace_carrier={"traceparent": "00-aa-bb-01"},
    )
    before = await db.now()
    async with db.transaction() as tx:
        await append(tx, [event])
        await append(tx, [])
    (stored,) = (await FeedReader(db).read(Cursor.beginning())).events

    assert stored.type == "wakeup.settled"
    assert stored.subject_id == str(subject)
    assert stored.workspace_id == workspace
    assert stored.occurrence_key == "webhook:1"
    assert stored.payload == event.payload
    assert stored.trace_carrier == event.trace_carrier
    assert before <= stored.created_at <= await db.now()


async def test_events_of_a_rolled_back_transaction_never_appear(db: Database) -> None:
    with contextlib.suppress(ZeroDivisionError):
        async with db.transaction() as tx:
            await append_all(tx, "undone")
            raise ZeroDivisionError
    await write(db, "done")

    assert subjects(await FeedReader(db).read(Cursor.beginning())) == ["done"]


async def test_of_what_one_statement_makes_only_that_is_told(
    db: Database, scratch: TestDatabase
) -> None:
    await scratch.ddl("scratch", "CREATE TABLE things (id uuid PRIMARY KEY, name text UNIQUE)")
    insertion = Query(
        "insert_things",
        "INSERT INTO things (id, name) SELECT i.id, i.name"
        " FROM unnest($1::uuid[], $2::text[]) AS i (id, name)"
        " ON CONFLICT DO NOTHING RETURNING id",
        "a test",
    )

    async def make(*names: str) -> tuple[list[str], list[str]]:
        ids = [new_id() for _ in names]
        events = [FeedEvent("thing.made", each, payload={"n": 1}) for each in ids]
        async with db.session() as tx:
            told = await make_and_tell(tx, insertion, [ids, names], events)
        return [str(each) for each in ids], told

    first, told = await make("b", "a")
    assert told == first
    second, told = await make("c", "a", "b", "d")
    assert told == [second[0], second[3]]
    nothing, told = await make("a")
    assert (len(nothing), told) == (1, [])

    page = await FeedReader(db).read(Cursor.beginning())
    assert subjects(page) == [*first, second[0], second[3]]
    assert {event.type for event in page.events} == {"thing.made"}


async def test_a_transaction_s_events_keep_their_order(db: Database) -> None:
    names = [f"e{number}" for number in range(50)]
    async with db.transaction() as tx:
        await append_all(tx, *names[:30])
        await append_all(tx, *names[30:])

    assert subjects(await FeedReader(db).read(Cursor.beginning())) == names


async def test_a_row_that_commits_late_is_delivered_after_newer_ones(db: Database) -> None:
    tail = FeedReader(db).tail(Cursor.beginning())
    async with writer_in_progress(db, "old"):
        await write(db, "new")
        assert await drain(tail) == ["new"]
    assert await drain(tail) == ["old"]
    assert await drain(tail) == []


async def test_the_durable_cursor_waits_for_the_late_row(db: Database, settled: Settled) -> None:
    reader = FeedReader(db)
    async with writer_in_progress(db, "old"):
        await write(db, "new")
        page = await reader.read(Cursor.beginning())
        assert subjects(page) == ["new"]
        stored = page.cursor
        assert page.events[0].cursor == stored
    await settled(db)
    # A reader that restarts from what was durable gets the late row, and the newer one again.
    page = await reader.read(stored)
    assert subjects(page) == ["old", "new"]
    assert subjects(await reader.read(page.cursor)) == []


async def test_many_interleaved_writers_lose_nothing_and_a_tail_repeats_nothing(
    db: Database,
) -> None:
    tail = FeedReader(db).tail(Cursor.beginning())
    stored = Cursor.beginning()
    got: list[str] = []
    async with contextlib.AsyncExitStack() as stack:
        open_writers: list[contextlib.AsyncExitStack] = []
        for number in range(40):
            one = await stack.enter_async_context(contextlib.AsyncExitStack())
            await one.enter_async_context(writer_in_progress(db, f"w{number}"))
            open_writers.append(one)
            if len(open_writers) == 6:
                # Youngest, oldest, middle: never the order in which they began.
                await open_writers.pop((5, 0, 3)[number % 3]).aclose()
            page = await tail.poll(3)
            got += subjects(page)
            assert page.cursor >= stored
            stored = page.cursor
        for one in open_writers:
            await one.aclose()
        got += await drain(tail, limit=3)

    assert sorted(got) == sorted(f"w{number}" for number in range(40))
    assert len(got) == 40


async def test_every_cursor_handed_out_on_the_way_resumes_without_loss(db: Database) -> None:
    reader = FeedReader(db)
    tail = reader.tail(Cursor.beginning())
    delivered: list[tuple[str, Cursor]] = []
    async with contextlib.AsyncExitStack() as late:
        await write(db, "a", "b")
        await late.enter_async_context(writer_in_progress(db, "late"))
        await write(db, "c", "d")
        for limit in (1, 1, 1, 500):
            page = await tail.poll(limit)
            delivered += [(event.subject_id, event.cursor) for event in page.events]
    await write(db, "e")
    page = await tail.poll()
    delivered += [(event.subject_id, event.cursor) for event in page.events]

    names = [name for name, _ in delivered]
    assert names == ["a", "b", "c", "d", "late", "e"]
    for index, (_, cursor) in enumerate(delivered):
        rest = subjects(await reader.read(cursor))
        assert set(names[index + 1 :]) <= set(rest), names[index]


async def test_a_held_horizon_costs_repeats_never_delay_or_loss(
    db: Database, scratch: TestDatabase, settled: Settled
) -> None:
    reader = FeedReader(db)
    tail = reader.tail(Cursor.beginning())
    holder = await scratch.admin()
    async with holder.transaction():
        held = await holder.fetchval("SELECT pg_current_xact_id()")
        await settled(db, held)
        stored = None
        for number in range(5):
            await write(db, f"e{number}")
            page = await tail.poll()
            # Not delayed, and not repeated by this tail.
            assert subjects(page) == [f"e{number}"]
            assert stored in (None, page.cursor)
            stored = page.cursor
        assert stored is not None
        # A new stream from the durable cursor repeats all of it.
        assert subjects(await reader.read(stored)) == [f"e{number}" for number in range(5)]
    await settled(db)
    page = await tail.poll()
    assert subjects(page) == []
    assert page.cursor > stored
    assert subjects(await reader.read(page.cursor)) == []


async def test_pages_of_one_pass_do_not_miss_what_commits_between_them(db: Database) -> None:
    tail = FeedReader(db).tail(Cursor.beginning())
    async with contextlib.AsyncExitStack() as late:
        await late.enter_async_context(writer_in_progress(db, "late"))
        await write(db, "a", "b", "c", "d")
        first = await tail.poll(2)
        assert (subjects(first), first.more) == (["a", "b"], True)
    # "late" sorts before the page just read and became visible in the middle of the pass.
    await write(db, "e")
    assert await drain(tail, limit=2) == ["c", "d"]
    assert await drain(tail, limit=2) == ["late", "e"]


async def test_a_tail_from_the_head_sees_only_what_was_not_visible_then(
    db: Database, settled: Settled
) -> None:
    reader = FeedReader(db)
    await write(db, "before")
    await settled(db)
    async with contextlib.AsyncExitStack() as late:
        await late.enter_async_context(writer_in_progress(db, "in progress"))
        await write(db, "also before")
        tail = reader.tail(None)
        head = await tail.poll()
        assert (subjects(head), head.more) == ([], False)
        assert head.cursor <= await reader.head()
        await write(db, "after")
        assert await drain(tail) == ["after"]
    assert await drain(tail) == ["in progress"]
    # The head as a stored cursor repeats what was visible above the horizon, and loses nothing.
    assert subjects(await reader.read(head.cursor)) == ["in progress", "also before", "after"]


async def test_types_filter_and_the_cursor_moves_without_a_match(
    db: Database, settled: Settled
) -> None:
    reader = FeedReader(db)
    start = await reader.head()
    await write(db, "x", type_="other.thing")
    await write(db, "y", type_="wanted.thing")
    await write(db, "z", type_="other.thing")
    await settled(db)
    page = await reader.read(start, ["wanted.thing", "never.seen"])
    assert subjects(page) == ["y"]

    assert page.cursor > page.events[0].cursor
    assert subjects(await reader.read(page.cursor)) == []


async def test_an_empty_feed_has_a_head_and_an_epoch(db: Database) -> None:
    reader = FeedReader(db)
    head = await reader.head()
    assert head.epoch > 0
    assert (await reader.read(head)).cursor >= head
    assert subjects(await reader.read(Cursor.beginning())) == []
    assert subjects(await reader.read(Cursor.beginning(head.epoch))) == []


async def test_retention_removes_a_prefix_and_older_cursors_expire(
    db: Database, settled: Settled
) -> None:
    reader = FeedReader(db)
    await write(db, "a")
    await settled(db)
    first = await reader.read(Cursor.beginning())
    await write(db, "b", "c")
    await settled(db)
    second = await reader.read(first.cursor)
    assert await prune(db, timedelta(hours=1)) == 0
    db.move_clock(7200)
    await write(db, "young")
    await settled(db)

    assert await prune(db, timedelta(hours=1), limit=2) == 2
    with pytest.raises(CursorExpired) as expired:
        await reader.read(first.events[0].cursor)
    assert expired.value.reason == "CURSOR_EXPIRED"
    # Nothing that is gone lies after this one.
    assert subjects(await reader.read(second.events[0].cursor)) == ["c", "young"]
    assert await prune(db, timedelta(hours=1), limit=2) == 1
    assert await prune(db, timedelta(hours=1)) == 0
    assert subjects(await reader.read(second.cursor)) == ["young"]
    assert subjects(await reader.read(Cursor.beginning())) == ["young"]


async def test_retention_stops_at_the_horizon(db: Database) -> None:
    async with contextlib.AsyncExitStack() as late:
        await late.enter_async_context(writer_in_progress(db, "late"))
        await write(db, "committed")
        db.move_clock(7200)
        # Removing it would put the floor above the row that is still to come.
        assert await prune(db, timedelta(hours=1)) == 0
    assert subjects(await FeedReader(db).read(Cursor.beginning())) == ["late", "committed"]


async def another_life(scratch: TestDatabase) -> None:
    """Make the database look like a restored one: its identity is not the one it wrote under."""
    admin = await scratch.admin()
    await admin.execute("UPDATE scratch.feed_epoch SET identity = 'elsewhere/' || epoch")


async def test_a_restored_database_starts_a_new_epoch_and_expires_cursors(
    db: Database, scratch: TestDatabase, settled: Settled
) -> None:
    reader = FeedReader(db)
    await write(db, "a")
    old = await reader.read(Cursor.beginning())
    tail = reader.tail(old.cursor)
    await tail.poll()
    await another_life(scratch)

    for read in (reader.read(old.cursor), tail.poll()):
        with pytest.raises(CursorExpired):
            await read
    await write(db, "b")
    new = await reader.head()
    assert new.epoch > old.cursor.epoch
    assert subjects(await reader.read(Cursor.beginning())) == ["b"]
    # The rows of the former life go with retention like all others.
    await settled(db)
    db.move_clock(7200)
    assert await prune(db, timedelta(hours=1)) == 2


@pytest.mark.parametrize("part", range(4), ids=["cluster", "timeline", "database", "table"])
async def test_each_part_of_the_identity_tells_lives_apart(
    db: Database, scratch: TestDatabase, part: int
) -> None:
    admin = await scratch.admin()
    await admin.execute("SET search_path = scratch")
    identity = (await admin.fetchval("SELECT feed_identity()")).split("/")
    assert len(identity) == 4
    assert all(identity)

    facts: Sequence[str] = [
        await admin.fetchval("SELECT system_identifier::text FROM pg_control_system()"),
        "00000001",
        await admin.fetchval(
            "SELECT oid::text FROM pg_database WHERE datname = current_database()"
        ),
        await admin.fetchval("SELECT 'scratch.feed'::regclass::oid::text"),
    ]
    assert identity[part] == facts[part]


async def test_a_restored_table_is_another_life(db: Database, scratch: TestDatabase) -> None:
    await write(db, "a")
    old = (await FeedReader(db).read(Cursor.beginning())).cursor
    # What a restore of yesterday's dump into the same database leaves behind.
    admin = await scratch.admin()
    await admin.execute("""
        SET search_path = scratch;
        ALTER TABLE feed RENAME TO feed_before;
        ALTER INDEX feed_pkey RENAME TO feed_before_pkey;
        CREATE TABLE feed (LIKE feed_before INCLUDING ALL);
        GRANT SELECT, INSERT, DELETE ON feed TO reveille_scratch_app;
        INSERT INTO feed OVERRIDING SYSTEM VALUE SELECT * FROM feed_before;
        DROP TABLE feed_before;
    """)
    restored = await scratch.open("scratch")

    with pytest.raises(CursorExpired):
        await FeedReader(restored).read(old)


async def test_a_cursor_from_a_future_that_never_was_expires(db: Database) -> None:
    await write(db, "a")
    head = await FeedReader(db).head()
    with pytest.raises(CursorExpired, match="future"):
        await FeedReader(db).read(Cursor(head.epoch, head.xid + 1000, 0))


async def test_a_cursor_of_a_later_life_expires_too(db: Database) -> None:
    await write(db, "a")
    head = await FeedReader(db).head()
    # The database was put back to before that life began.
    with pytest.raises(CursorExpired):
        await FeedReader(db).read(Cursor(head.epoch + 1, head.xid, 0))


async def test_two_first_writers_of_a_new_life_agree_on_its_epoch(
    db: Database, scratch: TestDatabase
) -> None:
    await write(db, "a")
    await another_life(scratch)
    first_wrote, second_waits = asyncio.Event(), asyncio.Event()

    async def first() -> None:
        async with db.transaction() as tx:
            await append_all(tx, "first")
            first_wrote.set()
            await second_waits.wait()

    async def second() -> None:
        await first_wrote.wait()
        async with db.transaction() as tx:
            second_waits.set()
            await append_all(tx, "second")

    await asyncio.gather(first(), second())
    assert sorted(subjects(await FeedReader(db).read(Cursor.beginning()))) == ["first", "second"]


def scans(node: dict[str, Any]) -> list[dict[str, Any]]:
    """The nodes of a plan that read the feed table."""
    own = [node] if node.get("Relation Name") == "feed" else []
    return own + [found for child in node.get("Plans", []) for found in scans(child)]


async def test_a_poll_reads_only_what_is_new(
    db: Database, scratch: TestDatabase, settled: Settled
) -> None:
    admin = await scratch.admin()
    await admin.execute("SET search_path = scratch")
    await write(db, "first")
    await admin.execute("""
        INSERT INTO feed (epoch, type, subject_id, payload)
        SELECT (SELECT max(epoch) FROM feed_epoch), 'thing.done', n::text, '{}'
        FROM generate_series(1, 50000) n
    """)
    await admin.execute("ANALYZE feed")
    await settled(db)
    head = await FeedReader(db).head()
    await write(db, "x", "y", "z")
    plan = await admin.fetchval(
        "EXPLAIN (ANALYZE, FORMAT JSON) " + Q["feed_read"].sql,
        head.epoch,
        0,
        0,
        [head.xid - 1],
        head.xid,
        None,
        None,
        500,
    )

    found = scans(json.loads(plan)[0]["Plan"])
    assert len(found) == 2
    for scan in found:
        assert "Index" in str(scan["Node Type"]), scan
        touched = scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0)
        assert touched <= 3, scan
