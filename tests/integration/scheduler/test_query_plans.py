"""What each statement touches on large tables: its batch, never the history."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from tests.integration.scheduler.conftest import JOB, Replica, wish

from reveille_runtime.queries import Query
from reveille_scheduler.store import executions, jobs, ledger, scopes
from reveille_scheduler.usecases.claim_retries import STRETCH
from reveille_scheduler.usecases.plan_due import START
from reveille_testkit.database import TestDatabase

SCOPES = 20_000
HISTORY = 100_000
DUE = 2_000
BATCH = 50
BUSY, FREE = 100, 2
NIL = UUID(int=0)
NOW = datetime(2030, 6, 1, 12, tzinfo=UTC)


async def know_of_nothing(admin: asyncpg.Connection[asyncpg.Record]) -> None:
    """Have statistics of empty tables, until somebody asks for others."""
    for table in ("scopes", "executions"):
        await admin.execute(f"ALTER TABLE scheduler.{table} SET (autovacuum_enabled = false)")
        await admin.execute(f"ANALYZE scheduler.{table}")


async def fill(admin: asyncpg.Connection[asyncpg.Record], *, analyzed: bool) -> None:
    """Many scopes, a few due; a long history, a little of everything else."""
    await know_of_nothing(admin)
    await admin.execute(
        f"""
        INSERT INTO scheduler.scopes (id, job_name, kind, scope_id, source, cron, enabled, revision,
                                      effective_from, next_plan_at)
        SELECT gen_random_uuid(), 'tidy', 'folder', 'scope-' || n, 'cron', '0 12 * * *', true, 1,
               '2030-01-01', CASE WHEN n <= {DUE} THEN timestamptz '2000-01-01'
                                  ELSE timestamptz '2100-01-01' END
        FROM generate_series(1, {SCOPES}) AS n
        """
    )
    await admin.execute(
        f"""
        INSERT INTO scheduler.executions (id, job_name, scope_kind, scope_id, plan_time, state,
               attempt, max_attempts, next_retry_at, retry_until, lease_token, stale_after,
               started_at, finished_at)
        SELECT gen_random_uuid(), 'tidy', 'folder', 'scope-' || (n % {SCOPES} + 1),
               timestamptz '2030-01-01' + n * interval '1 minute', state, 1, 3,
               CASE WHEN n % 1000 = 3 THEN timestamptz '2000-01-01' END, '2100-01-01',
               CASE WHEN state = 'running' THEN gen_random_uuid() END,
               CASE WHEN state = 'running' THEN timestamptz '2000-01-01' END,
               '2025-01-01', CASE WHEN state <> 'running'
                             THEN timestamptz '2025-01-01' + n * interval '1 second' END
        FROM generate_series(1, {HISTORY}) AS n,
             LATERAL (SELECT CASE WHEN n % 1000 = 1 THEN 'running'
                                  WHEN n % 2000 = 3 THEN 'failed'
                                  WHEN n % 2000 = 1003 THEN 'skipped'
                                  ELSE 'success' END AS state) AS s
        """
    )
    if analyzed:
        for table in ("scopes", "executions", "jobs"):
            await admin.execute(f"ANALYZE scheduler.{table}")


def touched(node: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield how many rows of which table each scan read, those it threw away included."""
    if "Relation Name" in node or node["Node Type"] == "Bitmap Index Scan":
        rows = node["Actual Rows"]
        rows += node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
        yield node.get("Relation Name", node["Node Type"]), rows * node["Actual Loops"]
    for child in node.get("Plans", []):
        yield from touched(child)


async def statements(
    connection: asyncpg.Connection[asyncpg.Record],
) -> dict[str, tuple[Query, tuple[object, ...], int]]:
    """Each statement with arguments as production gives them, and how much it may touch."""
    ids = [
        row["id"]
        for row in await connection.fetch(
            "SELECT id FROM scopes WHERE next_plan_at < '2001-01-01' LIMIT $1", BATCH
        )
    ]
    held = await connection.fetch(
        "SELECT id, lease_token FROM executions WHERE state = 'running' LIMIT $1", BATCH
    )
    rows, tokens = [row["id"] for row in held], [row["lease_token"] for row in held]
    retries = [
        row["id"]
        for row in await connection.fetch(
            "SELECT id FROM executions WHERE next_retry_at IS NOT NULL LIMIT $1", BATCH
        )
    ]
    count = len(rows)
    page: tuple[object, ...] = (None, None, None, None, None, BATCH)
    deep = (None, None, None, datetime(2030, 2, 1, tzinfo=UTC), NIL, BATCH)
    early = (None, datetime(2030, 1, 2, tzinfo=UTC), datetime(2030, 1, 3, tzinfo=UTC), None, None)
    start = (START.next_plan_at, START.row_id)
    key = ("tidy", "folder", "scope-7")
    # A scope's few occurrences are looked at beside it: 5 of each, and one running.
    return {
        "due_jobs": (jobs.Q["due_jobs"], (), 20),
        "lock_due_scopes": (scopes.Q["lock_due_scopes"], ("tidy", BATCH, 1, *start), 8 * BATCH),
        "due_scopes": (scopes.Q["due_scopes"], (ids,), 8 * BATCH),
        "take_hook_scopes": (
            scopes.Q["take_hook_scopes"],
            ("tidy", BATCH, 1, timedelta(seconds=30)),
            8 * BATCH,
        ),
        "move_scopes": (
            scopes.Q["move_scopes"],
            (ids, [NOW] * len(ids), [""] * len(ids)),
            4 * BATCH,
        ),
        "scopes_to_check": (scopes.Q["scopes_to_check"], (NIL, BATCH), 4 * BATCH),
        "scopes_by_key": (scopes.Q["scopes_by_key"], (["tidy"], ["folder"], ["scope-7"]), 20),
        "explain_scopes": (scopes.Q["explain_scopes"], ("scope-7",), 20),
        "recorded_executions": (
            executions.Q["recorded_executions"],
            ("tidy", ["folder"] * BATCH, [f"scope-{n}" for n in range(BATCH)], [NOW] * BATCH),
            2 * BATCH,
        ),
        "promised_scopes": (executions.Q["promised_scopes"], ("tidy", "", "", BATCH), 2 * BATCH),
        "longest_due_scopes": (executions.Q["longest_due_scopes"], ("tidy", BATCH), 2 * BATCH),
        "find_due_retries": (
            executions.Q["find_due_retries"],
            ("tidy", ["folder"] * BATCH, [f"scope-{n}" for n in range(BATCH)], BATCH, 1),
            8 * BATCH,
        ),
        "lock_retry_scopes": (executions.Q["lock_retry_scopes"], (ids,), 2 * BATCH),
        "lock_due_retries": (executions.Q["lock_due_retries"], (retries,), 2 * BATCH),
        "due_retries": (executions.Q["due_retries"], (retries,), 8 * BATCH),
        "renew": (executions.Q["renew"], (rows, tokens), 8 * BATCH),
        "settle": (
            executions.Q["settle"],
            (
                rows,
                tokens,
                ["success"] * count,
                [0] * count,
                [None] * count,
                [""] * count,
                [""] * count,
                ["{}"] * count,
            ),
            4 * BATCH,
        ),
        "expired": (executions.Q["expired"], (BATCH,), 4 * BATCH),
        "get_execution": (ledger.Q["get_execution"], (rows[0],), 2),
        "list_executions": (ledger.Q["list_executions"], page, 2 * BATCH),
        "list_executions, far down": (ledger.Q["list_executions"], deep, 2 * BATCH),
        "list_executions, long ago": (ledger.Q["list_executions"], (*early, BATCH), 2 * BATCH),
        "list_job_executions": (ledger.Q["list_job_executions"], ("tidy", *page), 2 * BATCH),
        "list_job_executions, another": (ledger.Q["list_job_executions"], ("x", *page), 10),
        "list_scope_executions": (
            ledger.Q["list_scope_executions"],
            ("scope-7", *page, None),
            2 * BATCH,
        ),
        "list_failed_executions": (
            ledger.Q["list_failed_executions"],
            (None, ["failed"], *page[1:]),
            2 * BATCH,
        ),
        "explain_scope_executions": (ledger.Q["explain_scope_executions"], ("scope-7", None), 20),
        "executions_in_range": (
            ledger.Q["executions_in_range"],
            (*key, NOW, NOW + timedelta(days=1)),
            20,
        ),
        "latest_plan": (ledger.Q["latest_plan"], key, 2),
        "prune_executions": (
            ledger.Q["prune_executions"],
            (timedelta(days=30), datetime(1, 1, 2, tzinfo=UTC), NIL, BATCH),
            16 * BATCH,
        ),
    }


@pytest.mark.parametrize("analyzed", [True, False], ids=["analyzed", "stale statistics"])
async def test_no_statement_touches_more_than_its_batch(
    replica: Replica, database: TestDatabase, analyzed: bool
) -> None:
    await replica.jobs.register(JOB)
    admin = await database.admin()
    await fill(admin, analyzed=analyzed)
    connection = await database.connect("reveille_scheduler_app")
    asked = await statements(connection)
    wrong: list[str] = []
    for mode in ("force_custom_plan", "force_generic_plan"):
        for name, (query, arguments, bound) in asked.items():
            transaction = connection.transaction()
            await transaction.start()
            await connection.execute(f"SET LOCAL plan_cache_mode = {mode}")
            plan = await explained(connection, query, arguments)
            await transaction.rollback()
            # The row versions that were rolled back are no part of what the next one reads.
            await admin.execute(
                "VACUUM (INDEX_CLEANUP ON, PARALLEL 0) scheduler.scopes, scheduler.executions"
            )
            scans = list(touched(plan))
            if any(rows > bound for _, rows in scans):
                wrong.append(f"{name} ({mode}): {scans}, at most {bound}")

    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("analyzed", [True, False], ids=["analyzed", "stale statistics"])
async def test_a_claim_passes_over_all_that_waits_for_busy_scopes(
    replica: Replica, database: TestDatabase, analyzed: bool
) -> None:
    """Of a hundred scopes with a thousand backfilled occurrences each, two are free: the last."""
    await replica.jobs.register(JOB)
    admin = await database.admin()
    await backfilled(admin, analyzed=analyzed)
    connection = await database.connect("reveille_scheduler_app")
    walk, find = executions.Q["promised_scopes"], executions.Q["find_due_retries"]
    ids = [f"waiting-{n}" for n in range(1, BUSY + FREE + 1)]
    read = [
        *touched(await explained(connection, walk, ("tidy", "", "", STRETCH))),
        *touched(await explained(connection, find, ("tidy", ["folder"] * len(ids), ids, BATCH, 1))),
    ]
    # Of each scope: the walk to it, its row, what it has at work, its next attempt.
    assert sum(rows for _, rows in read) <= 4 * (BUSY + FREE), read

    claims = (await replica.claim_retries("tidy", 200)).claims
    assert {each.scope_id for each in claims} == {"waiting-101", "waiting-102"}
    assert {each.plan_time for each in claims} == {datetime(2029, 1, 1, 0, 1, tzinfo=UTC)}


async def backfilled(admin: asyncpg.Connection[asyncpg.Record], *, analyzed: bool) -> None:
    """Scopes with a thousand promised occurrences each; all but the last two have one at work."""
    await know_of_nothing(admin)
    await admin.execute(
        f"""
        INSERT INTO scheduler.scopes (id, job_name, kind, scope_id, source, cron, enabled, revision,
                                      effective_from, next_plan_at)
        SELECT gen_random_uuid(), 'tidy', 'folder', 'waiting-' || n, 'cron', '0 12 * * *', true, 1,
               '2030-01-01', timestamptz '2100-01-01'
        FROM generate_series(1, {BUSY + FREE}) AS n
        """
    )
    await admin.execute(
        f"""
        INSERT INTO scheduler.executions (id, job_name, scope_kind, scope_id, plan_time, state,
               attempt, max_attempts, next_retry_at, retry_until, requested_at, finished_at)
        SELECT gen_random_uuid(), 'tidy', 'folder', 'waiting-' || scope,
               timestamptz '2029-01-01' + n * interval '1 minute', 'skipped', 0, 3,
               timestamptz '2000-01-01' + scope * interval '1 second', '2100-01-01', '2000-01-01',
               '2000-01-01'
        FROM generate_series(1, {BUSY + FREE}) AS scope, generate_series(1, 1000) AS n
        """
    )
    await admin.execute(
        f"""
        INSERT INTO scheduler.executions (id, job_name, scope_kind, scope_id, plan_time, state,
               attempt, max_attempts, retry_until, lease_token, stale_after, started_at)
        SELECT gen_random_uuid(), 'tidy', 'folder', 'waiting-' || scope, '2030-01-01', 'running',
               1, 3, '2100-01-01', gen_random_uuid(), '2100-01-01', '2000-01-01'
        FROM generate_series(1, {BUSY}) AS scope
        """
    )
    if analyzed:
        for table in ("scopes", "executions", "jobs"):
            await admin.execute(f"ANALYZE scheduler.{table}")


async def explained(
    connection: asyncpg.Connection[asyncpg.Record], query: Query, arguments: tuple[object, ...]
) -> dict[str, Any]:
    """Execute a statement; gives its plan with what each step read."""
    told = await connection.fetchval(
        f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {query.sql}", *arguments
    )
    plan: dict[str, Any] = (json.loads(told) if isinstance(told, str) else told)[0]["Plan"]
    return plan


async def test_an_idle_tick_reads_next_to_nothing(replica: Replica, database: TestDatabase) -> None:
    """Twenty thousand scopes, none due: one look per job."""
    await fill(await database.admin(), analyzed=True)
    admin = await database.admin()
    await admin.execute("UPDATE scheduler.scopes SET next_plan_at = '2100-01-01'")
    await admin.execute("UPDATE scheduler.executions SET next_retry_at = NULL")
    connection = await database.connect("reveille_scheduler_app")
    plan = await explained(connection, jobs.Q["due_jobs"], ())

    assert sum(rows for _, rows in touched(plan)) <= 5
    assert await replica.plan() == []


async def test_planning_goes_on_behind_its_mark_and_comes_back_to_the_front(
    replica: Replica,
) -> None:
    """A batch goes on where the last one ended; what appears before the mark is not forgotten."""
    await replica.scopes.put([wish(f"scope-{n}") for n in range(30)])
    await replica.scopes.put([wish("first", cron="0 11 * * *", enabled=False)])
    replica.database.move_clock((NOW - await replica.database.now()).total_seconds() + 1)
    one = await replica.plan_due("tidy", 10)
    assert (len(one.claims), one.more) == (10, True)
    # It is due earlier than all others, and appears when planning has gone past its place.
    await replica.scopes.put(
        [wish("first", cron="0 11 * * *", revision=2, since=NOW - timedelta(hours=2))]
    )
    two = await replica.plan_due("tidy", 10)
    assert "first" not in {claim.scope_id for claim in two.claims}
    rest = [await replica.plan_due("tidy", 50) for _ in range(2)]

    names = {claim.scope_id for batch in (one, two, *rest) for claim in batch.claims}
    assert len(names) == 30
    assert {each.scope_id for each in await replica.ledger()} - names == {"first"}
    assert not rest[-1].more


async def test_the_front_is_looked_at_once_a_second_however_much_is_due(replica: Replica) -> None:
    await replica.scopes.put([wish(f"scope-{n}") for n in range(40)])
    replica.database.move_clock((NOW - await replica.database.now()).total_seconds() + 1)
    await replica.plan_due("tidy", 5)
    early = wish("early", cron="0 12 * * *", since=NOW - timedelta(days=1, hours=1))
    await replica.scopes.put([early])
    replica.elapsed += 0.9
    assert "early" not in {each.scope_id for each in (await replica.plan_due("tidy", 5)).claims}
    replica.elapsed += 0.2

    assert "early" in {each.scope_id for each in (await replica.plan_due("tidy", 5)).claims}
