"""What is old is forgotten, stretch by stretch; what somebody may still ask for stays."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from tests.integration.heartbeat.conftest import Service, Stage
from tests.integration.heartbeat.kit import OWNER, World
from tests.integration.heartbeat.replica import Replicas

from reveille.heartbeat.v1 import run_pb2, wakeup_pb2
from reveille.scheduler.v1 import job_handler_service_pb2 as handler_pb
from reveille.scheduler.v1.job_handler_service_pb2_grpc import JobHandlerServiceStub
from reveille_heartbeat.crash_points import RETENTION_AFTER_STRETCH
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.usecases.jobs import RETENTION
from reveille_heartbeat.usecases.retention import Keep, Retention
from reveille_heartbeat.usecases.runs.log_days import AHEAD, LogDays
from reveille_runtime.db import Database
from reveille_runtime.errors import Unavailable
from reveille_runtime.rpc_errors import as_domain_errors
from reveille_testkit.database import TestDatabase
from reveille_testkit.waiting import eventually

DAY = 86_400.0
KEEP = Keep(
    runs=timedelta(days=90),
    output=timedelta(days=30),
    occurrences=timedelta(days=400),
    feed=timedelta(days=7),
)


def database_of(service: Service) -> Database:
    assert service.app.database is not None
    return service.app.database


async def forget(service: Service, keep: Keep = KEEP, **more: Any) -> Mapping[str, Any]:
    return await Retention(database_of(service), keep, **more)()


async def counts(rows: asyncpg.Connection[asyncpg.Record], *tables: str) -> dict[str, int]:
    return {table: await rows.fetchval(f"SELECT count(*) FROM {table}") for table in tables}


TABLES = (
    "wakeup_requests",
    "wakeup_payloads",
    "runs",
    "run_events",
    "run_log_chunks",
    "occurrences",
    "cost_events",
)


async def test_a_part_that_cannot_be_removed_keeps_no_other(
    service: Service, database: TestDatabase, rows: asyncpg.Connection[asyncpg.Record]
) -> None:
    await rows.execute(
        "INSERT INTO occurrences (workspace_id, occurrence_key, cancelled_at)"
        " VALUES (gen_random_uuid(), 'old', clock() - interval '401 days')"
    )
    admin = await database.admin()
    await admin.execute(
        "REVOKE EXECUTE ON FUNCTION heartbeat.drop_log_day FROM PUBLIC, reveille_heartbeat_app"
    )
    result = await forget(service)
    assert not result["finished"]
    assert result["removed"]["unused_keys"] == 1


class Impatient:
    """A clock that jumps with each look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 45.0
        return self.now


async def lived(world: World, rows: asyncpg.Connection[asyncpg.Record]) -> dict[str, str]:
    """A plain wake and one that joined it, an occurrence, one whose issue is done, one whose issue
    is still open, and a key that was cancelled before it made anything."""
    done, leaves = await world.agent("done", config={"issue_status": "done"}), await world.agent()
    plain = await world.wake(done)
    keyed = await world.wake(done, "webhook:1")
    closed = await world.issue(done, "webhook:2")
    left = await world.issue(leaves, "webhook:3")
    await world.cancel("webhook:4")
    made = {
        "plain": plain.wakeup_id,
        "keyed": keyed.wakeup_id,
        "closed": closed.wakeup.wakeup_id,
        "left": left.wakeup.wakeup_id,
    }
    await asyncio.gather(*(world.settled(each) for each in made.values()))

    async def resting() -> list[str]:
        found = await rows.fetch(
            "SELECT DISTINCT ON (subject_id) payload ->> 'status' AS status FROM feed"
            " WHERE type = 'agent.status' ORDER BY subject_id, xid DESC, seq DESC"
        )
        return [row["status"] for row in found]

    # That is told last; once the clock has moved it would be news.
    await eventually(resting, "both agents rest", until=lambda told: told == ["idle", "idle"])
    made["joined"] = str(uuid4())
    await rows.execute(
        "INSERT INTO wakeup_requests (wakeup_id, workspace_id, agent_id, source, wake_reason,"
        " title, state, reason, caller, joined_wakeup_id, finished_at)"
        " SELECT $1, workspace_id, agent_id, source, wake_reason, title, 'completed', 'coalesced',"
        " caller, wakeup_id, finished_at FROM wakeup_requests WHERE wakeup_id = $2",
        UUID(made["joined"]),
        UUID(plain.wakeup_id),
    )
    await rows.execute(
        "INSERT INTO cost_events (run_id, provider, model, day, workspace_id, agent_id)"
        " SELECT run_id, 'p', 'm', (clock() AT TIME ZONE 'UTC')::date, workspace_id, agent_id"
        " FROM runs LIMIT 1"
    )
    return made


async def known(rows: asyncpg.Connection[asyncpg.Record], made: Mapping[str, str]) -> set[str]:
    names = {UUID(wakeup_id): name for name, wakeup_id in made.items()}
    found = await rows.fetch("SELECT wakeup_id FROM wakeup_requests")
    return {names[row["wakeup_id"]] for row in found}


async def test_attempts_go_first_and_occurrences_stay_as_long_as_the_run_that_made_them(
    world: World, service: Service, rows: asyncpg.Connection[asyncpg.Record]
) -> None:
    made = await lived(world, rows)
    before = await counts(rows, *TABLES)
    assert (before["runs"], before["wakeup_requests"]) == (4, 5)
    for days in (0, 29):
        service.move_clock(days * DAY)
        assert (await forget(service))["finished"]
        assert await counts(rows, *TABLES) == before

    service.move_clock(62 * DAY)
    # Cut short again and again; whatever stands is whole, and the next run of the job goes on.
    rounds = 0
    while not (await forget(service, stretch=1, monotonic=Impatient()))["finished"]:
        rounds += 1
        assert rounds < 50
        assert not await rows.fetchval(
            "SELECT count(*) FROM run_events e WHERE NOT EXISTS"
            " (SELECT FROM runs r WHERE r.run_id = e.run_id)"
        )
    assert rounds > 1
    assert (await forget(service))["finished"]

    async def told() -> list[asyncpg.Record]:
        await forget(service)
        return await rows.fetch(
            "SELECT xid, seq, type, created_at, pg_current_snapshot() FROM feed ORDER BY xid, seq"
        )

    # What is told is forgotten behind the oldest transaction of the server, other tests' included.
    await eventually(told, "what was told is forgotten", until=lambda left: not left, timeout=40)
    assert await counts(rows, *TABLES, "feed") == {
        "wakeup_requests": 3,
        "wakeup_payloads": 3,
        "runs": 0,
        "run_events": 0,
        "run_log_chunks": 0,
        "occurrences": 4,
        "cost_events": 1,
        "feed": 0,
    }
    assert await known(rows, made) == {"keyed", "closed", "left"}
    # The key is known although what it made is only a memory.
    keyed = await world.wakeup(made["keyed"])
    (again,) = await world.enqueue(
        wakeup_pb2.Wakeup(
            workspace_id=keyed.workspace_id,
            agent_id=keyed.agent_id,
            source=wakeup_pb2.WAKEUP_SOURCE_AUTOMATION,
            reason="autopilot_run",
            title="Look at it",
            origin=wakeup_pb2.Origin(occurrence_key="webhook:1", accountable_user_id=OWNER),
        )
    )
    assert (again.wakeup_id, again.existed) == (made["keyed"], True)

    service.move_clock(310 * DAY)
    # What ended of late keeps its key, however old the wake that came with it.
    ends = "UPDATE issues SET ended_at = ended_at {} interval '300 days' WHERE ended_at IS NOT NULL"
    await rows.execute(ends.format("+"))
    result = await forget(service)
    assert await known(rows, made) == {"closed", "left"}
    await rows.execute(ends.format("-"))
    await forget(service)
    # What somebody may still end keeps its key.
    assert await known(rows, made) == {"left"}
    assert await counts(rows, "occurrences", "cost_events") == {"occurrences": 1, "cost_events": 0}
    assert result["removed"]["unused_keys"] == 1


async def test_what_is_not_settled_stays_however_old(
    stage: Stage, rows: asyncpg.Connection[asyncpg.Record]
) -> None:
    service = await stage.start(engine_concurrency=0)
    world = World(service.client, stage.folder)
    await world.put()
    woken = await world.wake(await world.agent())
    # Everything is old at once. Were the clock moved instead, the run would miss its `start_by`.
    nothing = Keep(timedelta(0), timedelta(0), timedelta(0), timedelta(0))
    await forget(service, nothing)
    (run,) = await world.attempts(woken.wakeup_id)
    assert run.state == run_pb2.RUN_STATE_QUEUED
    assert await counts(rows, "wakeup_payloads") == {"wakeup_payloads": 1}

    # An attempt goes neither before its follow-up nor while the end of its wakeup is young.
    await rows.execute(
        "UPDATE runs SET state = 'cancelled', finished_at = clock(), occupied = true,"
        " lease_token = gen_random_uuid(), lease_expires_at = clock() + interval '3000 days'"
    )
    settle = "UPDATE wakeup_requests SET state = 'cancelled', finished_at = clock() + $1"
    for settled, followed_up, left in ((0, False, 1), (1000, True, 1), (0, True, 0)):
        await rows.execute(settle, timedelta(days=settled))
        if followed_up:
            await rows.execute(
                "UPDATE runs SET occupied = false, lease_token = NULL, lease_expires_at = NULL,"
                " follow_up_done_at = clock()"
            )
        await forget(service, nothing)
        assert await counts(rows, "runs") == {"runs": left}


async def partitions(rows: asyncpg.Connection[asyncpg.Record]) -> list[str]:
    found = await rows.fetch(
        "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
        " WHERE i.inhparent = 'run_log_chunks'::regclass ORDER BY c.relname"
    )
    return [row["relname"] for row in found if row["relname"] != "run_log_chunks_other"]


def named(*days: date) -> list[str]:
    return [f"run_log_chunks_{day:%Y%m%d}" for day in days]


async def test_days_of_output_are_made_ahead_by_whoever_is_first_and_dropped_whole(
    database: TestDatabase, service: Service, rows: asyncpg.Connection[asyncpg.Record]
) -> None:
    # The service's own first look is over; the next one is an hour away.
    await service.tick("log.days")
    # A day may end any moment, and the database is a copy of one that may be from yesterday.
    for each in await partitions(rows):
        await database.ddl("heartbeat", f"DROP TABLE {each}")
    now = datetime.now(UTC)
    noon = now.replace(hour=12, minute=0, second=0, microsecond=0) + timedelta(days=1)
    service.move_clock((noon - now).total_seconds())
    today = noon.date()
    await service.tick("log.days")
    ahead = [today + timedelta(days=days) for days in range(AHEAD + 1)]
    assert await partitions(rows) == named(*ahead)
    service.move_clock(2 * DAY)
    await asyncio.gather(*(LogDays(service.database)() for _ in range(4)))
    further = [today + timedelta(days=days) for days in range(AHEAD + 3)]
    assert await partitions(rows) == named(*further)

    # The day of 30 days ago is still in its time.
    service.move_clock(29 * DAY)
    result = await forget(service)
    assert result["removed"]["output_days"] == 1
    assert await partitions(rows) == named(*further[1:])


async def test_output_without_a_day_is_caught_and_moves_to_its_day(
    service: Service, rows: asyncpg.Connection[asyncpg.Record]
) -> None:
    today = datetime.now(UTC).date()
    for days, data in ((20, b"later"), (-40, b"old")):
        await rows.execute(
            "INSERT INTO run_log_chunks"
            " (run_id, run_day, stream, start_offset, end_offset, data)"
            " VALUES ($1, $2, 'stdout', 0, $3, $4)",
            uuid4(),
            today + timedelta(days=days),
            len(data),
            data,
        )
    assert await counts(rows, "run_log_chunks_other") == {"run_log_chunks_other": 2}
    service.move_clock(15 * DAY)
    await LogDays(database_of(service))()
    (day,) = named(today + timedelta(days=20))
    assert await counts(rows, "run_log_chunks_other", day) == {"run_log_chunks_other": 1, day: 1}
    result = await forget(service)
    assert result["removed"]["output_chunks"] == 1
    assert await counts(rows, "run_log_chunks") == {"run_log_chunks": 1}


async def test_only_the_owners_function_forgets_events(
    rows: asyncpg.Connection[asyncpg.Record],
) -> None:
    for statement in ("DELETE FROM run_events", "UPDATE run_events SET message = ''"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await rows.execute(statement)
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await rows.execute("DROP TABLE run_log_chunks_other")


async def test_a_job_of_the_scheduler_that_dies_in_the_middle_goes_on_the_next_time(
    stage: Stage, replicas: Replicas, rows: asyncpg.Connection[asyncpg.Record]
) -> None:
    await rows.execute(
        "INSERT INTO occurrences (workspace_id, occurrence_key, cancelled_at)"
        " VALUES (gen_random_uuid(), 'old', clock() - interval '401 days')"
    )
    await rows.execute(
        "INSERT INTO requests (principal, method, request_id, fingerprint, created_at)"
        " SELECT 'user:x', 'm', n::text, '', clock() - interval '2 days'"
        " FROM generate_series(1, 3) AS n"
    )
    plans = handler_pb.RunPlansRequest(
        plans=[handler_pb.Plan(execution_id="x1", job_name=RETENTION)]
    )
    token = stage.keys.service("scheduler")
    # After the one stretch that removes the key.
    doomed = await replicas.start(
        crash_point=RETENTION_AFTER_STRETCH, crash_after=5, engine_concurrency=0
    )
    client = await replicas.client(doomed)
    dying: Any = JobHandlerServiceStub(client.channel(token))
    with pytest.raises(Unavailable), as_domain_errors():
        await dying.RunPlans(plans)
    assert await doomed.ended() == 137
    assert await counts(rows, "occurrences", "requests") == {"occurrences": 0, "requests": 3}

    service = await stage.start(engine_concurrency=0)
    again: Any = JobHandlerServiceStub(service.client.channel(token))
    (result,) = (await again.RunPlans(plans)).results
    assert result.outcome == handler_pb.PLAN_OUTCOME_SUCCESS
    assert await counts(rows, "requests") == {"requests": 0}


async def test_what_looks_for_the_old_reads_past_nothing_young(
    world: World, rows: asyncpg.Connection[asyncpg.Record]
) -> None:
    """Beside 10,000 settled wakeups of today, every other with a key, and what they cost."""
    await world.agent()
    await rows.execute(
        "INSERT INTO wakeup_requests (wakeup_id, workspace_id, agent_id, source, wake_reason,"
        " title, state, reason, caller, occurrence_key, finished_at)"
        " SELECT gen_random_uuid(), workspace_id, agent_id, 'automation', 'x', 'x', 'skipped', 'x',"
        " 'x', CASE WHEN n % 2 = 0 THEN n::text END, clock()"
        " FROM agents, generate_series(1, 10000) AS n"
    )
    await rows.execute(
        "INSERT INTO occurrences (workspace_id, occurrence_key, wakeup_id)"
        " SELECT workspace_id, occurrence_key, wakeup_id FROM wakeup_requests"
        " WHERE occurrence_key IS NOT NULL"
    )
    await rows.execute(
        "INSERT INTO runs (run_id, workspace_id, agent_id, wakeup_id, state, attempt, ready_rank,"
        " priority, start_by, started_at, finished_at, follow_up_done_at)"
        " SELECT gen_random_uuid(), workspace_id, agent_id, wakeup_id, 'succeeded', 1, 2, 4,"
        " clock(), clock(), clock(), clock() FROM wakeup_requests"
    )
    await rows.execute(
        "INSERT INTO cost_events (run_id, provider, model, day, workspace_id, agent_id)"
        " SELECT run_id, 'p', 'm', (clock() AT TIME ZONE 'UTC')::date, workspace_id, agent_id"
        " FROM runs"
    )
    for name, arguments in (
        ("prune_wakeups", [timedelta(days=90), 500]),
        ("prune_occurrences", [timedelta(days=400), 500]),
        ("prune_unused_keys", [timedelta(days=400), 500]),
        ("prune_costs", [timedelta(days=400), 500]),
        ("queue_sizes", []),
    ):
        plan = await rows.fetch(f"EXPLAIN (ANALYZE, BUFFERS) {Q[name].sql}", *arguments)
        text = "\n".join(row["QUERY PLAN"] for row in plan)
        read = re.search(r"shared hit=(\d+)", text)
        assert read is not None, text
        assert int(read[1]) < 100, f"{name}\n{text}"
