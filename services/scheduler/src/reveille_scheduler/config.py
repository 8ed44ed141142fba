"""The scheduler's settings."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from reveille_runtime.config import ServiceSettings


class Settings(ServiceSettings):
    """What the scheduler reads from its environment."""

    service_name: ClassVar[str] = "scheduler"

    handlers: dict[str, str] = Field(
        default_factory=dict, description="handler names and their addresses, as a JSON object"
    )
    tick_interval: float = Field(default=0.5, gt=0, description="seconds between two idle ticks")
    tick_batch: int = Field(default=200, ge=1, le=200, description="scopes planned at once")
    executor_capacity: int = Field(default=1000, ge=1, description="occurrences handled at once")
    retention_days: int = Field(
        default=90, ge=30, description="days that the ledger keeps what ended"
    )
    check_interval: float = Field(
        default=300.0, gt=0, description="seconds between two walks over all scopes"
    )
    lease_renewal: float = Field(
        default=10.0, gt=0, description="seconds between renewals of all leases of this process"
    )
