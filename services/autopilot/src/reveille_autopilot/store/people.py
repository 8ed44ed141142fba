"""Who may change a rule beside its creator, and who follows it, at rest."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from reveille_autopilot.domain.models import Collaborator
from reveille_autopilot.store import rows
from reveille_runtime.db import Tx
from reveille_runtime.queries import load_queries

Q = load_queries("reveille_autopilot.store", "people.sql")


async def put_collaborator(
    tx: Tx, autopilot_id: UUID, user_id: str, granted_by: str
) -> Collaborator:
    """Let somebody in, or refresh who did."""
    row = await tx.fetchrow(Q["put_collaborator"], autopilot_id, user_id, granted_by)
    if row is None:
        raise RuntimeError("an upsert returned no row")
    return _collaborator(row)


async def delete_collaborator(tx: Tx, autopilot_id: UUID, user_id: str) -> bool:
    """Let somebody in no longer; False when nobody had."""
    return await tx.execute(Q["delete_collaborator"], autopilot_id, user_id) == 1


async def collaborators(
    tx: Tx, autopilot_id: UUID, after: str | None, limit: int
) -> list[Collaborator]:
    """List who was let in."""
    found = await tx.fetch(Q["list_collaborators"], autopilot_id, after, limit)
    return [_collaborator(row) for row in found]


async def collaborates(tx: Tx, autopilot_ids: Sequence[UUID], user_id: str) -> set[UUID]:
    """Say to which of these rules somebody was let in."""
    found = await tx.fetch(Q["collaborates"], autopilot_ids, user_id)
    return {rows.uuid(row["autopilot_id"]) for row in found}


async def replace_subscribers(tx: Tx, autopilot_id: UUID, user_ids: Sequence[str]) -> None:
    """Store the whole list of followers."""
    await tx.execute(Q["clear_subscribers"], autopilot_id)
    if user_ids:
        await tx.execute(Q["insert_subscribers"], autopilot_id, user_ids)


async def subscribers(tx: Tx, autopilot_ids: Sequence[UUID]) -> dict[UUID, tuple[str, ...]]:
    """Read who follows each rule."""
    followers: dict[UUID, tuple[str, ...]] = dict.fromkeys(autopilot_ids, ())
    if not followers:
        return followers
    for row in await tx.fetch(Q["subscribers_of"], autopilot_ids):
        followers[rows.uuid(row["autopilot_id"])] += (row["user_id"],)
    return followers


async def strangers(tx: Tx, workspace_id: UUID, user_ids: Sequence[str]) -> list[str]:
    """Name those who are no members; the others stay members until the transaction ends."""
    found = await tx.fetch(Q["hold_members"], workspace_id, user_ids)
    return sorted(set(user_ids) - {row["user_id"] for row in found})


async def remove_member(tx: Tx, workspace_id: UUID, user_id: str) -> bool:
    """End a membership, and what rested on it; False when there is none."""
    if await tx.execute(Q["remove_member"], workspace_id, user_id) != 1:
        return False
    await tx.execute(Q["forget_person"], workspace_id, user_id)
    return True


async def other_owner(tx: Tx, workspace_id: UUID, user_id: str) -> str | None:
    """Name an owner of a workspace beside one, the longest-standing."""
    found: str | None = await tx.fetchval(Q["other_owner"], workspace_id, user_id)
    return found


def _collaborator(row: rows.Row) -> Collaborator:
    return Collaborator(
        rows.uuid(row["autopilot_id"]), row["user_id"], row["granted_by"], row["created_at"]
    )
