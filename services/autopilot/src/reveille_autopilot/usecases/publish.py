"""Every change of a rule: under its lock, with a new version, and with its triggers re-stamped."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from uuid import UUID

from reveille_autopilot.domain.models import Autopilot
from reveille_autopilot.domain.states import AutopilotStatus, Change
from reveille_autopilot.domain.versions import Restamp, restamps, snapshot
from reveille_autopilot.store import autopilots, triggers
from reveille_autopilot.usecases.standing import not_found, require_writer, standing_of
from reveille_runtime.access import Actor
from reveille_runtime.db import Tx
from reveille_runtime.errors import Aborted
from reveille_runtime.ids import new_id
from reveille_runtime.lockorder import LockOrder


async def locked_for_edit(
    tx: Tx, actor: Actor, autopilot_id: UUID
) -> tuple[Autopilot, str, datetime]:
    """Lock a rule for one of its writers; gives the rule, the editor and the time."""
    rule = await autopilots.lock(tx, LockOrder(), autopilot_id)
    if rule is None:
        raise not_found("autopilot", autopilot_id)
    standing = await standing_of(tx, actor, rule.workspace_id)
    if not standing.belongs:
        raise not_found("autopilot", autopilot_id)
    editor = require_writer(standing, rule)
    return rule, editor, await autopilots.now(tx)


async def publish(
    tx: Tx,
    rule: Autopilot,
    change: Change,
    editor: str,
    now: datetime,
    *,
    status: AutopilotStatus | None = None,
    trigger_id: UUID | None = None,
) -> Autopilot:
    """Record the edit that this transaction makes; the rule is locked by it."""
    after = replace(
        rule,
        status=rule.status if status is None else status,
        rule_version_id=new_id(),
        rule_sequence=rule.rule_sequence + 1,
        updated_at=now,
    )
    match restamps(change):
        case Restamp.ALL:
            await triggers.restamp(tx, rule.id, None, editor)
        case Restamp.ONE if trigger_id is not None:
            await triggers.restamp(tx, rule.id, trigger_id, editor)
        case Restamp.ONE | Restamp.NONE:
            pass
    version = snapshot(
        after,
        await triggers.live(tx, rule.id),
        version_id=after.rule_version_id,
        change=change,
        publisher_user_id=editor,
        now=now,
    )
    await autopilots.append_version(tx, version)
    if not await autopilots.update(tx, rule, after):
        raise Aborted("ETAG_MISMATCH", "the rule was changed meanwhile; read it again")
    return after
