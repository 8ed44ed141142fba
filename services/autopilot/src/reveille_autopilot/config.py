"""What the service reads from its environment."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, FilePath

from reveille_runtime.config import ListenAddress, PublicUrl, ServiceSettings


class Settings(ServiceSettings):
    """The settings of the autopilot service."""

    service_name: ClassVar[str] = "autopilot"

    listen: ListenAddress = "127.0.0.1:50052"
    scheduler_target: ListenAddress = "127.0.0.1:50051"
    webhook_target: ListenAddress = "127.0.0.1:50053"
    heartbeat_target: ListenAddress = "127.0.0.1:50054"
    public_url: PublicUrl | None = Field(
        default=None, description="where senders reach the gateway; hook_url is empty without it"
    )
    retention_days: int = Field(
        default=400, ge=30, description="days that runs, their keys and rule versions are kept"
    )
    feed_retention_days: int = Field(
        default=7, ge=1, description="days that events are kept for those who follow the feed"
    )
    monitor_days: int = Field(
        default=7, ge=1, description="days of runs by which a failing autopilot is told"
    )
    monitor_least_runs: int = Field(
        default=50, ge=1, description="runs that an autopilot must have had to be paused"
    )
    monitor_least_share: float = Field(
        default=0.9, gt=0, le=1, description="share of failed runs that pauses an autopilot"
    )
    skip_streak: int = Field(
        default=10, ge=2, description="skipped runs in a row that are told to its followers"
    )
    sealing_key_file: FilePath = Field(
        description="seals the answers that show a webhook's address, for their ten minutes"
    )
