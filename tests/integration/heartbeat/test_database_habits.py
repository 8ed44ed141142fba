"""How heartbeat lives with its database: hints are only hints, old output goes by its day."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

import asyncpg
from tests.integration.heartbeat.conftest import Stage
from tests.integration.heartbeat.kit import World
from tests.integration.heartbeat.test_watching import follow

import reveille_heartbeat
from reveille.heartbeat.v1 import wakeup_pb2
from reveille_heartbeat.store.queries import Q
from reveille_testkit.database import TestDatabase
from reveille_testkit.waiting import eventually

Rows: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
LISTENERS = (
    "SELECT pid FROM pg_stat_activity"
    " WHERE datname = current_database() AND application_name LIKE '%-hints'"
)


async def test_without_hints_everything_goes_on_by_polling(
    stage: Stage, database: TestDatabase, tmp_path: Path
) -> None:
    service = await stage.start(hints=False)
    world = World(service.client, tmp_path)
    await world.put()
    woken = await world.wake(await world.agent())
    (run,) = await world.attempts(woken.wakeup_id)
    assert (await follow(world.runs, run.run_id)).ended
    wakeup = await world.settled(woken.wakeup_id)
    assert wakeup.state == wakeup_pb2.WAKEUP_STATE_COMPLETED
    admin = await database.admin()
    assert await admin.fetch(LISTENERS) == []


async def test_a_listener_that_is_killed_comes_back_and_looks(
    stage: Stage, database: TestDatabase, tmp_path: Path
) -> None:
    # Whoever claims looks by itself once an hour, and otherwise only when told.
    service = await stage.start(claim_interval=3600.0)
    world = World(service.client, tmp_path)
    await world.put()
    agent = await world.agent()
    admin = await database.admin()

    async def listener() -> list[int]:
        return [row["pid"] for row in await admin.fetch(LISTENERS)]

    (pid,) = await eventually(listener, "it listens", until=lambda seen: len(seen) == 1)
    await service.tick("engine.claim")
    assert await admin.fetchval("SELECT pg_terminate_backend($1, 5000)", pid)
    # Told while nobody may be listening: the new connection looks by itself.
    woken = await world.wake(agent)
    wakeup = await world.settled(woken.wakeup_id)
    assert wakeup.state == wakeup_pb2.WAKEUP_STATE_COMPLETED
    (again,) = await eventually(listener, "it listens again", until=lambda seen: len(seen) == 1)
    assert again != pid


def test_hints_travel_in_transactions_of_their_own() -> None:
    """A NOTIFY inside a busy transaction would make every commit of the server wait in line."""
    folder = Path(reveille_heartbeat.__file__).parent
    tells = re.compile(r"\bpg_notify\s*\(|^\s*NOTIFY\b", re.MULTILINE)
    files = list(folder.rglob("*.sql"))
    assert len(files) > 20
    assert [each.name for each in files if tells.search(each.read_text(encoding="utf-8"))] == []


def relations(node: dict[str, Any]) -> dict[str, int]:
    """Give how often a plan really opened each table."""
    found = {node["Relation Name"]: node["Actual Loops"]} if "Relation Name" in node else {}
    for below in node.get("Plans", ()):
        for name, loops in relations(below).items():
            found[name] = found.get(name, 0) + loops
    return found


async def test_reading_output_opens_one_day_of_it(rows: Rows) -> None:
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    # As a prepared statement does it once it is used to the question.
    await rows.execute("SET plan_cache_mode = force_generic_plan")
    day = f"run_log_chunks_{tomorrow:%Y%m%d}"
    # The run of the second is not there, and so it has no day.
    for query, arguments, expected in (
        ("read_log", ([uuid4()], [tomorrow], ["stdout"], [0], 4), {day}),
        ("log_ends", (uuid4(),), set()),
    ):
        plan = await rows.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {Q[query].sql}", *arguments)
        opened = relations(json.loads(plan)[0]["Plan"])
        days = {name for name, loops in opened.items() if loops and name.startswith("run_log")}
        assert days == expected, opened


async def test_only_output_is_partitioned(rows: Rows) -> None:
    """A row that is updated must stay where it is."""
    found = await rows.fetch(
        "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relkind = 'p' AND n.nspname = current_schema()"
    )
    assert [row["relname"] for row in found] == ["run_log_chunks"]
    assert not [query.name for query in Q.values() if "UPDATE run_log_chunks" in query.sql]


async def test_the_release_before_can_still_store_output(rows: Rows) -> None:
    await rows.execute(
        "INSERT INTO run_log_chunks (run_id, stream, start_offset, end_offset, data)"
        " VALUES ($1, 'stdout', 0, 3, 'abc') ON CONFLICT DO NOTHING",
        uuid4(),
    )
    found = await rows.fetchval("SELECT tableoid::regclass::text FROM run_log_chunks")
    assert found == f"run_log_chunks_{datetime.now(UTC):%Y%m%d}"
