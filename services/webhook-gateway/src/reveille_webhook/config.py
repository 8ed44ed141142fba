"""The gateway's settings."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field, FilePath

from reveille_runtime.config import ListenAddress, PublicUrl, ServiceSettings
from reveille_webhook.domain.client_address import networks
from reveille_webhook.domain.endpoint import MOST_BODY_BYTES


def _proxies(value: tuple[str, ...]) -> tuple[str, ...]:
    networks(value)
    return value


class Settings(ServiceSettings):
    """What the gateway reads from its environment."""

    service_name: ClassVar[str] = "webhook-gateway"

    listen: ListenAddress = "127.0.0.1:50053"
    http_listen: ListenAddress = Field(
        default="127.0.0.1:8080", description="where senders post to, over plain HTTP"
    )
    autopilot_target: ListenAddress = "127.0.0.1:50052"
    sealing_key_file: FilePath = Field(description="seals the signing secrets in the database")
    trusted_proxies: Annotated[tuple[str, ...], AfterValidator(_proxies)] = Field(
        default=(),
        description="networks of our own proxies, whose X-Forwarded-For is read; a JSON list",
    )
    public_url: PublicUrl | None = Field(
        default=None,
        description="what senders' addresses begin with, which some of them sign; "
        "https and the request's Host when not set",
    )
    scheduler_target: ListenAddress = "127.0.0.1:50051"
    rate_per_minute: int = Field(
        default=60,
        ge=0,
        description="deliveries of a hook dispatched in a minute, and at once after a quiet one, "
        "where the hook says nothing else; 0 for no limit",
    )
    hourly_budget: int = Field(
        default=600,
        ge=0,
        description="deliveries of a hook dispatched in an hour before the loop breaker holds the "
        "others, where the hook says nothing else; 0 for no limit",
    )
    retention_days: int = Field(
        default=90, ge=30, description="days that deliveries are kept after their end"
    )
    ip_ceiling: int = Field(
        default=600, ge=0, description="requests an address may send in a minute; 0 for no limit"
    )
    credential_debt: int = Field(
        default=30,
        ge=0,
        description="bad tokens and signatures an address may send in a minute; 0 for no limit",
    )
    rejected_rows: int = Field(
        default=60,
        ge=0,
        description="rejected requests kept of a hook in a minute, then one in a hundred, and one "
        "of each address that had none, as many again; 0: all",
    )
    http_connections: int = Field(default=2000, ge=1, description="connections served at once")
    connections_per_address: int = Field(
        default=200,
        ge=0,
        description="connections an address may hold, our own proxies aside; 0 for no limit",
    )
    body_room: int = Field(
        default=128 * 1024 * 1024,
        ge=4 * MOST_BODY_BYTES,
        description="bytes that bodies of more than 64 KiB may take at once; an address gets half",
    )
    http_head_timeout: float = Field(
        default=5.0, gt=0, description="seconds in which a request's headers must be complete"
    )
    http_request_timeout: float = Field(
        default=10.0, gt=0, description="seconds in which a whole request must be in"
    )
    http_idle_timeout: int = Field(
        default=5, ge=1, description="seconds that a kept connection may be silent"
    )
    admission_budget: float = Field(
        default=0.8, gt=0, description="seconds after which a stored delivery is answered as queued"
    )
    worker_interval: float = Field(default=1.0, gt=0, description="seconds between two idle claims")
    worker_capacity: int = Field(
        default=400,
        ge=0,
        description="deliveries dispatched at once; 0 for a replica that only takes requests",
    )
    lease_renewal: float = Field(
        default=10.0, gt=0, description="seconds between renewals of all leases of this process"
    )
