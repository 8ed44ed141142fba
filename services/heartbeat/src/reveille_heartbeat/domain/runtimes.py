"""Runtimes: places at which agents run, present for as long as somebody says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID


class RuntimeKind(StrEnum):
    """Who keeps a runtime present: heartbeat itself, or somebody who reports it."""

    LOCAL = "local"
    REMOTE = "remote"


@dataclass(frozen=True, slots=True)
class Runtime:
    """A place at which agents run."""

    runtime_id: UUID
    workspace_id: UUID
    name: str
    kind: RuntimeKind
    # Present by its last report, on the database's clock.
    present: bool
    # Why it is of no use although it is there; empty when it can run agents.
    unusable_reason: str
    metadata: Mapping[str, Any]
    presence_expires_at: datetime
    created_at: datetime

    @property
    def online(self) -> bool:
        """Whether agents can run there now."""
        return self.present and not self.unusable_reason
