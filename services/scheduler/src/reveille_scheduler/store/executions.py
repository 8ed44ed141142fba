"""The ledger while it works: recording, claiming, renewing and ending attempts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from reveille_runtime.db import Tx
from reveille_runtime.lease import Lease
from reveille_runtime.queries import load_queries
from reveille_scheduler.domain.occurrence import Ending
from reveille_scheduler.domain.states import ExecutionState

Q = load_queries(__package__, "executions.sql")
# A scope by its kind and id, where the job is known.
ScopeName = tuple[str, str]


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
    retried_for: timedelta
    collapsed: int
    carrier: Mapping[str, str]
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Begun:
    """An attempt as its claim wrote it."""

    attempt: int
    max_attempts: int
    give_backs: int
    retry_until: datetime
    started_at: datetime


@dataclass(frozen=True, slots=True)
class DueRetry:
    """An occurrence whose next attempt is due, under our lock."""

    id: UUID
    job_name: str
    scope_kind: str
    scope_id: str
    plan_time: datetime
    state: ExecutionState
    retry_until: datetime
    in_force: bool
    running: int
    carrier: Mapping[str, str]
    now: datetime


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """A promised attempt that is not made any more."""

    retry: DueRetry
    state: ExecutionState
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Expired:
    """A claim whose lease has run out."""

    lease: Lease
    job_name: str
    plan_time: datetime
    attempt: int
    max_attempts: int
    started_at: datetime
    retry_until: datetime
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


@dataclass(frozen=True, slots=True)
class Settled:
    """An attempt that ended; `awaited` when its scope has something due that can take its place."""

    span: Span
    awaited: bool


async def insert(tx: Tx, rows: Sequence[NewExecution], runner: str) -> dict[UUID, Begun | None]:
    """Record occurrences; gives those that were not recorded before, None for a skipped one."""
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
        [each.retried_for for each in rows],
    )
    most = {each.id: each.max_attempts for each in rows}
    return {
        row["id"]: None
        if row["started_at"] is None
        else Begun(1, most[row["id"]], 0, row["retry_until"], row["started_at"])
        for row in found
    }


async def recorded(
    tx: Tx, job_name: str, plans: Sequence[tuple[str, str, datetime]]
) -> set[tuple[str, str, datetime]]:
    """Give those of (kind, scope id, plan time) that the ledger holds already."""
    if not plans:
        return set()
    rows = await tx.fetch(
        Q["recorded_executions"],
        job_name,
        [kind for kind, _, _ in plans],
        [scope_id for _, scope_id, _ in plans],
        [plan_time for *_, plan_time in plans],
    )
    return {(row["kind"], row["scope_id"], row["plan_time"]) for row in rows}


async def promised_scopes(tx: Tx, job_name: str, after: ScopeName, limit: int) -> list[ScopeName]:
    """Read a stretch of the scopes with promised attempts, by name."""
    rows = await tx.fetch(Q["promised_scopes"], job_name, *after, limit)
    return [(row["scope_kind"], row["scope_id"]) for row in rows]


async def longest_due_scopes(tx: Tx, job_name: str, limit: int) -> list[ScopeName]:
    """Read the scopes of the promised attempts that are due for longest."""
    rows = await tx.fetch(Q["longest_due_scopes"], job_name, limit)
    return [(row["scope_kind"], row["scope_id"]) for row in rows]


async def lock_due_retries(
    tx: Tx, job_name: str, of: Sequence[ScopeName], limit: int, slots: int
) -> list[UUID]:
    """Lock occurrences whose next attempt is due and has a free slot, and their scopes."""
    kinds, ids = [kind for kind, _ in of], [scope_id for _, scope_id in of]
    found = await tx.fetch(Q["find_due_retries"], job_name, kinds, ids, limit, slots)
    if not found:
        return []
    wanted = {row["scope_row"] for row in found}
    locked = {row["id"] for row in await tx.fetch(Q["lock_retry_scopes"], list(wanted))}
    ours = [row["id"] for row in found if row["scope_row"] in locked]
    return [row["id"] for row in await tx.fetch(Q["lock_due_retries"], ours)]


async def read_due_retries(tx: Tx, ids: Sequence[UUID]) -> list[DueRetry]:
    """Read locked retries, oldest plan first."""
    return [
        DueRetry(
            id=row["id"],
            job_name=row["job_name"],
            scope_kind=row["scope_kind"],
            scope_id=row["scope_id"],
            plan_time=row["plan_time"],
            state=ExecutionState(row["state"]),
            retry_until=row["retry_until"],
            in_force=row["in_force"],
            running=row["running"],
            carrier=row["trace_carrier"],
            now=row["now"],
        )
        for row in await tx.fetch(Q["due_retries"], list(ids))
    ]


async def claim_retries(
    tx: Tx, leases: Sequence[Lease], length: timedelta, retried_for: timedelta, runner: str
) -> dict[UUID, Begun]:
    """Begin the next attempt of locked occurrences of one job."""
    found = await tx.fetch(
        Q["claim_retries"],
        [lease.id for lease in leases],
        [lease.token for lease in leases],
        [length for _ in leases],
        runner,
        [retried_for for _ in leases],
    )
    return {
        row["id"]: Begun(
            row["attempt"],
            row["max_attempts"],
            row["give_backs"],
            row["retry_until"],
            row["started_at"],
        )
        for row in found
    }


async def withdraw(tx: Tx, withdrawals: Sequence[Withdrawal]) -> dict[UUID, Span]:
    """End locked occurrences whose promised attempt is not made any more."""
    rows = await tx.fetch(
        Q["withdraw_retries"],
        [each.retry.id for each in withdrawals],
        [each.state.value for each in withdrawals],
        [each.reason for each in withdrawals],
        [each.message for each in withdrawals],
    )
    return {row["id"]: Span(row["created_at"], row["finished_at"]) for row in rows}


async def renew(tx: Tx, leases: Sequence[Lease]) -> Collection[UUID]:
    """Renew leases; gives those that are still ours."""
    rows = await tx.fetch(
        Q["renew"], [lease.id for lease in leases], [lease.token for lease in leases]
    )
    return [row["id"] for row in rows]


async def settle(tx: Tx, settlements: Sequence[Settlement]) -> dict[UUID, Settled]:
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
    return {
        row["id"]: Settled(Span(row["created_at"], row["finished_at"]), row["awaited"])
        for row in rows
    }


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
            retry_until=row["retry_until"],
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


async def now(tx: Tx) -> datetime:
    """Read the clock that waits are counted from."""
    moment: datetime = await tx.fetchval(Q["executions_now"])
    return moment
