"""Between messages and the gateway's values."""

from __future__ import annotations

from collections.abc import Mapping

from reveille.webhook.v1 import delivery_service_pb2, endpoint_service_pb2
from reveille_runtime.carrier import SpanSeed
from reveille_runtime.reasons import reason_value
from reveille_runtime.validation import Violations, to_timestamp
from reveille_webhook.domain.delivery import Delivery
from reveille_webhook.domain.endpoint import (
    DEFAULT_BODY_BYTES,
    MOST_BODY_BYTES,
    Endpoint,
    Secret,
)
from reveille_webhook.domain.scheme import Provider
from reveille_webhook.domain.states import DeliveryState, SignatureState

HASH_BYTES = 32
STATES: Mapping[int, DeliveryState] = {
    delivery_service_pb2.DeliveryState.Value(f"DELIVERY_STATE_{state.name}"): state
    for state in DeliveryState
}
_STATE_VALUES = {
    state: delivery_service_pb2.DeliveryState.Value(f"DELIVERY_STATE_{state.name}")
    for state in DeliveryState
}
_SIGNATURE_VALUES = {
    state: delivery_service_pb2.SignatureState.Value(f"SIGNATURE_STATE_{state.name}")
    for state in SignatureState
}


def read_endpoint(found: Violations, message: endpoint_service_pb2.Endpoint) -> Endpoint:
    """Parse a wish."""
    if len(message.token_sha256) != HASH_BYTES:
        found.add("endpoint.token_sha256", f"must have {HASH_BYTES} bytes", "INVALID_FIELD")
    previous = message.previous_token_sha256
    has_expiry = message.HasField("previous_token_expire_time")
    if len(previous) not in {0, HASH_BYTES}:
        found.add(
            "endpoint.previous_token_sha256", f"must have {HASH_BYTES} bytes", "INVALID_FIELD"
        )
    if bool(previous) != has_expiry:
        found.add(
            "endpoint.previous_token_expire_time",
            "belongs to a token before, and that to it",
            "INVALID_FIELD",
        )
    return Endpoint(
        id=found.uuid("endpoint.endpoint_id", message.endpoint_id),
        workspace_id=found.uuid("endpoint.workspace_id", message.workspace_id),
        token_sha256=message.token_sha256,
        previous_token_sha256=previous or None,
        previous_token_expires_at=(
            found.timestamp(
                "endpoint.previous_token_expire_time", message.previous_token_expire_time
            )
            if has_expiry
            else None
        ),
        provider=found.text("endpoint.provider", message.provider, minimum=1, maximum=50),
        max_body_bytes=found.integer(
            "endpoint.max_body_bytes",
            message.max_body_bytes or DEFAULT_BODY_BYTES,
            minimum=1,
            maximum=MOST_BODY_BYTES,
        ),
        revision=found.integer(
            "endpoint.revision", message.revision, minimum=1, maximum=(1 << 63) - 1
        ),
    )


def write_secret(secret: Secret) -> endpoint_service_pb2.Secret:
    """Show a secret, by its hint."""
    return endpoint_service_pb2.Secret(
        secret_id=str(secret.id),
        hint=secret.hint,
        create_time=to_timestamp(secret.created_at),
        expire_time=to_timestamp(secret.expires_at),
        last_use_time=to_timestamp(secret.last_used_at),
    )


def write_provider(provider: Provider) -> endpoint_service_pb2.Provider:
    """Show a sender of the provider table."""
    return endpoint_service_pb2.Provider(
        name=provider.name, signature_header=provider.signature.header
    )


def write_delivery(delivery: Delivery) -> delivery_service_pb2.Delivery:
    """Show a delivery."""
    seed = SpanSeed.from_carrier(delivery.carrier)
    return delivery_service_pb2.Delivery(
        delivery_id=str(delivery.id),
        endpoint_id=str(delivery.endpoint_id),
        workspace_id=str(delivery.workspace_id),
        provider=delivery.provider,
        event=delivery.event,
        action=delivery.action,
        dedupe_id=delivery.dedupe_key or "",
        signature_state=_SIGNATURE_VALUES[delivery.signature_state],
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
        run_id="" if delivery.run_id is None else str(delivery.run_id),
        trace_id="" if seed is None else f"{seed.trace_id:032x}",
        receive_time=to_timestamp(delivery.received_at),
        last_receive_time=to_timestamp(delivery.last_received_at),
        finish_time=to_timestamp(delivery.finished_at),
    )
