"""The values that a delivery is made of on its way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from reveille_webhook.domain.provider import Reply
from reveille_webhook.domain.states import DeliveryState, Judgement, Outcome, SignatureState

LONGEST_MESSAGE = 2000
_LIVE = frozenset({DeliveryState.QUEUED, DeliveryState.HELD})


@dataclass(frozen=True, slots=True)
class Facts:
    """What admission may know of a delivery."""

    delivery_id: UUID
    endpoint_id: UUID
    workspace_id: UUID
    event: str
    actions: tuple[str, ...]
    body_bytes: int
    body_sha256: bytes
    received_at: datetime
    carrier: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NewDelivery:
    """A delivery to store; the caller makes its id."""

    id: UUID
    endpoint_id: UUID
    workspace_id: UUID
    provider: str
    event: str
    action: str
    actions: tuple[str, ...]
    dedupe_key: str | None
    signature_state: SignatureState
    state: DeliveryState
    reason: str
    message: str
    content_type: str
    headers: Mapping[str, str]
    body: bytes
    body_sha256: bytes
    response_status: int
    carrier: Mapping[str, str]
    sender: str = ""
    # How often the sender says it tried.
    retries: int = 0
    # Tells signed content that came before under another id; None where no content is signed.
    content_key: bytes | None = None
    # Whether such a copy is refused.
    content_once: bool = False
    lane_key: str | None = None
    signature_notes: tuple[str, ...] = ()

    @property
    def conflict_key(self) -> tuple[UUID, str] | None:
        """What only one live delivery may have; None when nothing can be in its way."""
        if self.dedupe_key is None or self.state not in _LIVE:
            return None
        return self.endpoint_id, self.dedupe_key

    def let_go(self) -> NewDelivery:
        """Give what it is where no loop breaker holds anything."""
        if self.state is not DeliveryState.HELD:
            return self
        return replace(self, state=DeliveryState.QUEUED, reason="", message="")


@dataclass(frozen=True, slots=True)
class Known:
    """A delivery as it stands in its row: the one just stored, or the original of a copy."""

    facts: Facts
    is_copy: bool
    judged: bool
    run_id: UUID | None = None
    # A copy of signed content under another id, which its hook refuses.
    refused: bool = False
    # It was just stored, and the loop breaker holds it.
    held: bool = False


@dataclass(frozen=True, slots=True)
class Admission:
    """Autopilot's answer; a judgement of None means that it could not be had, or made no sense.

    `refused` tells those two apart: a call that was refused is the delivery's own trouble, anything
    else may pass.
    """

    judgement: Judgement | None
    reason: str = ""
    message: str = ""
    run_id: UUID | None = None
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What the sender is told about a delivery."""

    outcome: Outcome
    status: int
    delivery_id: UUID | None = None
    run_id: UUID | None = None
    reason: str = ""
    # What is sent instead of our own words.
    reply: Reply | None = None


@dataclass(frozen=True, slots=True)
class Search:
    """What a list is narrowed to, beside hook and states; empty narrows nothing."""

    since: datetime | None = None
    until: datetime | None = None
    event: str = ""
    provider: str = ""
    dedupe_key: str = ""
    body_sha256: bytes = b""


@dataclass(frozen=True, slots=True)
class Claim:
    """A delivery that this worker took up, under its lease."""

    token: UUID
    facts: Facts
    action: str
    content_type: str
    headers: Mapping[str, str]
    attempt: int
    give_backs: int
    queued_at: datetime
    run_id: UUID | None
    judged: bool

    @property
    def id(self) -> UUID:
        """The delivery's id."""
        return self.facts.delivery_id


@dataclass(frozen=True, slots=True)
class Ending:
    """How an attempt of the worker ended.

    QUEUED is one that is tried again: `given_back` when something it needs was away, which costs no
    attempt.
    """

    state: DeliveryState
    reason: str = ""
    message: str = ""
    given_back: bool = False
    admission: Admission | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery as it is shown; its body is read separately."""

    id: UUID
    endpoint_id: UUID
    workspace_id: UUID
    provider: str
    event: str
    action: str
    dedupe_key: str | None
    signature_state: SignatureState
    state: DeliveryState
    reason: str
    message: str
    judgement: Judgement | None
    run_id: UUID | None
    content_type: str
    headers: Mapping[str, str]
    body_bytes: int
    body_sha256: bytes
    response_status: int
    attempt_count: int
    dispatch_attempts: int
    available_at: datetime
    lease_expires_at: datetime | None
    received_at: datetime
    last_received_at: datetime
    finished_at: datetime | None
    carrier: Mapping[str, str] = field(default_factory=dict)
    sender: str = ""
    retries: int = 0
    content_copy_of: UUID | None = None
    lane_key: str | None = None
    replayed_from: UUID | None = None
    signature_notes: tuple[str, ...] = ()


def clipped(text: str) -> str:
    """Shorten a message to what a row holds, without a NUL."""
    return text[:LONGEST_MESSAGE].replace("\x00", "\ufffd")


def state_after(judgement: Judgement) -> DeliveryState:
    """Say where a judged delivery stands: an accepted one still waits for the worker."""
    return {
        Judgement.ACCEPTED: DeliveryState.QUEUED,
        Judgement.SKIPPED: DeliveryState.DISPATCHED,
        Judgement.IGNORED: DeliveryState.IGNORED,
        Judgement.UNKNOWN_ENDPOINT: DeliveryState.FAILED,
    }[judgement]
