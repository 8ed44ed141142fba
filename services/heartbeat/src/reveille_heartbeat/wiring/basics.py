"""What nearly every part of the heartbeat service needs."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta

from reveille_heartbeat.adapters.registry import Registry
from reveille_heartbeat.config import Settings
from reveille_heartbeat.usecases.issues.consequences import Consequences
from reveille_heartbeat.usecases.runs.log_store import LogStore
from reveille_heartbeat.usecases.runs.run_log import RunLog
from reveille_heartbeat.usecases.runs.run_spans import RunSpans
from reveille_heartbeat.usecases.wakeups.deciding import Decider
from reveille_heartbeat.usecases.wakeups.enqueuing import Enqueuing
from reveille_heartbeat.usecases.wakeups.promote_deferred import Promotion
from reveille_runtime.db import Database
from reveille_runtime.hints import Notifier
from reveille_runtime.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class Basics:
    """What nearly every part needs."""

    settings: Settings
    database: Database
    telemetry: Telemetry
    notifier: Notifier
    spans: RunSpans
    decider: Decider
    log_store: LogStore
    enqueuing: Enqueuing
    promotion: Promotion
    consequences: Consequences
    run_log: RunLog
    registry: Registry
    closing: AsyncExitStack

    @property
    def presence(self) -> timedelta:
        """How long the local runtimes count as present."""
        return timedelta(seconds=self.settings.runtime_presence)

    @property
    def lease(self) -> timedelta:
        """How long a run is held for."""
        return timedelta(seconds=self.settings.lease_duration)
