"""The table of deliveries, as ingress and readers use it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from operator import attrgetter
from uuid import UUID

import asyncpg

from reveille_runtime.db import Tx
from reveille_runtime.forms import forms_of
from reveille_runtime.queries import load_queries
from reveille_webhook.domain.delivery import (
    Admission,
    Delivery,
    Facts,
    Known,
    NewDelivery,
    Search,
    clipped,
    state_after,
)
from reveille_webhook.domain.states import DeliveryState, Judgement, SignatureState

Q = load_queries(__package__, "deliveries.sql")
_SHARED = attrgetter(
    "endpoint_id",
    "workspace_id",
    "provider",
    "event",
    "action",
    "actions",
    "signature_state",
    "state",
    "reason",
    "message",
    "content_type",
    "response_status",
    "sender",
    "retries",
    "content_once",
    "lane_key",
    "signature_notes",
)


@dataclass(frozen=True, slots=True)
class Judged:
    """A judgement to write; the status is None when the sender's answer is out already."""

    delivery_id: UUID
    judgement: Judgement
    admission: Admission
    response_status: int | None


@dataclass(frozen=True, slots=True)
class Stored:
    """When a delivery came in, and whether the loop breaker holds it."""

    received_at: datetime
    held: bool


async def insert(tx: Tx, rows: Sequence[NewDelivery]) -> dict[UUID, Stored]:
    """Store deliveries; gives those that were not there."""
    return _stored(await tx.fetch(Q["insert_deliveries"], *_columns(rows)))


def _columns(rows: Sequence[NewDelivery]) -> tuple[Sequence[object], ...]:
    """Give what is each delivery's own, and then what is each form's."""
    firsts, form_of = forms_of(rows, _SHARED)
    endpoints, workspaces, providers, events, actions, all_actions, *others, notes = zip(
        *map(_SHARED, firsts), strict=True
    )
    return (
        [each.id for each in rows],
        [each.dedupe_key for each in rows],
        [dict(each.headers) for each in rows],
        [each.body for each in rows],
        [each.body_sha256 for each in rows],
        [dict(each.carrier) for each in rows],
        [each.content_key for each in rows],
        form_of,
        endpoints,
        workspaces,
        providers,
        events,
        actions,
        [json.dumps(each) for each in all_actions],
        *others,
        [" ".join(each) for each in notes],
    )


async def find_own(tx: Tx, ids: Sequence[UUID]) -> dict[UUID, Stored]:
    """Find rows that an earlier try of the same batch stored after all."""
    return _stored(await tx.fetch(Q["find_own"], list(ids)))


def _stored(rows: Sequence[asyncpg.Record]) -> dict[UUID, Stored]:
    return {
        row["id"]: Stored(row["received_at"], row["state"] == DeliveryState.HELD) for row in rows
    }


@dataclass(frozen=True, slots=True)
class Copies:
    """How often a live delivery came again, and the sender's own count of that."""

    number: int
    retries: int


async def count_copies(
    tx: Tx, copies: Mapping[tuple[UUID, str], Copies]
) -> dict[tuple[UUID, str], Known]:
    """Note copies of live deliveries; a key without a live one is not in the answer."""
    rows = await tx.fetch(
        Q["count_copies"],
        [endpoint_id for endpoint_id, _ in copies],
        [key for _, key in copies],
        [each.number for each in copies.values()],
        [each.retries for each in copies.values()],
    )
    return {(row["endpoint_id"], row["dedupe_key"]): _original(row) for row in rows}


async def originals_of_content(tx: Tx, keys: Sequence[bytes]) -> dict[bytes, Known]:
    """Find the first live delivery of each content, for copies that are refused."""
    rows = await tx.fetch(Q["originals_of_content"], list(keys))
    return {row["content_key"]: replace(_original(row), refused=True) for row in rows}


def _original(row: asyncpg.Record) -> Known:
    return Known(
        facts=facts_of(row),
        is_copy=True,
        judged=row["admission"] is not None or row["state"] != DeliveryState.QUEUED,
        run_id=row["run_id"],
    )


async def record(tx: Tx, judged: Sequence[Judged]) -> int:
    """Write judgements; gives how many rows took theirs."""
    return await tx.execute(
        Q["record_admissions"],
        [each.delivery_id for each in judged],
        [each.judgement.value for each in judged],
        [each.admission.run_id for each in judged],
        [state_after(each.judgement).value for each in judged],
        [each.admission.reason for each in judged],
        [clipped(each.admission.message) for each in judged],
        [each.response_status for each in judged],
    )


async def get(tx: Tx, delivery_id: UUID) -> Delivery | None:
    """Read one delivery, without its body."""
    row = await tx.fetchrow(Q["get_delivery"], delivery_id)
    return None if row is None else delivery_of(row)


async def page(
    tx: Tx,
    workspace_id: UUID,
    endpoint_id: UUID | None,
    states: Sequence[DeliveryState],
    before: tuple[datetime, UUID] | None,
    limit: int,
    search: Search,
) -> list[Delivery]:
    """List deliveries, newest first."""
    received_at, delivery_id = before or (None, None)
    rows = await tx.fetch(
        Q["list_deliveries"],
        workspace_id,
        endpoint_id,
        [state.value for state in states] or None,
        received_at,
        delivery_id,
        limit,
        search.since,
        search.until,
        search.event or None,
        search.provider or None,
        search.dedupe_key or None,
        search.body_sha256 or None,
    )
    return [delivery_of(row) for row in rows]


async def replay(tx: Tx, original: UUID, new: UUID, carrier: Mapping[str, str]) -> None:
    """Make a new delivery of the bytes of another."""
    await tx.execute(Q["replay"], original, new, dict(carrier))


async def release_held(tx: Tx, endpoint_id: UUID, limit: int) -> int:
    """Let held deliveries go; gives how many."""
    return await tx.execute(Q["release_held"], endpoint_id, limit)


async def held(tx: Tx, endpoint_id: UUID, limit: int) -> list[UUID]:
    """Find held deliveries, oldest first."""
    return [row["id"] for row in await tx.fetch(Q["held"], endpoint_id, limit)]


async def purge_held(tx: Tx, ids: Sequence[UUID]) -> int:
    """End those that are held; gives how many."""
    return await tx.execute(Q["purge_held"], ids)


async def purged(tx: Tx, ids: Sequence[UUID]) -> list[UUID]:
    """Name those of some deliveries that people ended."""
    return [row["id"] for row in await tx.fetch(Q["purged"], ids)]


async def came_in(
    tx: Tx,
    workspace_id: UUID,
    endpoint_id: UUID | None,
    received_at: datetime,
    delivery_id: UUID,
    limit: int,
) -> list[Delivery]:
    """Read what came in after a position, oldest first."""
    rows = await tx.fetch(Q["came_in"], workspace_id, endpoint_id, received_at, delivery_id, limit)
    return [delivery_of(row) for row in rows]


async def as_they_stand(tx: Tx, wanted: Sequence[UUID]) -> list[Delivery]:
    """Read deliveries as they now are; those that are gone are left out."""
    return [delivery_of(row) for row in await tx.fetch(Q["as_they_stand"], list(wanted))]


async def prune(tx: Tx, kept_for: timedelta, limit: int) -> int:
    """Forget deliveries that ended long ago; gives how many."""
    found: int = await tx.fetchval(Q["prune"], kept_for, limit)
    return found


async def explain(tx: Tx, wanted: UUID) -> list[tuple[Delivery, datetime]]:
    """Read deliveries by any id that leads to them, each with the clock."""
    rows = await tx.fetch(Q["explain_deliveries"], wanted)
    return [(delivery_of(row), row["now"]) for row in rows]


async def body_chunk(tx: Tx, delivery_id: UUID, offset: int, length: int) -> bytes:
    """Read a piece of a body; empty past its end."""
    chunk: bytes | None = await tx.fetchval(Q["body_chunk"], delivery_id, offset + 1, length)
    return chunk or b""


def facts_of(row: asyncpg.Record) -> Facts:
    """Map what admission may know of a row."""
    return Facts(
        delivery_id=row["id"],
        endpoint_id=row["endpoint_id"],
        workspace_id=row["workspace_id"],
        event=row["event"],
        actions=tuple(row["actions"]),
        body_bytes=row["body_bytes"],
        body_sha256=row["body_sha256"],
        received_at=row["received_at"],
        carrier=row["trace_carrier"],
    )


def delivery_of(row: asyncpg.Record) -> Delivery:
    """Map a row as it is shown."""
    return Delivery(
        id=row["id"],
        endpoint_id=row["endpoint_id"],
        workspace_id=row["workspace_id"],
        provider=row["provider"],
        event=row["event"],
        action=row["action"],
        dedupe_key=row["dedupe_key"],
        signature_state=SignatureState(row["signature_state"]),
        state=DeliveryState(row["state"]),
        reason=row["reason"],
        message=row["message"],
        judgement=None if row["admission"] is None else Judgement(row["admission"]),
        run_id=row["run_id"],
        content_type=row["content_type"],
        headers=row["headers"],
        body_bytes=row["body_bytes"],
        body_sha256=row["body_sha256"],
        response_status=row["response_status"],
        attempt_count=row["attempt_count"],
        dispatch_attempts=row["dispatch_attempts"],
        available_at=row["available_at"],
        lease_expires_at=row["lease_expires_at"],
        received_at=row["received_at"],
        last_received_at=row["last_received_at"],
        finished_at=row["finished_at"],
        carrier=row["trace_carrier"],
        sender=row["sender"],
        retries=row["sender_retries"],
        content_copy_of=row["content_copy_of"],
        lane_key=row["lane_key"],
        replayed_from=row["replayed_from"],
        signature_notes=tuple(row["signature_notes"]),
    )
