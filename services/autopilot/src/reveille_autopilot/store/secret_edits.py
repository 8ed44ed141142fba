"""Edits of signing secrets at rest: whose they are, and whether a version tells of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from reveille_autopilot.domain.states import Change
from reveille_autopilot.store import rows
from reveille_runtime.db import Tx
from reveille_runtime.queries import load_queries

Q = load_queries("reveille_autopilot.store", "secret_edits.sql")


@dataclass(frozen=True, slots=True)
class SecretEdit:
    """One secret of a trigger, added or removed: either happens once, as ids never come again."""

    trigger_id: UUID
    secret_id: UUID
    change: Change


async def begin(tx: Tx, edit: SecretEdit, editor: str) -> None:
    """Note what the gateway is asked for, and by whom."""
    await tx.execute(
        Q["begin_secret_edit"], edit.trigger_id, edit.secret_id, edit.change.value, editor
    )


async def unrecorded(tx: Tx, trigger_id: UUID) -> list[SecretEdit]:
    """Read the edits that no version tells of; whether they were made, the gateway knows."""
    return [
        SecretEdit(trigger_id, rows.uuid(row["secret_id"]), Change(row["change"]))
        for row in await tx.fetch(Q["open_secret_edits"], trigger_id)
    ]


async def is_removed(tx: Tx, trigger_id: UUID, secret_id: UUID) -> bool:
    """Tell whether a version says that a secret was removed."""
    found: bool = await tx.fetchval(Q["secret_removal_recorded"], trigger_id, secret_id)
    return found


async def record(tx: Tx, edit: SecretEdit, now: datetime) -> tuple[str, datetime] | None:
    """Note that the version of this transaction tells of an edit; gives whose it is, and of when.

    None when a version does already.
    """
    row = await tx.fetchrow(
        Q["record_secret_edit"], edit.trigger_id, edit.secret_id, edit.change.value, now
    )
    return None if row is None else (row["editor_user_id"], row["created_at"])


async def unheard(tx: Tx, taking: timedelta, back: timedelta, limit: int) -> list[UUID]:
    """Name the triggers with edits that were begun in a stretch of time and are not recorded."""
    found = await tx.fetch(Q["unheard_secret_edits"], taking, back, limit)
    return [rows.uuid(row["trigger_id"]) for row in found]
