"""What upkeep reads and writes: runs that fail or are skipped again and again, and what is old."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from reveille_autopilot.store import rows
from reveille_runtime.db import Tx
from reveille_runtime.queries import load_queries

Q = load_queries("reveille_autopilot.store", "upkeep.sql")


@dataclass(frozen=True, slots=True)
class SkipStreak:
    """A rule whose newest runs were all skipped."""

    autopilot_id: UUID
    workspace_id: UUID
    title: str
    creator_user_id: str
    reason: str


async def failing(tx: Tx, back: timedelta, least_runs: int, least_share: float) -> list[UUID]:
    """Name the rules of whose runs nearly all failed."""
    found = await tx.fetch(Q["failing"], back, least_runs, least_share)
    return [rows.uuid(row["id"]) for row in found]


async def ended_since(tx: Tx, autopilot_id: UUID, back: timedelta) -> tuple[int, int]:
    """Count how many runs of a rule ended since it came into force, and how many of them failed."""
    row = await tx.fetchrow(Q["ended_since"], autopilot_id, back)
    return (0, 0) if row is None else (row["ended"], row["failed"])


async def notice_skip_streaks(tx: Tx, length: int, back: timedelta) -> list[SkipStreak]:
    """Note the streaks nobody was told of yet."""
    return [
        SkipStreak(
            rows.uuid(row["id"]),
            rows.uuid(row["workspace_id"]),
            row["title"],
            row["creator_user_id"],
            row["reason"] or "",
        )
        for row in await tx.fetch(Q["notice_skip_streaks"], length, back)
    ]


async def prune_runs(tx: Tx, keep: timedelta, limit: int) -> int:
    """Forget runs that ended long ago."""
    return await tx.execute(Q["prune_runs"], keep, limit)


async def prune_versions(tx: Tx, keep: timedelta, limit: int) -> int:
    """Forget versions that nothing kept refers to."""
    removed: int = await tx.fetchval(Q["prune_rule_versions"], keep, limit)
    return removed


async def prune_periods(tx: Tx, keep: timedelta) -> int:
    """Forget periods of which no run is kept."""
    return await tx.execute(Q["prune_quota_periods"], keep)


async def prune_secret_edits(tx: Tx, keep: timedelta) -> int:
    """Forget edits of secrets that nobody repeats any more."""
    return await tx.execute(Q["prune_secret_edits"], keep)
