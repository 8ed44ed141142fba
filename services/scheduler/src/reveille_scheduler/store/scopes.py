"""The table of scopes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import assert_never
from uuid import UUID

import asyncpg

from reveille_runtime.db import Tx
from reveille_runtime.ids import new_id
from reveille_runtime.queries import load_queries
from reveille_scheduler.domain.job import CatchUp
from reveille_scheduler.domain.planning import DueScope
from reveille_scheduler.domain.rule import Cadence, CronRule, Hook, Once, Rule
from reveille_scheduler.domain.scope import Scope, ScopeDeletion, ScopeKey, ScopeWish

Q = load_queries(__package__, "scopes.sql")


@dataclass(frozen=True, slots=True)
class LockedScope:
    """A due scope under our lock, its running occurrences, and the clock as read beside it."""

    row_id: UUID
    scope: Scope
    due: DueScope
    running: int
    now: datetime


@dataclass(frozen=True, slots=True)
class AskedScope:
    """A scope whose owner is asked what is due."""

    row_id: UUID
    kind: str
    scope_id: str
    revision: int


@dataclass(frozen=True, slots=True)
class Move:
    """Where planning looks next for a scope, or why it gave up on it."""

    row_id: UUID
    next_plan_at: datetime | None
    plan_error: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """Up to where a job's due scopes were looked at."""

    next_plan_at: datetime
    row_id: UUID


async def now(tx: Tx) -> datetime:
    """Read the clock, where a new scope begins to count."""
    moment: datetime = await tx.fetchval(Q["scopes_now"])
    return moment


async def put(tx: Tx, wishes: Sequence[tuple[ScopeWish, datetime, datetime | None]]) -> None:
    """Store wishes with where they count from and are looked at first; no key twice.

    One that is not newer than the stored revision changes nothing.
    """
    stored = [(each, _rule_columns(each.rule), since, first) for each, since, first in wishes]
    await tx.execute(
        Q["upsert_scopes"],
        [new_id() for _ in stored],
        [each.job_name for each, *_ in stored],
        [each.kind for each, *_ in stored],
        [each.id for each, *_ in stored],
        [columns.source for _, columns, *_ in stored],
        [columns.cron for _, columns, *_ in stored],
        [columns.time_zone for _, columns, *_ in stored],
        [columns.cadence for _, columns, *_ in stored],
        [columns.run_at for _, columns, *_ in stored],
        [each.catch_up for each, *_ in stored],
        [each.max_lateness for each, *_ in stored],
        [each.enabled for each, *_ in stored],
        [each.revision for each, *_ in stored],
        [since for *_, since, _ in stored],
        [first for *_, first in stored],
    )


async def delete(tx: Tx, deletions: Sequence[ScopeDeletion]) -> None:
    """Leave tombstones; one that is not newer than the stored revision changes nothing."""
    await tx.execute(
        Q["delete_scopes"],
        [new_id() for _ in deletions],
        [each.job_name for each in deletions],
        [each.kind for each in deletions],
        [each.id for each in deletions],
        [each.revision for each in deletions],
    )


async def by_key(tx: Tx, keys: Sequence[ScopeKey]) -> dict[ScopeKey, Scope]:
    """Read scopes by (job, kind, id)."""
    jobs, kinds, ids = ([key[part] for key in keys] for part in range(3))
    rows = await tx.fetch(Q["scopes_by_key"], jobs, kinds, ids)
    return {each.key: each for each in map(scope_of, rows)}


async def lock(tx: Tx, key: ScopeKey) -> Scope | None:
    """Lock one scope."""
    row = await tx.fetchrow(Q["lock_scope"], *key)
    return None if row is None else scope_of(row)


async def page(tx: Tx, job_name: str, after: tuple[str, str] | None, limit: int) -> list[Scope]:
    """List a job's scopes by kind and id."""
    kind, scope_id = after or (None, None)
    rows = await tx.fetch(Q["list_scopes"], job_name, kind, scope_id, limit)
    return [scope_of(row) for row in rows]


async def lock_due(tx: Tx, job_name: str, limit: int, slots: int, beyond: Mark) -> list[Mark]:
    """Lock due scopes that nobody else is planning and that have a free slot, in order."""
    rows = await tx.fetch(
        Q["lock_due_scopes"], job_name, limit, slots, beyond.next_plan_at, beyond.row_id
    )
    return [Mark(row["next_plan_at"], row["id"]) for row in rows]


async def read_due(tx: Tx, row_ids: Sequence[UUID]) -> list[LockedScope]:
    """Read locked scopes."""
    return [_locked(row) for row in await tx.fetch(Q["due_scopes"], list(row_ids))]


async def take_hooks(
    tx: Tx, job_name: str, limit: int, slots: int, patience: timedelta
) -> list[AskedScope]:
    """Take due scopes whose owner is to be asked; nobody else asks within `patience`."""
    rows = await tx.fetch(Q["take_hook_scopes"], job_name, limit, slots, patience)
    return [AskedScope(row["id"], row["kind"], row["scope_id"], row["revision"]) for row in rows]


async def latest(tx: Tx, row_ids: Sequence[UUID]) -> dict[UUID, asyncpg.Record]:
    """Read the newest occurrence of each scope that has one."""
    return {row["id"]: row for row in await tx.fetch(Q["latest_of_scopes"], list(row_ids))}


async def lock_asked(tx: Tx, asked: Sequence[AskedScope]) -> list[UUID]:
    """Lock scopes whose owner answered; one that was changed meanwhile is left out."""
    rows = await tx.fetch(
        Q["lock_asked_scopes"],
        [each.row_id for each in asked],
        [each.revision for each in asked],
    )
    return [row["id"] for row in rows]


async def move(tx: Tx, moves: Sequence[Move]) -> None:
    """Say where planning looks next."""
    if moves:
        await tx.execute(
            Q["move_scopes"],
            [each.row_id for each in moves],
            [each.next_plan_at for each in moves],
            [each.plan_error for each in moves],
        )


async def to_check(tx: Tx, after: UUID, limit: int) -> list[LockedScope]:
    """Read a stretch of enabled scopes by row id, without locks."""
    return [_locked(row) for row in await tx.fetch(Q["scopes_to_check"], after, limit)]


async def correct(tx: Tx, wrong: Sequence[tuple[LockedScope, Move]]) -> int:
    """Mend hints that nobody moved since they were read; gives how many."""
    return await tx.execute(
        Q["correct_scopes"],
        [move.row_id for _, move in wrong],
        [seen.scope.revision for seen, _ in wrong],
        [seen.scope.next_plan_at for seen, _ in wrong],
        [move.next_plan_at for _, move in wrong],
        [move.plan_error for _, move in wrong],
    )


async def explain(tx: Tx, scope_id: str) -> Collection[asyncpg.Record]:
    """Read the scopes with an owner's id, with their job's pause and the clock."""
    return await tx.fetch(Q["explain_scopes"], scope_id)


async def prune(tx: Tx, kept_for: timedelta, limit: int) -> int:
    """Remove old tombstones without history; gives how many."""
    return await tx.execute(Q["prune_scopes"], kept_for, limit)


def scope_of(row: asyncpg.Record) -> Scope:
    """Map a row."""
    return Scope(
        job_name=row["job_name"],
        kind=row["kind"],
        id=row["scope_id"],
        rule=_rule_of(row),
        enabled=row["enabled"],
        revision=row["revision"],
        effective_from=row["effective_from"],
        next_plan_at=row["next_plan_at"],
        plan_error=row["plan_error"],
        deleted=row["deleted_at"] is not None,
        catch_up=None if row["catch_up"] is None else CatchUp(row["catch_up"]),
        max_lateness=row["max_lateness"],
    )


def _locked(row: asyncpg.Record) -> LockedScope:
    scope = scope_of(row)
    due = DueScope(
        scope.kind,
        scope.id,
        scope.rule,
        scope.effective_from,
        row["latest_plan"],
        scope.catch_up,
        scope.max_lateness,
    )
    return LockedScope(row["id"], scope, due, row["running"], row["now"])


def _rule_of(row: asyncpg.Record) -> Rule:
    match row["source"]:
        case "cadence":
            return Cadence(row["cadence"])
        case "once":
            return Once(row["run_at"])
        case "hook":
            return Hook()
        case _:
            return CronRule(row["cron"], row["time_zone"])


@dataclass(frozen=True, slots=True)
class _Columns:
    source: str
    cron: str = ""
    time_zone: str = ""
    cadence: timedelta | None = None
    run_at: datetime | None = None


def _rule_columns(rule: Rule) -> _Columns:
    match rule:
        case CronRule(cron, time_zone):
            return _Columns("cron", cron=cron, time_zone=time_zone)
        case Cadence(every):
            return _Columns("cadence", cadence=every)
        case Once(at):
            return _Columns("once", run_at=at)
        case Hook():
            return _Columns("hook")
        case _:
            assert_never(rule)
