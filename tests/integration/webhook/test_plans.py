"""The hot statements stay index scans on a large table, also when its statistics are stale."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
import pytest_asyncio
from tests.integration.webhook.conftest import Hook
from tests.integration.webhook.test_store import of

from reveille_runtime.db import Database
from reveille_runtime.queries import Query
from reveille_testkit.database import TestDatabase
from reveille_webhook.domain.delivery import NewDelivery
from reveille_webhook.domain.retrying import FAR_OFF
from reveille_webhook.store import deliveries, endpoints, queue

ROWS = 20_000
GRACE = timedelta(seconds=2)
LEASE = timedelta(seconds=30)
EARLY = datetime(2000, 1, 1, tzinfo=UTC)


async def fill(admin: asyncpg.Connection[asyncpg.Record], *, due_each: int) -> None:
    """Make a queue of which one delivery in `due_each` is due, and many endpoints."""
    await admin.execute(
        """
        INSERT INTO webhook.deliveries (id, endpoint_id, workspace_id, provider, event, action,
            signature_state, state, body, body_bytes, body_sha256, response_status, dedupe_key,
            available_at, received_at, last_received_at, queued_at, finished_at)
        SELECT gen_random_uuid(), md5((n % 50)::text)::uuid, md5('w')::uuid, 'github', 'push', '',
            'valid', CASE WHEN n % $2 = 0 THEN 'queued' ELSE 'dispatched' END, 'x', 1,
            decode(repeat('00', 32), 'hex'), 200, n::text, t, t, t, t,
            CASE WHEN n % $2 = 0 THEN NULL ELSE t END
        FROM generate_series(1, $1) AS n, (SELECT clock_timestamp() - interval '1 h' AS t) AS t
        """.replace("$1", str(ROWS)).replace("$2", str(due_each))
    )
    await admin.execute(
        """
        INSERT INTO webhook.endpoints (id, workspace_id, token_sha256, provider, max_body_bytes,
            revision)
        SELECT gen_random_uuid(), gen_random_uuid(), sha256(n::text::bytea), 'github', 1, 1
        FROM generate_series(1, $1) AS n
        """.replace("$1", str(ROWS))
    )


@pytest_asyncio.fixture
async def large(database: TestDatabase) -> Database:
    """A queue with a long past, of which a few deliveries are due."""
    opened = await database.open("webhook")
    await fill(await database.admin(), due_each=1000)
    return opened


def nodes(plan: Any) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


async def scans(database: Database, query: Query, *arguments: object) -> set[tuple[str, str]]:
    """Give how a statement would read tables: kind and index of each scan."""
    async with database.session() as tx:
        text = await tx.raw.fetchval(f"EXPLAIN (FORMAT JSON) {query.sql}", *arguments)
    return tables_read(text)


def tables_read(text: str) -> set[tuple[str, str]]:
    """Give kind and index of each scan of a plan."""
    plan = json.loads(text)[0]["Plan"]
    return {
        (node["Node Type"], node.get("Index Name", ""))
        for node in nodes(plan)
        if "Relation Name" in node or node["Node Type"] == "Bitmap Index Scan"
    }


def arrived() -> NewDelivery:
    """A delivery whose content may have come before."""
    hook = Hook(uuid4(), uuid4(), "", None)
    return replace(of(hook), content_key=b"x" * 32, content_once=True)


@pytest.mark.parametrize("fresh", [True, False], ids=["analysed", "stale"])
async def test_hot_statements_read_what_they_need(
    large: Database, database: TestDatabase, fresh: bool
) -> None:
    if fresh:
        await (await database.admin()).execute("ANALYZE webhook.deliveries, webhook.endpoints")
    one = [uuid4()]

    found = {
        "claim": await scans(large, queue.Q["claim"], LEASE, 200, EARLY, 60, 600, GRACE, FAR_OFF),
        "expired": await scans(large, queue.Q["expired"], 200),
        "copies": await scans(large, deliveries.Q["count_copies"], one, ["5"], [1], [0]),
        "content": await scans(large, deliveries.Q["originals_of_content"], [b"x" * 32]),
        "insert": await scans(
            large, deliveries.Q["insert_deliveries"], *deliveries._columns([arrived()] * 32)
        ),
        "held": await scans(large, deliveries.Q["release_held"], uuid4(), 1000),
        "paced": await scans(large, endpoints.Q["pace_anew"], uuid4(), 1000),
        "watch": await scans(
            large, deliveries.Q["came_in"], uuid4(), None, datetime.now(UTC), uuid4(), 500
        ),
        "tokens": await scans(large, endpoints.Q["find_endpoints"], [b"x" * 32]),
        "page": await scans(
            large,
            deliveries.Q["list_deliveries"],
            *(uuid4(), None, None, None, None, 51, None, None, None, None, None, None),
        ),
        "by hash": await scans(
            large,
            deliveries.Q["list_deliveries"],
            *(uuid4(), None, None, None, None, 51, None, None, None, None, None, b"y" * 32),
        ),
    }

    assert {
        (name, kind) for name, kinds in found.items() for kind, _ in kinds if kind == "Seq Scan"
    } == set()
    indexes = {name: {index for _, index in kinds if index} for name, kinds in found.items()}
    assert "deliveries_due" in indexes["claim"]
    assert indexes["claim"] <= {
        "deliveries_due",
        "deliveries_lane",
        "deliveries_pkey",
        "endpoints_pkey",
    }
    assert indexes["content"] == indexes["insert"] == {"deliveries_by_content"}
    assert "deliveries_held" in indexes["held"]
    assert indexes["paced"] <= {"deliveries_due", "deliveries_by_endpoint", "deliveries_pkey"}
    assert indexes["watch"] <= {
        "deliveries_by_workspace",
        "deliveries_by_endpoint",
        "deliveries_pkey",
    }
    assert indexes["expired"] == {"deliveries_leased"}
    assert indexes["copies"] & {"deliveries_live_key", "deliveries_by_key"}
    assert {"endpoints_token", "endpoints_previous_token"} <= indexes["tokens"]
    assert indexes["page"] <= {"deliveries_by_workspace", "deliveries_by_endpoint"}


async def test_a_plan_made_for_an_empty_table_serves_a_full_one(
    database: TestDatabase,
) -> None:
    """Of many that are due, as while autopilot is away, those that were judged are found by id."""
    opened = await database.open("webhook")
    judged = "ARRAY[gen_random_uuid()], '{accepted}', '{NULL}', '{queued}', '{x}', '{x}', '{200}'"
    async with opened.session() as tx:
        await tx.raw.execute("SET plan_cache_mode = force_generic_plan")
        await tx.raw.execute(f"PREPARE judged AS {deliveries.Q['record_admissions'].sql}")
        await tx.raw.execute(f"EXECUTE judged ({judged})")
        await fill(await database.admin(), due_each=1)
        text = await tx.raw.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE judged ({judged})")
        await tx.raw.execute("RESET plan_cache_mode; DEALLOCATE judged")

    found = tables_read(text)
    assert "Seq Scan" not in {kind for kind, _ in found}
    assert {index for _, index in found if index} == {"deliveries_pkey"}


async def test_forgetting_reads_what_ended_first(large: Database, database: TestDatabase) -> None:
    await (await database.admin()).execute("ANALYZE webhook.deliveries")

    found = await scans(large, deliveries.Q["prune"], timedelta(days=90), 500)

    assert "deliveries_finished_at" in {index for _, index in found}


async def test_a_claim_takes_what_is_due_and_no_more(large: Database) -> None:
    async with large.session() as tx:
        first = await queue.claim(tx, LEASE, 15, EARLY, 0, 0, GRACE, FAR_OFF)
        rest = await queue.claim(tx, LEASE, 200, first.newest or EARLY, 0, 0, GRACE, FAR_OFF)

    assert (len(first.claims), len(rest.claims)) == (15, ROWS // 1000 - 15)
    assert len({each.token for each in (*first.claims, *rest.claims)}) == ROWS // 1000
