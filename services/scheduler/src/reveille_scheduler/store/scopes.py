"""The table of scopes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import asyncpg

from reveille_runtime.db import Tx
from reveille_runtime.ids import new_id
from reveille_runtime.queries import load_queries
from reveille_scheduler.domain.planning import DueScope
from reveille_scheduler.domain.scope import Scope, ScopeDeletion, ScopeWish

Q = load_queries(__package__, "scopes.sql")


@dataclass(frozen=True, slots=True)
class LockedScope:
    """A due scope under our lock, with the clock as it was read beside it."""

    row_id: UUID
    job_name: str
    kind: str
    scope_id: str
    due: DueScope
    now: datetime


@dataclass(frozen=True, slots=True)
class Move:
    """Where planning looks next for a scope, or why it gave up on it."""

    row_id: UUID
    next_plan_at: datetime | None
    plan_error: str = ""


async def now(tx: Tx) -> datetime:
    """Read the clock, where a new scope begins to count."""
    moment: datetime = await tx.fetchval(Q["scopes_now"])
    return moment


async def put(
    tx: Tx, wish: ScopeWish, effective_from: datetime, next_plan_at: datetime | None
) -> None:
    """Store a wish; one that is not newer than the stored revision changes nothing."""
    await tx.fetchval(
        Q["upsert_scope"],
        new_id(),
        wish.job_name,
        wish.kind,
        wish.id,
        wish.cron,
        wish.time_zone,
        wish.enabled,
        wish.revision,
        effective_from,
        next_plan_at,
    )


async def delete(tx: Tx, deletion: ScopeDeletion) -> None:
    """Leave a tombstone; one that is not newer than the stored revision changes nothing."""
    await tx.execute(
        Q["delete_scope"],
        new_id(),
        deletion.job_name,
        deletion.kind,
        deletion.id,
        deletion.revision,
    )


async def by_key(tx: Tx, keys: Sequence[tuple[str, str, str]]) -> dict[tuple[str, str, str], Scope]:
    """Read scopes by (job, kind, id)."""
    jobs, kinds, ids = ([key[part] for key in keys] for part in range(3))
    rows = await tx.fetch(Q["scopes_by_key"], jobs, kinds, ids)
    return {(row["job_name"], row["kind"], row["scope_id"]): scope_of(row) for row in rows}


async def page(tx: Tx, job_name: str, after: tuple[str, str] | None, limit: int) -> list[Scope]:
    """List a job's scopes by kind and id."""
    kind, scope_id = after or (None, None)
    rows = await tx.fetch(Q["list_scopes"], job_name, kind, scope_id, limit)
    return [scope_of(row) for row in rows]


async def lock_due(tx: Tx, limit: int) -> list[UUID]:
    """Lock due scopes that nobody else is planning."""
    return [row["id"] for row in await tx.fetch(Q["lock_due_scopes"], limit)]


async def read_due(tx: Tx, row_ids: Sequence[UUID]) -> list[LockedScope]:
    """Read locked scopes that can be planned; one that became busy meanwhile is left out."""
    return [
        LockedScope(
            row_id=row["id"],
            job_name=row["job_name"],
            kind=row["kind"],
            scope_id=row["scope_id"],
            due=DueScope(row["cron"], row["time_zone"], row["effective_from"], row["latest_plan"]),
            now=row["now"],
        )
        for row in await tx.fetch(Q["due_scopes"], list(row_ids))
        if not row["busy"]
    ]


async def move(tx: Tx, moves: Sequence[Move]) -> None:
    """Say where planning looks next."""
    if moves:
        await tx.execute(
            Q["move_scopes"],
            [each.row_id for each in moves],
            [each.next_plan_at for each in moves],
            [each.plan_error for each in moves],
        )


async def explain(tx: Tx, scope_id: str) -> list[tuple[Scope, datetime, datetime]]:
    """Read the scopes with an owner's id, each with its last change and the clock."""
    rows = await tx.fetch(Q["explain_scopes"], scope_id)
    return [(scope_of(row), row["updated_at"], row["now"]) for row in rows]


def scope_of(row: asyncpg.Record) -> Scope:
    """Map a row."""
    return Scope(
        job_name=row["job_name"],
        kind=row["kind"],
        id=row["scope_id"],
        cron=row["cron"],
        time_zone=row["time_zone"],
        enabled=row["enabled"],
        revision=row["revision"],
        effective_from=row["effective_from"],
        next_plan_at=row["next_plan_at"],
        plan_error=row["plan_error"],
        deleted=row["deleted_at"] is not None,
    )
