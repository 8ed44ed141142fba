"""The table of jobs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import asyncpg

from reveille_runtime.db import Tx
from reveille_runtime.queries import load_queries
from reveille_scheduler.domain.job import CatchUp, Job, StoredJob

Q = load_queries(__package__, "jobs.sql")


@dataclass(frozen=True, slots=True)
class DueJob:
    """What a job has to do now."""

    name: str
    plans: bool
    hooks: bool
    retries: bool


async def upsert(tx: Tx, job: Job) -> StoredJob:
    """Store a job as its owner wants it."""
    row = await tx.fetchrow(
        Q["upsert_job"],
        job.name,
        job.handler,
        job.catch_up_window,
        job.max_lateness,
        job.run_timeout,
        job.stale_timeout,
        job.heartbeat_interval,
        job.max_attempts,
        list(job.retry_backoff),
        job.retry_deadline,
        job.schedule_delay,
        job.catch_up.value,
        job.max_plans_per_tick,
        job.allow_stale_reentry,
        job.plans_per_scope,
        job.jitter,
    )
    assert row is not None  # noqa: S101 - an upsert without a condition returns its row
    return _stored(row)


async def page(tx: Tx, after: str | None, limit: int) -> list[StoredJob]:
    """List jobs by name."""
    return [_stored(row) for row in await tx.fetch(Q["list_jobs"], after, limit)]


async def by_name(tx: Tx, names: Collection[str]) -> dict[str, Job]:
    """Read the jobs a batch touches."""
    rows = await tx.fetch(Q["jobs_by_name"], sorted(set(names)))
    return {row["name"]: _stored(row).job for row in rows}


async def get(tx: Tx, name: str) -> StoredJob | None:
    """Read one job."""
    rows = await tx.fetch(Q["jobs_by_name"], [name])
    return _stored(rows[0]) if rows else None


async def pause(tx: Tx, name: str, note: str) -> StoredJob | None:
    """Stop planning and retries of a job; None when there is no such job."""
    row = await tx.fetchrow(Q["pause_job"], name, note)
    return None if row is None else _stored(row)


async def resume(tx: Tx, name: str) -> StoredJob | None:
    """End a pause; None when there is no such job."""
    row = await tx.fetchrow(Q["resume_job"], name)
    return None if row is None else _stored(row)


async def due(tx: Tx) -> list[DueJob]:
    """Read which jobs have something to do now."""
    found = [
        DueJob(row["name"], row["plans"], row["hooks"], row["retries"])
        for row in await tx.fetch(Q["due_jobs"])
    ]
    return [each for each in found if each.plans or each.hooks or each.retries]


def _stored(row: asyncpg.Record) -> StoredJob:
    job = Job(
        name=row["name"],
        handler=row["handler"],
        catch_up_window=row["catch_up_window"],
        max_lateness=row["max_lateness"],
        run_timeout=row["run_timeout"],
        stale_timeout=row["stale_timeout"],
        heartbeat_interval=row["heartbeat_interval"],
        max_attempts=row["max_attempts"],
        retry_backoff=tuple(row["retry_backoff"]),
        retry_deadline=row["retry_deadline"],
        schedule_delay=row["schedule_delay"],
        catch_up=CatchUp(row["catch_up"]),
        max_plans_per_tick=row["max_plans_per_tick"],
        allow_stale_reentry=row["allow_stale_reentry"],
        plans_per_scope=row["plans_per_scope"],
        jitter=row["jitter"],
    )
    return StoredJob(job, row["created_at"], row["updated_at"], row["paused_at"], row["pause_note"])
