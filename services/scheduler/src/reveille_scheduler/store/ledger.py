"""The ledger for operators: reading it, asking for attempts, and forgetting what is old."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import asyncpg

from reveille_runtime.db import Tx
from reveille_runtime.queries import load_queries
from reveille_scheduler.domain.backfill import Recorded
from reveille_scheduler.domain.occurrence import Execution
from reveille_scheduler.domain.scope import ScopeKey
from reveille_scheduler.domain.states import ExecutionState

Q = load_queries(__package__, "ledger.sql")


@dataclass(frozen=True, slots=True)
class Filter:
    """Which occurrences to list; None and empty mean all. `since` is inclusive, `before` is not."""

    job_name: str | None = None
    scope_id: str | None = None
    states: tuple[ExecutionState, ...] = ()
    since: datetime | None = None
    before: datetime | None = None


@dataclass(frozen=True, slots=True)
class Pruned:
    """A stretch of old occurrences that retention looked at, and where it ends."""

    removed: int
    looked_at: int
    finished_at: datetime | None
    id: UUID | None


async def get(tx: Tx, execution_id: UUID) -> Execution | None:
    """Read one occurrence."""
    row = await tx.fetchrow(Q["get_execution"], execution_id)
    return None if row is None else execution_of(row)


async def page(
    tx: Tx, wanted: Filter, after: tuple[datetime, UUID] | None, limit: int
) -> list[Execution]:
    """List occurrences, newest planned first; each filter has a statement with an index of its own.

    `after` is the last row of the page before.
    """
    plan_time, execution_id = after or (None, None)
    states = [state.value for state in wanted.states] or None
    window = (states, wanted.since, wanted.before, plan_time, execution_id, limit)
    if wanted.scope_id is not None:
        rows = await tx.fetch(Q["list_scope_executions"], wanted.scope_id, *window, wanted.job_name)
    elif wanted.states == (ExecutionState.FAILED,):
        rows = await tx.fetch(Q["list_failed_executions"], wanted.job_name, *window)
    elif wanted.job_name is not None:
        rows = await tx.fetch(Q["list_job_executions"], wanted.job_name, *window)
    else:
        rows = await tx.fetch(Q["list_executions"], *window)
    return [execution_of(row) for row in rows]


Explained = tuple[Execution, datetime | None, datetime]


async def explain(tx: Tx, execution_id: UUID) -> list[Explained]:
    """Read an occurrence for an explanation, with the end of its lease and the clock."""
    rows = await tx.fetch(Q["explain_execution"], execution_id)
    return [(execution_of(row), row["stale_after"], row["now"]) for row in rows]


async def explain_scope(tx: Tx, scope_id: str, plan_time: datetime | None) -> list[Explained]:
    """Read the newest occurrences of a scope, or the one of a time, for an explanation."""
    rows = await tx.fetch(Q["explain_scope_executions"], scope_id, plan_time)
    return [(execution_of(row), row["stale_after"], row["now"]) for row in rows]


async def ask_for_retry(
    tx: Tx, execution_id: UUID, attempts: int, retried_for: timedelta
) -> Execution | None:
    """Give a final failure new attempts; None when it is not one."""
    row = await tx.fetchrow(Q["ask_for_retry"], execution_id, attempts, retried_for)
    return None if row is None else execution_of(row)


async def latest_plan(tx: Tx, key: ScopeKey) -> datetime | None:
    """Read the newest planned instant of a scope."""
    moment: datetime | None = await tx.fetchval(Q["latest_plan"], *key)
    return moment


async def in_range(
    tx: Tx, key: ScopeKey, start: datetime, end: datetime
) -> dict[datetime, Recorded]:
    """Read what is recorded of a scope in a range, both ends included."""
    return {
        row["plan_time"]: Recorded(
            row["id"],
            ExecutionState(row["state"]),
            row["reason"],
            promised=row["next_retry_at"] is not None,
        )
        for row in await tx.fetch(Q["executions_in_range"], *key, start, end)
    }


async def ask_for_missed(tx: Tx, ids: Sequence[UUID], now: datetime) -> set[UUID]:
    """Promise too late occurrences again; gives those that still were too late."""
    return {row["id"] for row in await tx.fetch(Q["ask_for_missed"], list(ids), now)}


async def insert_missed(
    tx: Tx,
    key: ScopeKey,
    plans: Sequence[tuple[UUID, datetime, Mapping[str, str]]],
    max_attempts: int,
    message: str,
    now: datetime,
) -> set[UUID]:
    """Record missed occurrences as promised; gives those that nobody else recorded."""
    rows = await tx.fetch(
        Q["insert_missed"],
        [each for each, _, _ in plans],
        *key,
        [plan_time for _, plan_time, _ in plans],
        max_attempts,
        message,
        [dict(carrier) for *_, carrier in plans],
        now,
    )
    return {row["id"] for row in rows}


async def prune(tx: Tx, kept_for: timedelta, beyond: tuple[datetime, UUID], limit: int) -> Pruned:
    """Remove old occurrences of one stretch, oldest ends first."""
    row = await tx.fetchrow(Q["prune_executions"], kept_for, *beyond, limit)
    if row is None:
        return Pruned(0, 0, None, None)
    return Pruned(row["removed"], row["looked_at"], row["finished_at"], row["id"])


def execution_of(row: asyncpg.Record) -> Execution:
    """Map a row."""
    return Execution(
        id=row["id"],
        job_name=row["job_name"],
        scope_kind=row["scope_kind"],
        scope_id=row["scope_id"],
        plan_time=row["plan_time"],
        state=ExecutionState(row["state"]),
        attempt=row["attempt"],
        max_attempts=row["max_attempts"],
        next_retry_at=row["next_retry_at"],
        runner_id=row["runner_id"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        reason=row["reason"],
        message=row["message"],
        result=row["result"],
        collapsed=row["collapsed"],
        carrier=row["trace_carrier"],
        retry_until=row["retry_until"],
        requested_at=row["requested_at"],
    )
