"""Edits of signing secrets at rest: whose they are, and whether a version tells of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
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


async def record(tx: Tx, edit: SecretEdit, now: datetime) -> str | None:
    """Note that the version of this transaction tells of an edit; gives whose edit it is.

    None when a version does already.
    """
    editor: str | None = await tx.fetchval(
        Q["record_secret_edit"], edit.trigger_id, edit.secret_id, edit.change.value, now
    )
    return editor
