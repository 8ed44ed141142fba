"""Deliveries as messages show them."""

from __future__ import annotations

from uuid import UUID

from reveille.webhook.v1 import delivery_service_pb2 as pb
from reveille_runtime.carrier import SpanSeed
from reveille_runtime.reasons import reason_value
from reveille_runtime.validation import to_timestamp
from reveille_webhook.domain.delivery import Delivery
from reveille_webhook.domain.states import DeliveryState, SignatureState

_STATE_VALUES = {
    state: pb.DeliveryState.Value(f"DELIVERY_STATE_{state.name}") for state in DeliveryState
}
SIGNATURE_VALUES = {
    state: pb.SignatureState.Value(f"SIGNATURE_STATE_{state.name}") for state in SignatureState
}


def write_delivery(delivery: Delivery) -> pb.Delivery:
    """Show a delivery."""
    seed = SpanSeed.from_carrier(delivery.carrier)
    return pb.Delivery(
        delivery_id=str(delivery.id),
        endpoint_id=str(delivery.endpoint_id),
        workspace_id=str(delivery.workspace_id),
        provider=delivery.provider,
        event=delivery.event,
        action=delivery.action,
        dedupe_id=delivery.dedupe_key or "",
        signature_state=SIGNATURE_VALUES[delivery.signature_state],
        state=_STATE_VALUES[delivery.state],
        reason=reason_value(delivery.reason),
        message=delivery.message,
        attempt_count=delivery.attempt_count,
        dispatch_attempts=delivery.dispatch_attempts,
        content_type=delivery.content_type,
        headers=dict(delivery.headers),
        body_bytes=delivery.body_bytes,
        body_sha256=delivery.body_sha256,
        response_status=delivery.response_status,
        run_id=_id(delivery.run_id),
        trace_id="" if seed is None else f"{seed.trace_id:032x}",
        receive_time=to_timestamp(delivery.received_at),
        last_receive_time=to_timestamp(delivery.last_received_at),
        finish_time=to_timestamp(delivery.finished_at),
        sender=delivery.sender,
        sender_retries=delivery.retries,
        content_copy_of=_id(delivery.content_copy_of),
        lane_key=delivery.lane_key or "",
        replayed_from=_id(delivery.replayed_from),
    )


def _id(value: UUID | None) -> str:
    return "" if value is None else str(value)
