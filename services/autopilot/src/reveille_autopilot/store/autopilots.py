"""Rules and their versions at rest."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import asyncpg

from reveille_autopilot.domain.models import Autopilot
from reveille_autopilot.domain.versions import RuleVersion
from reveille_autopilot.store import rows
from reveille_runtime.db import Tx
from reveille_runtime.lockorder import Level, LockOrder
from reveille_runtime.queries import load_queries

Q = load_queries("reveille_autopilot.store", "autopilots.sql")


async def insert(tx: Tx, rule: Autopilot) -> None:
    """Store a new rule."""
    await tx.execute(
        Q["insert_autopilot"],
        rule.id,
        rule.workspace_id,
        rule.title,
        rule.prompt,
        rule.issue_title_template,
        rule.agent_id,
        rule.execution_mode.value,
        rule.status.value,
        rule.creator_user_id,
        rule.rule_version_id,
        rule.rule_sequence,
        rule.created_at,
    )


async def get(tx: Tx, autopilot_id: UUID) -> Autopilot | None:
    """Read a rule."""
    row = await tx.fetchrow(Q["get_autopilot"], autopilot_id)
    return None if row is None else rows.autopilot(row)


async def lock(tx: Tx, locks: LockOrder, autopilot_id: UUID) -> Autopilot | None:
    """Read a rule and keep others from editing it."""
    found = await locks.take(tx, Level.AUTOPILOT, Q["lock_autopilots"], [autopilot_id])
    return rows.autopilot(found[0]) if found else None


async def page(tx: Tx, workspace_id: UUID, before: UUID | None, limit: int) -> list[Autopilot]:
    """List the rules of a workspace."""
    found = await tx.fetch(Q["list_autopilots"], workspace_id, before, limit)
    return [rows.autopilot(row) for row in found]


async def update(tx: Tx, before: Autopilot, after: Autopilot) -> bool:
    """Store an edit; False when the rule is not the one that was read."""
    changed = await tx.execute(
        Q["update_autopilot"],
        before.id,
        before.rule_sequence,
        after.status.value,
        after.rule_version_id,
        after.rule_sequence,
        after.updated_at,
    )
    return changed == 1


async def append_version(tx: Tx, version: RuleVersion) -> None:
    """Store what the rule says from now on."""
    await tx.execute(
        Q["insert_rule_version"],
        version.id,
        version.autopilot_id,
        version.workspace_id,
        version.sequence,
        version.change.value,
        version.publisher_user_id,
        version.title,
        version.prompt,
        version.issue_title_template,
        version.agent_id,
        version.execution_mode.value,
        version.status.value,
        list(version.triggers),
        version.created_at,
    )


async def latest_version(tx: Tx, autopilot_id: UUID) -> asyncpg.Record | None:
    """Read who published what is in force."""
    return await tx.fetchrow(Q["latest_rule_version"], autopilot_id)


async def now(tx: Tx) -> datetime:
    """Read the clock that rules get."""
    moment: datetime = await tx.fetchval(Q["database_now"])
    return moment
