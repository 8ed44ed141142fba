"""The ledger of occurrences."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import asyncpg

from reveille_runtime.db import Tx
from reveille_runtime.lease import Lease
from reveille_runtime.queries import load_queries
from reveille_scheduler.domain.occurrence import Ending, Execution
from reveille_scheduler.domain.states import ExecutionState

Q = load_queries(__package__, "executions.sql")


@dataclass(frozen=True, slots=True)
class NewExecution:
    """An occurrence to record: claimed when it has a token, skipped when it has none."""

    id: UUID
    job_name: str
    scope_kind: str
    scope_id: str
    plan_time: datetime
    max_attempts: int
    token: UUID | None
    lease: timedelta
    collapsed: int
    carrier: Mapping[str, str]
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class DueRetry:
    """A failed occurrence whose time has come, under our lock."""

    id: UUID
    job_name: str
    scope_kind: str
    scope_id: str
    plan_time: datetime
    in_force: bool
    busy: bool
    carrier: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Expired:
    """A claim whose lease has run out."""

    lease: Lease
    job_name: str
    plan_time: datetime
    attempt: int
    max_attempts: int
    started_at: datetime
    carrier: Mapping[str, str]
    now: datetime


@dataclass(frozen=True, slots=True)
class Settlement:
    """The end of an attempt, fenced by its lease."""

    lease: Lease
    ending: Ending
    next_retry_at: datetime | None


@dataclass(frozen=True, slots=True)
class Span:
    """From when to when an occurrence lived, for its span."""

    start: datetime
    end: datetime


async def insert(tx: Tx, rows: Sequence[NewExecution], runner: str) -> dict[UUID, datetime | None]:
    """Record occurrences; gives those that were not recorded before, with their start."""
    columns = (
        [each.id for each in rows],
        [each.job_name for each in rows],
        [each.scope_kind for each in rows],
        [each.scope_id for each in rows],
        [each.plan_time for each in rows],
        ["skipped" if each.token is None else "running" for each in rows],
        [each.max_attempts for each in rows],
        [each.token for each in rows],
        [each.lease for each in rows],
    )
    found = await tx.fetch(
        Q["insert_executions"],
        *columns,
        runner,
        [each.collapsed for each in rows],
        [each.reason for each in rows],
        [each.message for each in rows],
        [dict(each.carrier) for each in rows],
    )
    return {row["id"]: row["started_at"] for row in found}


async def lock_due_retries(tx: Tx, limit: int) -> list[UUID]:
    """Lock failed occurrences whose time has come, and their scopes."""
    return [row["id"] for row in await tx.fetch(Q["lock_due_retries"], limit)]


async def read_due_retries(tx: Tx, ids: Sequence[UUID]) -> list[DueRetry]:
    """Read locked retries, oldest plan first."""
    return [
        DueRetry(
            id=row["id"],
            job_name=row["job_name"],
            scope_kind=row["scope_kind"],
            scope_id=row["scope_id"],
            plan_time=row["plan_time"],
            in_force=row["in_force"],
            busy=row["busy"],
            carrier=row["trace_carrier"],
        )
        for row in await tx.fetch(Q["due_retries"], list(ids))
    ]


async def claim_retries(
    tx: Tx, leases: Sequence[tuple[Lease, timedelta]], runner: str
) -> dict[UUID, tuple[int, datetime]]:
    """Begin the next attempt of locked occurrences; gives its number and start."""
    found = await tx.fetch(
        Q["claim_retries"],
        [lease.id for lease, _ in leases],
        [lease.token for lease, _ in leases],
        [length for _, length in leases],
        runner,
    )
    return {row["id"]: (row["attempt"], row["started_at"]) for row in found}


async def supersede(tx: Tx, ids: Sequence[UUID], message: str) -> list[asyncpg.Record]:
    """Skip locked retries that a newer rule has overtaken."""
    return await tx.fetch(Q["supersede"], list(ids), message)


async def renew(tx: Tx, leases: Sequence[Lease]) -> Collection[UUID]:
    """Renew leases; gives those that are still ours."""
    rows = await tx.fetch(
        Q["renew"], [lease.id for lease in leases], [lease.token for lease in leases]
    )
    return [row["id"] for row in rows]


async def settle(tx: Tx, settlements: Sequence[Settlement]) -> dict[UUID, Span]:
    """End attempts; one that is not in the answer was taken over and stays as it is."""
    rows = await tx.fetch(
        Q["settle"],
        [each.lease.id for each in settlements],
        [each.lease.token for each in settlements],
        [each.ending.state.value for each in settlements],
        [int(each.ending.given_back) for each in settlements],
        [each.next_retry_at for each in settlements],
        [each.ending.reason for each in settlements],
        [each.ending.message for each in settlements],
        [dict(each.ending.result) for each in settlements],
    )
    return {row["id"]: Span(row["created_at"], row["finished_at"]) for row in rows}


async def expired(tx: Tx, limit: int) -> list[Expired]:
    """Read claims whose lease has run out, longest first."""
    return [
        Expired(
            lease=Lease(row["id"], row["lease_token"]),
            job_name=row["job_name"],
            plan_time=row["plan_time"],
            attempt=row["attempt"],
            max_attempts=row["max_attempts"],
            started_at=row["started_at"],
            carrier=row["trace_carrier"],
            now=row["now"],
        )
        for row in await tx.fetch(Q["expired"], limit)
    ]


async def take_over(tx: Tx, gone: Sequence[tuple[Lease, datetime | None]]) -> dict[UUID, Span]:
    """End the attempts of holders that are gone; one that was renewed meanwhile is not touched."""
    rows = await tx.fetch(
        Q["take_over"],
        [lease.id for lease, _ in gone],
        [lease.token for lease, _ in gone],
        [retry for _, retry in gone],
    )
    return {row["id"]: Span(row["created_at"], row["finished_at"]) for row in rows}


async def get(tx: Tx, execution_id: UUID) -> Execution | None:
    """Read one occurrence."""
    row = await tx.fetchrow(Q["get_execution"], execution_id)
    return None if row is None else execution_of(row)


async def page(
    tx: Tx,
    job_name: str | None,
    scope_id: str | None,
    states: Sequence[ExecutionState],
    before: tuple[datetime, UUID] | None,
    limit: int,
) -> list[Execution]:
    """List occurrences, newest planned first."""
    plan_time, execution_id = before or (None, None)
    rows = await tx.fetch(
        Q["list_executions"],
        job_name,
        scope_id,
        [state.value for state in states] or None,
        plan_time,
        execution_id,
        limit,
    )
    return [execution_of(row) for row in rows]


async def explain(
    tx: Tx, execution_id: UUID | None, scope_id: str | None, plan_time: datetime | None
) -> list[tuple[Execution, datetime | None, datetime]]:
    """Read occurrences for an explanation, each with the end of its lease and the clock."""
    rows = await tx.fetch(Q["explain_executions"], execution_id, scope_id, plan_time)
    return [(execution_of(row), row["stale_after"], row["now"]) for row in rows]


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
    )


async def give_backs(tx: Tx, ids: Sequence[UUID]) -> dict[UUID, int]:
    """Read how often attempts of these occurrences were given back."""
    if not ids:
        return {}
    return {row["id"]: row["give_backs"] for row in await tx.fetch(Q["give_backs"], list(ids))}
