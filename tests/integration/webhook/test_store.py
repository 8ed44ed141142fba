"""Rows as they are stored: each with what is its own and with what it shares with others."""

from __future__ import annotations

import hashlib
from dataclasses import fields, replace
from typing import Any
from uuid import UUID

from tests.integration.webhook.conftest import Gateway, Hook

from reveille_runtime.ids import new_id
from reveille_webhook.domain.delivery import NewDelivery
from reveille_webhook.domain.states import DeliveryState, SignatureState
from reveille_webhook.store import deliveries

# Columns that are called otherwise than the field.
NAMES = {"retries": "sender_retries", "carrier": "trace_carrier"}


def of(hook: Hook) -> NewDelivery:
    return NewDelivery(
        id=new_id(),
        endpoint_id=hook.id,
        workspace_id=hook.workspace_id,
        provider="github",
        event="push",
        action="",
        actions=(),
        dedupe_key=None,
        signature_state=SignatureState.VALID,
        state=DeliveryState.QUEUED,
        reason="",
        message="",
        content_type="application/json",
        headers={"user-agent": "x"},
        body=b"{}",
        body_sha256=hashlib.sha256(b"{}").digest(),
        response_status=202,
        carrier={},
    )


async def test_every_row_keeps_what_is_its_own(gateway: Gateway) -> None:
    one, other = await gateway.hook(), await gateway.hook()
    usual = of(one)
    made = [
        usual,
        replace(of(one), dedupe_key="d-1", headers={}, carrier={"traceparent": "t"}),
        replace(
            of(other),
            provider="gitlab",
            event="issues",
            action="opened",
            actions=("opened", "bug"),
            signature_state=SignatureState.INVALID,
            state=DeliveryState.REJECTED,
            reason="invalid_signature",
            message="no",
            content_type="text/plain",
            body=b"body",
            body_sha256=hashlib.sha256(b"body").digest(),
            response_status=401,
            sender="ann",
            retries=3,
            lane_key="lane",
            signature_notes=("hex_in_upper_case", "with_spaces"),
        ),
        replace(of(one), content_key=b"k" * 32, content_once=True),
        replace(of(one), content_key=b"l" * 32),
    ]
    async with gateway.database.session() as tx:
        stored = await deliveries.insert(tx, made)

    assert list(stored) == [each.id for each in made]
    rows: dict[UUID, Any] = {row["id"]: row for row in await gateway.rows()}
    for each in made:
        row = rows[each.id]
        kept = {field.name: row[NAMES.get(field.name, field.name)] for field in fields(each)}
        for name in ("actions", "signature_notes"):
            kept[name] = tuple(kept[name])
        assert kept == {field.name: getattr(each, field.name) for field in fields(each)}
