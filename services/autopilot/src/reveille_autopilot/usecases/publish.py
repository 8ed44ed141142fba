"""Every change of a rule: under its lock, with a new version, and with its triggers re-stamped."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from uuid import UUID

from reveille_autopilot.domain.accepting import MAX_RULE_BYTES
from reveille_autopilot.domain.models import Autopilot
from reveille_autopilot.domain.states import AutopilotStatus, Change
from reveille_autopilot.domain.versions import Restamp, RuleVersion, restamps, snapshot
from reveille_autopilot.store import autopilots, triggers
from reveille_autopilot.usecases import messages
from reveille_autopilot.usecases.standing import not_found, require_writer, standing_of
from reveille_autopilot.usecases.telling import rule_event
from reveille_runtime.access import Actor
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Tx
from reveille_runtime.errors import Aborted, DomainError, FailedPrecondition, InvalidArgument
from reveille_runtime.feed import append
from reveille_runtime.ids import new_id
from reveille_runtime.lockorder import LockOrder

# Edits that may make a rule longer, and the field that does.
_WRITTEN = {
    Change.UPDATED: "autopilot.prompt",
    Change.TRIGGER_CREATED: "webhook",
    Change.TRIGGER_UPDATED: "webhook",
}


async def locked_for_edit(
    tx: Tx, actor: Actor, autopilot_id: UUID
) -> tuple[Autopilot, str, datetime]:
    """Lock a rule for one of its writers; gives the rule, the editor and the time.

    Raises:
        FailedPrecondition: the rule is archived: nobody changes it any more.
    """
    rule, editor, now = await locked_for_writer(tx, actor, autopilot_id)
    if rule.status is AutopilotStatus.ARCHIVED:
        raise FailedPrecondition(
            "WRONG_STATE",
            "the autopilot is archived; it is not changed any more",
            {"autopilot_id": str(rule.id), "status": rule.status.value},
        )
    return rule, editor, now


async def locked_for_writer(
    tx: Tx, actor: Actor, autopilot_id: UUID
) -> tuple[Autopilot, str, datetime]:
    """Do the same for a rule in whatever state."""
    rule = await autopilots.lock(tx, LockOrder(), autopilot_id)
    if rule is None:
        raise not_found("autopilot", autopilot_id)
    standing = await standing_of(tx, actor, rule.workspace_id)
    if not standing.belongs:
        raise not_found("autopilot", autopilot_id)
    editor = await require_writer(tx, standing, rule)
    return rule, editor, await autopilots.now(tx)


def require_etag(etag: str, current: str, **ids: object) -> None:
    """Refuse an edit of what somebody else changed since the caller read it."""
    if etag != current:
        raise stale(current, **ids)


def stale(current: str, **ids: object) -> DomainError:
    """Make the refusal of a stale edit."""
    return Aborted(
        "ETAG_MISMATCH",
        f"it was changed since, and is at {current} now; read it again",
        {"etag": current} | {name: str(value) for name, value in ids.items()},
    )


async def publish(
    tx: Tx,
    rule: Autopilot,
    change: Change,
    editor: str | None,
    now: datetime,
    *,
    after: Autopilot | None = None,
    trigger_id: UUID | None = None,
    edited: datetime | None = None,
) -> Autopilot:
    """Record the edit that this transaction makes, as a new version; the rule is locked by it.

    `after` is the rule as it shall be, where the edit is one of the rule itself; no editor means
    that the system makes it, for which nobody takes the triggers over. `edited` is when it was made
    if that was before: whoever took a trigger over since then keeps it.

    Raises:
        InvalidArgument: the rule would say more than one message holds, and more than it did.
    """
    when, late = edited or now, edited is not None
    published = replace(
        after or rule, rule_version_id=new_id(), rule_sequence=rule.rule_sequence + 1
    )
    if editor is not None:
        match restamps(change):
            case Restamp.ALL:
                await triggers.restamp(tx, rule.id, None, editor, when, late=late)
            case Restamp.ONE if trigger_id is not None:
                await triggers.restamp(tx, rule.id, trigger_id, editor, when, late=late)
            case Restamp.ONE | Restamp.NONE:
                pass
    version = snapshot(
        published,
        await triggers.live(tx, rule.id),
        version_id=published.rule_version_id,
        change=change,
        publisher_user_id=editor,
        now=now,
    )
    if editor is not None and change in _WRITTEN:
        await _require_fitting(tx, rule, version)
    await autopilots.append_version(tx, version)
    return await store(tx, rule, published, change, now)


async def _require_fitting(tx: Tx, rule: Autopilot, version: RuleVersion) -> None:
    """Refuse what makes a rule too large; one that is, is edited as long as it does not grow."""
    size = _size(version)
    if size <= MAX_RULE_BYTES:
        return
    before = await autopilots.version(tx, rule.rule_version_id)
    if before is None or size > _size(before):
        raise InvalidArgument.of(
            _WRITTEN[version.change],
            f"the rule with all its triggers would take {size} bytes; it may take {MAX_RULE_BYTES}",
            "TOO_LONG",
        )


def _size(version: RuleVersion) -> int:
    """Measure what people wrote, which is as much whoever publishes it, and when."""
    message = messages.rule_version(version)
    for name in ("sequence", "create_time", "publisher_user_id"):
        message.ClearField(name)
    for trigger in message.triggers:
        trigger.ClearField("publisher_user_id")
    return message.ByteSize()


async def store(
    tx: Tx,
    rule: Autopilot,
    after: Autopilot,
    change: Change | None,
    now: datetime,
) -> Autopilot:
    """Store an edit and tell of it; without a change it is one that no version records."""
    stored = replace(after, revision=rule.revision + 1, updated_at=now)
    if not await autopilots.update(tx, rule, stored):
        raise stale("another revision", autopilot_id=rule.id)
    await append(tx, [rule_event(stored, change, reason=stored.pause_reason)])
    crash_point("autopilot.publish.before_commit")
    return stored
