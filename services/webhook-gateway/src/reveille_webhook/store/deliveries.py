"""The table of deliveries, as ingress and readers use it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import asyncpg

from reveille_runtime.db import Tx
from reveille_runtime.queries import load_queries
from reveille_webhook.domain.delivery import (
    Admission,
    Delivery,
    Facts,
    Known,
    NewDelivery,
    clipped,
    state_after,
)
from reveille_webhook.domain.states import DeliveryState, Judgement, SignatureState

Q = load_queries(__package__, "deliveries.sql")


@dataclass(frozen=True, slots=True)
class Judged:
    """A judgement to write; the status is None when the sender's answer is out already."""

    delivery_id: UUID
    judgement: Judgement
    admission: Admission
    response_status: int | None


async def insert(tx: Tx, rows: Sequence[NewDelivery], grace: timedelta) -> dict[UUID, datetime]:
    """Store deliveries; gives those that were not there, with the time they came in."""
    found = await tx.fetch(
        Q["insert_deliveries"],
        [each.id for each in rows],
        [each.endpoint_id for each in rows],
        [each.workspace_id for each in rows],
        [each.provider for each in rows],
        [each.event for each in rows],
        [each.action for each in rows],
        [json.dumps(each.actions) for each in rows],
        [each.dedupe_key for each in rows],
        [each.signature_state.value for each in rows],
        [each.state.value for each in rows],
        [each.reason for each in rows],
        [each.message for each in rows],
        [each.content_type for each in rows],
        [dict(each.headers) for each in rows],
        [each.body for each in rows],
        [each.body_sha256 for each in rows],
        [each.response_status for each in rows],
        [dict(each.carrier) for each in rows],
        grace,
    )
    return {row["id"]: row["received_at"] for row in found}


async def find_own(tx: Tx, ids: Sequence[UUID]) -> dict[UUID, datetime]:
    """Find rows that an earlier try of the same batch stored after all."""
    return {row["id"]: row["received_at"] for row in await tx.fetch(Q["find_own"], list(ids))}


async def count_copies(
    tx: Tx, copies: Mapping[tuple[UUID, str], int]
) -> dict[tuple[UUID, str], Known]:
    """Note copies of live deliveries; a key without a live one is not in the answer."""
    rows = await tx.fetch(
        Q["count_copies"],
        [endpoint_id for endpoint_id, _ in copies],
        [key for _, key in copies],
        list(copies.values()),
    )
    return {
        (row["endpoint_id"], row["dedupe_key"]): Known(
            facts=facts_of(row),
            is_copy=True,
            judged=row["admission"] is not None or row["state"] != DeliveryState.QUEUED,
            run_id=row["run_id"],
        )
        for row in rows
    }


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
    )
    return [delivery_of(row) for row in rows]


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
    )
