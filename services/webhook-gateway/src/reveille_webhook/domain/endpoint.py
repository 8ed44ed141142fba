"""An endpoint as its trigger wants it, and as ingress needs it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from reveille_webhook.domain.generic import Generic

DEFAULT_BODY_BYTES = 256 * 1024
MOST_BODY_BYTES = 25 * 1024 * 1024
SHORTEST_SECRET = 16
LONGEST_SECRET = 1024
MOST_SENDERS = 50
MOST_MARKERS = 20
LONGEST_PATH = 200
MOST_PER_MINUTE = 600_000
_HINT = 4


@dataclass(frozen=True, slots=True)
class Options:
    """What a hook does otherwise than usual; None leaves it to the gateway's settings."""

    generic: Generic | None = None
    refuses_copies: bool = False
    rate_per_minute: int | None = None
    hourly_budget: int | None = None
    lane_path: str | None = None
    excluded_senders: tuple[str, ...] = ()
    own_markers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The wanted state of an endpoint; tokens are known by their hashes only."""

    id: UUID
    workspace_id: UUID
    token_sha256: bytes
    previous_token_sha256: bytes | None
    previous_token_expires_at: datetime | None
    provider: str
    max_body_bytes: int
    revision: int
    options: Options = field(default_factory=Options)


@dataclass(frozen=True, slots=True)
class LiveSecret:
    """A signing secret that counts now; `used_lately` when its last use need not be written."""

    id: UUID
    value: bytes
    used_lately: bool


@dataclass(frozen=True, slots=True)
class OpenEndpoint:
    """An endpoint that a token led to, with what verification needs.

    It demands a signature as soon as it has any secret, even one that has expired: an expiry must
    not open what it was meant to guard. `now` is the database's clock when it was found.
    """

    id: UUID
    workspace_id: UUID
    provider: str
    max_body_bytes: int
    secrets: tuple[LiveSecret, ...]
    demands_signature: bool
    now: datetime
    options: Options = field(default_factory=Options)
    tripped: bool = False


@dataclass(frozen=True, slots=True)
class Secret:
    """What may be told about a signing secret."""

    id: UUID
    hint: str
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None


def hint_of(secret: bytes) -> str:
    """Give a secret's last characters, so that people can tell several apart."""
    text = secret.decode("utf-8", "replace")[-_HINT:]
    return "".join(each if each.isprintable() else "?" for each in text)
