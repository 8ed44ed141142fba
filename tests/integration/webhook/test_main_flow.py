"""A request becomes a row, the row is judged, and the worker hands it to its run."""

from __future__ import annotations

import hashlib
import json

from opentelemetry.trace import SpanKind
from tests.integration.webhook.conftest import Gateway
from tests.integration.webhook.peer import FakeAutopilot, run_of

BODY = json.dumps({"action": "opened", "issue": {"number": 7}}).encode()


async def test_a_signed_request_is_stored_judged_dispatched_and_traced(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook()

    answer = await gateway.post(hook, BODY, delivery="d-1")

    row = await gateway.row()
    assert answer.status == 200
    assert answer.json == {
        "status": "accepted",
        "delivery_id": str(row["id"]),
        "run_id": run_of(str(row["id"])),
    }
    await gateway.work()
    row = await gateway.row()
    assert row["state"] == "dispatched"
    assert (row["event"], row["action"], row["dedupe_key"]) == ("issues", "opened", "d-1")
    assert row["signature_state"] == "valid"
    assert row["body"] == BODY
    assert row["body_sha256"] == hashlib.sha256(BODY).digest()
    assert row["response_status"] == 200
    (handed,) = peer.bodies
    assert handed.body == BODY
    assert (handed.event, handed.action, handed.content_type) == (
        "issues",
        "opened",
        "application/json",
    )
    root = await gateway.spans.wait("POST /hooks/{token}", SpanKind.SERVER)
    work = await gateway.spans.wait("process webhook.deliveries", SpanKind.CONSUMER)
    assert root.parent is None
    assert work.parent is not None
    assert root.context is not None
    assert work.context is not None
    assert work.parent.span_id == root.context.span_id
    assert handed.trace_carrier["traceparent"].split("-")[1:3] == [
        f"{root.context.trace_id:032x}",
        f"{work.context.span_id:016x}",
    ]
