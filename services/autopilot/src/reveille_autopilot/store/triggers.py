"""Triggers at rest, and what the scheduler and the gateway have confirmed of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from reveille_autopilot.domain.models import ScheduleConfig, Trigger, WebhookConfig
from reveille_autopilot.store import rows
from reveille_runtime.db import Tx
from reveille_runtime.queries import load_queries

Q = load_queries("reveille_autopilot.store", "triggers.sql")


@dataclass(frozen=True, slots=True)
class ScopeState:
    """A schedule as the scheduler shall have it."""

    id: UUID
    revision: int
    cron: str
    time_zone: str
    run_at: datetime | None
    enabled: bool
    effective_from: datetime
    deleted: bool


@dataclass(frozen=True, slots=True)
class EndpointState:
    """A webhook's endpoint as the gateway shall have it."""

    id: UUID
    revision: int
    workspace_id: UUID
    token_sha256: bytes
    previous_token_sha256: bytes | None
    previous_token_expires_at: datetime | None
    provider: str
    max_body_bytes: int
    options: Mapping[str, object]
    deleted: bool


async def insert(tx: Tx, trigger: Trigger, token_sha256: bytes | None) -> None:
    """Store a new trigger; a webhook comes with the hash of its address."""
    schedule = trigger.config if isinstance(trigger.config, ScheduleConfig) else None
    webhook = trigger.config if isinstance(trigger.config, WebhookConfig) else None
    await tx.execute(
        Q["insert_trigger"],
        trigger.id,
        trigger.autopilot_id,
        trigger.workspace_id,
        trigger.kind.value,
        trigger.enabled,
        trigger.label,
        schedule and (schedule.cron or None),
        schedule and schedule.time_zone,
        webhook and webhook.provider,
        webhook and [wanted.as_json() for wanted in webhook.event_filters],
        webhook and webhook.max_body_bytes,
        token_sha256,
        trigger.publisher_user_id,
        schedule and schedule.run_at,
        trigger.created_at,
        {} if webhook is None else dict(webhook.options),
    )


async def update(tx: Tx, before: Trigger, after: Trigger) -> bool:
    """Store an edit; False when the trigger is not the one that was read."""
    schedule = after.config if isinstance(after.config, ScheduleConfig) else None
    webhook = after.config if isinstance(after.config, WebhookConfig) else None
    changed = await tx.execute(
        Q["update_trigger"],
        before.id,
        before.revision,
        after.enabled,
        after.label,
        schedule and (schedule.cron or None),
        schedule and schedule.time_zone,
        schedule and schedule.run_at,
        webhook and [wanted.as_json() for wanted in webhook.event_filters],
        webhook and webhook.max_body_bytes,
        after.effective_from,
        {} if webhook is None else dict(webhook.options),
    )
    return changed == 1


async def of_rules(tx: Tx, autopilot_ids: Sequence[UUID]) -> list[Trigger]:
    """Read the live triggers of many rules."""
    return [rows.trigger(row) for row in await tx.fetch(Q["triggers_of"], autopilot_ids)]


async def get(tx: Tx, trigger_id: UUID) -> Trigger | None:
    """Read a trigger, deleted or not."""
    row = await tx.fetchrow(Q["get_trigger"], trigger_id)
    return None if row is None else rows.trigger(row)


async def live(tx: Tx, autopilot_id: UUID) -> list[Trigger]:
    """Read the triggers of a rule that are not deleted."""
    return [rows.trigger(row) for row in await tx.fetch(Q["live_triggers"], autopilot_id)]


async def count_live(tx: Tx, autopilot_id: UUID) -> int:
    """Count the same."""
    number: int = await tx.fetchval(Q["count_live_triggers"], autopilot_id)
    return number


async def page(tx: Tx, autopilot_id: UUID, after: UUID | None, limit: int) -> list[Trigger]:
    """List the triggers of a rule."""
    found = await tx.fetch(Q["list_triggers"], autopilot_id, after, limit)
    return [rows.trigger(row) for row in found]


async def restamp(
    tx: Tx, autopilot_id: UUID, one: UUID | None, publisher: str, edited: datetime, *, late: bool
) -> None:
    """Make somebody answer for one trigger or for all; if late, unless another came since."""
    await tx.execute(Q["restamp_triggers"], autopilot_id, one, publisher, edited, late)


async def touch_schedules(tx: Tx, autopilot_id: UUID, effective_from: datetime) -> None:
    """Have the scheduler told that the rule was paused or resumed."""
    await tx.execute(Q["touch_schedules"], autopilot_id, effective_from)


async def delete(tx: Tx, trigger_id: UUID, now: datetime) -> bool:
    """Leave a tombstone; False when there is one already."""
    return await tx.execute(Q["delete_trigger"], trigger_id, now) == 1


async def rotate(tx: Tx, trigger_id: UUID, token_sha256: bytes, grace: datetime | None) -> bool:
    """Store a new address; False when the webhook is gone."""
    return await tx.execute(Q["rotate_token"], trigger_id, token_sha256, grace) == 1


async def unsynced_scopes(tx: Tx, after: UUID, limit: int) -> list[ScopeState]:
    """Read what the scheduler has to be sent."""
    return [_scope(row) for row in await tx.fetch(Q["unsynced_scopes"], after, limit)]


async def unsynced_scopes_of(tx: Tx, ids: Sequence[UUID]) -> list[ScopeState]:
    """Read the same for some triggers."""
    return [_scope(row) for row in await tx.fetch(Q["unsynced_scopes_of"], ids)]


async def unsynced_endpoints(tx: Tx, after: UUID, limit: int) -> list[EndpointState]:
    """Read what the gateway has to be sent."""
    return [_endpoint(row) for row in await tx.fetch(Q["unsynced_endpoints"], after, limit)]


async def unsynced_endpoints_of(tx: Tx, ids: Sequence[UUID]) -> list[EndpointState]:
    """Read the same for some triggers."""
    return [_endpoint(row) for row in await tx.fetch(Q["unsynced_endpoints_of"], ids)]


async def mark_synced(tx: Tx, ids: Sequence[UUID], revisions: Sequence[int]) -> None:
    """Note what was confirmed; a row that changed meanwhile stays unsynced."""
    await tx.execute(Q["mark_triggers_synced"], ids, revisions)


async def note_refused(
    tx: Tx, ids: Sequence[UUID], revisions: Sequence[int], causes: Sequence[str]
) -> None:
    """Note what was refused, and why; a row that changed meanwhile is left alone."""
    await tx.execute(Q["note_triggers_refused"], ids, revisions, causes)


async def is_synced(tx: Tx, trigger_id: UUID) -> bool:
    """Tell whether the present form is confirmed."""
    return bool(await tx.fetchval(Q["trigger_sync_state"], trigger_id))


def _scope(row: rows.Row) -> ScopeState:
    return ScopeState(
        id=rows.uuid(row["id"]),
        revision=row["revision"],
        cron=row["cron"] or "",
        time_zone=row["time_zone"],
        run_at=row["run_at"],
        enabled=row["enabled"],
        effective_from=row["effective_from"],
        deleted=row["deleted"],
    )


def _endpoint(row: rows.Row) -> EndpointState:
    return EndpointState(
        id=rows.uuid(row["id"]),
        revision=row["revision"],
        workspace_id=rows.uuid(row["workspace_id"]),
        token_sha256=row["token_sha256"],
        previous_token_sha256=row["previous_token_sha256"],
        previous_token_expires_at=row["previous_token_expires_at"],
        provider=row["provider"],
        max_body_bytes=row["max_body_bytes"],
        options=row["endpoint_options"],
        deleted=row["deleted"],
    )
