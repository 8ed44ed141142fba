"""Metrics: how long the queues are, how attempts end, and what they were repeats for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import asyncpg
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from structlog.testing import capture_logs
from tests.integration.heartbeat.conftest import Stage
from tests.integration.heartbeat.kit import World
from tests.unit.heartbeat.made import NOW, RUN

from reveille_heartbeat.domain.states import RunState
from reveille_heartbeat.usecases.measure_queues import MeasureQueues
from reveille_heartbeat.usecases.runs.run_spans import RunSpans
from reveille_runtime.telemetry import Telemetry


def figures(reader: InMemoryMetricReader) -> dict[str, list[tuple[Mapping[str, Any], Any]]]:
    found: dict[str, list[tuple[Mapping[str, Any], Any]]] = {}
    data = reader.get_metrics_data()
    assert data is not None
    for resource in data.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                found[metric.name] = [
                    (dict(point.attributes or {}), getattr(point, "value", None))
                    for point in metric.data.data_points
                ]
    return found


async def test_the_queues_are_measured_by_their_rows(
    stage: Stage, rows: asyncpg.Connection[asyncpg.Record]
) -> None:
    service = await stage.start(engine_concurrency=0, sweep_interval=3600)
    world = World(service.client, stage.folder)
    await world.put()
    first, other = await world.agent(), await world.agent("other")
    made = await world.issue(first)
    await world.wake(other, issue_id=made.issue.issue_id)
    await world.wake(other)
    await rows.execute("UPDATE runs SET created_at = created_at - interval '100 s'")
    await rows.execute(
        "UPDATE runs SET state = 'scheduled_retry', scheduled_retry_at = clock() + interval '1 h'"
        " WHERE issue_id IS NULL"
    )
    reader = InMemoryMetricReader()
    telemetry = Telemetry.of("heartbeat", readers=[reader])
    assert service.app.database is not None
    measure = MeasureQueues(service.app.database, telemetry)
    await measure()

    seen = figures(reader)
    key = "messaging.destination.name"
    assert {labels[key]: depth for labels, depth in seen["reveille.queue.depth"]} == {
        "heartbeat.runs": 1,
        "heartbeat.retries": 1,
        "heartbeat.deferred": 1,
    }
    ages = {labels[key]: age for labels, age in seen["reveille.queue.oldest_age"]}
    assert 100 <= ages["heartbeat.runs"] < 200
    assert 0 < ages["heartbeat.deferred"] < 100
    # Its time is still to come.
    assert ages["heartbeat.retries"] == 0
    telemetry.shutdown()


def test_ends_are_counted_by_how_and_why_and_what_was_repeated() -> None:
    reader = InMemoryMetricReader()
    telemetry = Telemetry.of("heartbeat", readers=[reader])
    spans = RunSpans(telemetry)
    cancelled = replace(RUN, state=RunState.CANCELLED, reason="cancelled", finished_at=NOW)
    repeat = replace(
        RUN, state=RunState.SUCCEEDED, retry_reason="transient_failure", finished_at=NOW
    )
    for run in (cancelled, cancelled, repeat):
        spans.ended(run, None)

    counted = {
        (
            labels["reveille.run.outcome"],
            labels["reveille.run.reason"],
            labels["reveille.run.retry_reason"],
        ): count
        for labels, count in figures(reader)["reveille.run.ends"]
    }
    assert counted == {
        ("cancelled", "cancelled", ""): 2,
        ("succeeded", "", "transient_failure"): 1,
    }
    telemetry.shutdown()


async def test_dead_rows_that_a_held_snapshot_keeps_are_counted_and_told_once(
    stage: Stage,
    rows: asyncpg.Connection[asyncpg.Record],
) -> None:
    service = await stage.start(engine_concurrency=0, sweep_interval=3600)
    world = World(service.client, stage.folder)
    await world.put()
    await world.wake(await world.agent())
    held = await stage.database.connect("reveille_heartbeat_app")
    async with held.transaction(isolation="repeatable_read"):
        await held.fetchval("SELECT count(*) FROM runs")
        for _ in range(30):
            await rows.execute("UPDATE runs SET priority = priority")
        await rows.fetchval("SELECT pg_stat_force_next_flush()")
        await rows.fetchval("SELECT 1")
        reader = InMemoryMetricReader()
        telemetry = Telemetry.of("heartbeat", readers=[reader])
        assert service.app.database is not None
        measure = MeasureQueues(service.app.database, telemetry, many_dead=10)
        with capture_logs() as told:
            await measure()
            await measure()
    counted = {
        labels["db.collection.name"]: count
        for labels, count in figures(reader)["reveille.db.dead_rows"]
    }
    assert counted["heartbeat.runs"] >= 30
    warned = [each for each in told if each["action"] == "database.dead_rows"]
    assert [each["table"] for each in warned] == ["heartbeat.runs"]
    telemetry.shutdown()
