"""The settings of the heartbeat service."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Self

from pydantic import Field, model_validator

from reveille_runtime.config import ListenAddress, ServiceSettings


class Settings(ServiceSettings):
    """What heartbeat reads from its environment."""

    service_name: ClassVar[str] = "heartbeat"

    listen: ListenAddress = "127.0.0.1:50054"
    database_pool_max: int = Field(default=12, ge=4)
    spool_dir: Path = Field(
        description="where agents find their payload and leave output and result; survives restarts"
    )
    scheduler_target: ListenAddress = Field(
        default="127.0.0.1:50051", description="the scheduler, for timers and retention"
    )
    webhook_target: str = Field(
        default="127.0.0.1:50053", description="the webhook gateway, for bodies above 1 MiB"
    )
    api_address: str = Field(
        default="", description="where agents reach this service; empty means REVEILLE_LISTEN"
    )
    engine_concurrency: int = Field(
        default=16, ge=0, le=1000, description="runs at once in this process; 0 executes none"
    )
    workspace_run_limit: int = Field(
        default=0,
        ge=0,
        description="runs at once in each workspace, on all replicas; 0 is no limit",
    )
    global_run_limit: int = Field(
        default=0, ge=0, description="runs at once on all replicas together; 0 is no limit"
    )
    claim_interval: float = Field(
        default=1.0, gt=0, description="seconds between looks at the queue"
    )
    lease_duration: float = Field(default=30.0, gt=0, description="seconds a run is held for")
    lease_interval: float = Field(default=8.0, gt=0, description="seconds between renewals")
    sweep_interval: float = Field(
        default=2.0, gt=0, description="seconds between looks for deadlines and stranded rows"
    )
    recovery_interval: float = Field(
        default=5.0, gt=0, description="seconds between looks for runs that lost their executor"
    )
    kill_grace: float = Field(default=5.0, gt=0, description="seconds between TERM and KILL")
    output_limit: int = Field(
        default=64 << 20, ge=1024, description="bytes of output that a run may write per stream"
    )
    file_size_limit: int = Field(
        default=1 << 30,
        ge=1 << 20,
        description="bytes of any file that an agent writes; bounds the spool while we are down",
    )
    scheduling_suppressed: bool = Field(
        default=False,
        description="take no wakes and claim no runs, for example while a backup is restored",
    )
    runtime_presence: float = Field(
        default=60.0, gt=0, description="seconds that the local runtimes count as present"
    )
    retention_days: int = Field(
        default=90,
        ge=30,
        description="days that attempts, their events, and wakeups of no occurrence are kept",
    )
    log_retention_days: int = Field(
        default=30, ge=1, description="days that the output of attempts is kept"
    )
    occurrence_retention_days: int = Field(
        default=400,
        ge=30,
        description="days that occurrences, their wakeups and costs are kept; as long as autopilot"
        " keeps its runs",
    )
    feed_retention_days: int = Field(
        default=7, ge=1, description="days that a reader of the feed may be away"
    )

    @property
    def agent_api_address(self) -> str:
        """Where agents reach this service."""
        return self.api_address or self.listen

    @model_validator(mode="after")
    def _leases_can_be_kept(self) -> Self:
        if self.lease_interval > self.lease_duration / 3:
            raise ValueError("REVEILLE_LEASE_INTERVAL must be at most a third of the duration")
        if self.output_limit > self.file_size_limit:
            raise ValueError("REVEILLE_OUTPUT_LIMIT must not exceed REVEILLE_FILE_SIZE_LIMIT")
        if self.occurrence_retention_days < self.retention_days:
            raise ValueError("REVEILLE_OCCURRENCE_RETENTION_DAYS must not be below the other days")
        return self
