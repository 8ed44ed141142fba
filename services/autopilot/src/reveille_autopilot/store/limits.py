"""What limits admissions, at rest: the open runs of a rule, and the used runs of a period."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from reveille_autopilot.domain.deadlines import OTHERS, SCHEDULE
from reveille_autopilot.domain.models import Quota
from reveille_autopilot.store import rows
from reveille_runtime.db import Tx
from reveille_runtime.lockorder import Level, LockOrder
from reveille_runtime.queries import load_queries

Q = load_queries("reveille_autopilot.store", "limits.sql")


@dataclass(frozen=True, slots=True)
class Period:
    """A period of a workspace's quota; its row's lock orders the admissions in it."""

    workspace_id: UUID
    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Released:
    """A run that waited and may begin."""

    id: UUID
    workspace_id: UUID
    autopilot_id: UUID
    occurrence_key: str
    trace_carrier: Mapping[str, str]


async def lock_rules(tx: Tx, locks: LockOrder, ids: Iterable[UUID]) -> dict[UUID, UUID]:
    """Hold rules until the transaction ends; gives the version of each that is in force."""
    found = await locks.take(tx, Level.AUTOPILOT, Q["lock_rules"], ids)
    return {rows.uuid(row["id"]): rows.uuid(row["rule_version_id"]) for row in found}


async def lock_periods(tx: Tx, locks: LockOrder, periods: Sequence[Period]) -> None:
    """Hold the periods that runs are counted in; they begin with their first admission."""
    if not periods:
        return
    locks.note(Level.WORKSPACE, [each.workspace_id for each in periods])
    workspaces = [each.workspace_id for each in periods]
    starts = [each.start for each in periods]
    await tx.execute(Q["put_quota_periods"], workspaces, starts, [each.end for each in periods])
    await tx.fetch(Q["lock_quota_periods"], workspaces, starts)


async def overlapping(tx: Tx, ids: Sequence[UUID]) -> dict[UUID, tuple[int, int]]:
    """Count the open runs of rules: those under way, and those that wait."""
    found = await tx.fetch(Q["overlapping"], ids)
    return {rows.uuid(row["autopilot_id"]): (row["active"], row["buffered"]) for row in found}


async def used(tx: Tx, workspace_id: UUID, start: datetime, limit: int) -> tuple[int, Quota | None]:
    """Count the used runs of a period, up to a limit; gives the quota of the moment with it."""
    row = await tx.fetchrow(Q["used_runs"], workspace_id, start, limit)
    return (0, None) if row is None else (row["used"], rows.quota(row))


async def count_blocked(
    tx: Tx, workspace_id: UUID, start: datetime, source: str, number: int
) -> None:
    """Count refused occurrences."""
    await tx.execute(Q["count_blocked"], workspace_id, start, source, number)


async def blocked(tx: Tx, workspace_id: UUID, start: datetime) -> dict[str, int]:
    """Read how many occurrences were refused, by source."""
    counts: dict[str, int] | None = await tx.fetchval(Q["blocked_counts"], workspace_id, start)
    return counts or {}


async def cancel_others(tx: Tx, kept: Mapping[UUID, UUID]) -> None:
    """Mark every open run of these rules, but the one that each keeps."""
    if kept:
        await tx.execute(Q["cancel_others"], list(kept), list(kept.values()))


async def alone(tx: Tx, run_ids: Sequence[UUID]) -> list[UUID]:
    """Name the rules of runs whose ends may let another one begin."""
    return [rows.uuid(row["id"]) for row in await tx.fetch(Q["alone"], run_ids)]


async def release(tx: Tx, autopilot_ids: Sequence[UUID]) -> list[Released]:
    """Let the waiting runs of locked rules begin, where no other is open."""
    found = await tx.fetch(Q["release_buffered"], autopilot_ids, SCHEDULE, OTHERS)
    return [
        Released(
            rows.uuid(row["id"]),
            rows.uuid(row["workspace_id"]),
            rows.uuid(row["autopilot_id"]),
            row["occurrence_key"],
            row["trace_carrier"],
        )
        for row in found
    ]
