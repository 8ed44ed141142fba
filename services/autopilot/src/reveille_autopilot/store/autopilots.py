"""Rules and their versions at rest."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from reveille_autopilot.domain.models import Autopilot
from reveille_autopilot.domain.states import AutopilotStatus, RunState
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
        rule.squad_id,
        rule.project_id,
        rule.execution_mode.value,
        rule.overlap_policy.value,
        rule.status.value,
        rule.creator_user_id,
        rule.rule_version_id,
        rule.rule_sequence,
        rule.revision,
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


async def page(
    tx: Tx,
    workspace_id: UUID,
    statuses: Sequence[AutopilotStatus],
    before: UUID | None,
    limit: int,
) -> list[Autopilot]:
    """List the rules of a workspace."""
    wanted = [status.value for status in statuses]
    found = await tx.fetch(Q["list_autopilots"], workspace_id, wanted, before, limit)
    return [rows.autopilot(row) for row in found]


async def update(tx: Tx, before: Autopilot, after: Autopilot) -> bool:
    """Store an edit; False when the rule is not the one that was read."""
    changed = await tx.execute(
        Q["update_autopilot"],
        before.id,
        before.revision,
        after.title,
        after.prompt,
        after.issue_title_template,
        after.agent_id,
        after.squad_id,
        after.project_id,
        after.execution_mode.value,
        after.overlap_policy.value,
        after.status.value,
        after.pause_reason,
        after.rule_version_id,
        after.rule_sequence,
        after.revision,
        after.active_since,
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
        version.squad_id,
        version.project_id,
        version.execution_mode.value,
        version.overlap_policy.value,
        version.status.value,
        list(version.triggers),
        version.created_at,
    )


async def versions(tx: Tx, autopilot_id: UUID, before: int | None, limit: int) -> list[RuleVersion]:
    """List what a rule has said, newest first."""
    found = await tx.fetch(Q["list_rule_versions"], autopilot_id, before, limit)
    return [rows.rule_version(row) for row in found]


async def version(tx: Tx, version_id: UUID) -> RuleVersion | None:
    """Read what a rule said once."""
    row = await tx.fetchrow(Q["get_rule_version"], version_id)
    return None if row is None else rows.rule_version(row)


async def by_target(
    tx: Tx,
    workspace_id: UUID | None,
    agents: Sequence[UUID] | None,
    squads: Sequence[UUID] | None,
    after: UUID,
    limit: int,
) -> list[Autopilot]:
    """Read the rules whose target matters, of agents and squads; of all where neither is named."""
    found = await tx.fetch(Q["by_target"], agents, squads, after, limit, workspace_id)
    return [rows.autopilot(row) for row in found]


async def squads_in_use(tx: Tx, workspace_id: UUID) -> list[UUID]:
    """Name the squads of a workspace that rules in force are for."""
    found = await tx.fetch(Q["squads_in_use"], workspace_id)
    return [rows.uuid(row["squad_id"]) for row in found]


async def last_runs(tx: Tx, ids: Sequence[UUID]) -> dict[UUID, tuple[UUID, RunState, datetime]]:
    """Read the newest run of each rule: its id, its state, and when it was admitted."""
    return {
        rows.uuid(row["autopilot_id"]): (
            rows.uuid(row["id"]),
            RunState(row["state"]),
            row["created_at"],
        )
        for row in await tx.fetch(Q["last_runs"], ids)
    }


async def now(tx: Tx) -> datetime:
    """Read the clock that rules get."""
    moment: datetime = await tx.fetchval(Q["database_now"])
    return moment
