"""The table of jobs."""

from __future__ import annotations

from collections.abc import Collection

import asyncpg

from reveille_runtime.db import Tx
from reveille_runtime.queries import load_queries
from reveille_scheduler.domain.job import Job, StoredJob

Q = load_queries(__package__, "jobs.sql")


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
    )
    return StoredJob(job, row["created_at"], row["updated_at"])
