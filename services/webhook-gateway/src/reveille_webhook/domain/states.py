"""Where a delivery can stand and where it may go from there; what a check or a judgement says."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class DeliveryState(StrEnum):
    """The state of one delivery."""

    QUEUED = "queued"
    DISPATCHED = "dispatched"
    IGNORED = "ignored"
    REJECTED = "rejected"
    FAILED = "failed"
    HELD = "held"


DELIVERY_TRANSITIONS: Mapping[DeliveryState, frozenset[DeliveryState]] = {
    DeliveryState.QUEUED: frozenset(
        {
            DeliveryState.DISPATCHED,
            DeliveryState.IGNORED,
            DeliveryState.FAILED,
            DeliveryState.HELD,
        }
    ),
    # Released, or purged.
    DeliveryState.HELD: frozenset({DeliveryState.QUEUED, DeliveryState.IGNORED}),
    # Sent again by its sender, one that has a run is taken up again.
    DeliveryState.FAILED: frozenset({DeliveryState.QUEUED}),
    DeliveryState.DISPATCHED: frozenset(),
    DeliveryState.IGNORED: frozenset(),
    DeliveryState.REJECTED: frozenset(),
}
DELIVERY_INITIAL = frozenset(
    {
        DeliveryState.QUEUED,
        DeliveryState.HELD,
        DeliveryState.REJECTED,
        DeliveryState.IGNORED,
    }
)
DELIVERY_TERMINAL = frozenset(
    state for state, following in DELIVERY_TRANSITIONS.items() if not following
)


class SignatureState(StrEnum):
    """What verification found."""

    NOT_REQUIRED = "not_required"
    VALID = "valid"
    INVALID = "invalid"
    MISSING = "missing"


class Judgement(StrEnum):
    """How autopilot judged a delivery; stored once known."""

    ACCEPTED = "accepted"
    SKIPPED = "skipped"
    IGNORED = "ignored"
    UNKNOWN_ENDPOINT = "unknown_endpoint"


class Outcome(StrEnum):
    """What a sender is told."""

    ACCEPTED = "accepted"
    QUEUED = "queued"
    SKIPPED = "skipped"
    DUPLICATE = "duplicate"
    IGNORED = "ignored"
    REJECTED = "rejected"
    HELD = "held"
    # The sender's question was answered; nothing runs.
    HANDSHAKE = "handshake"
