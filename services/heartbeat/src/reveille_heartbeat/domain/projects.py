"""Projects: what issues are gathered under."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from reveille_heartbeat.domain.states import ProjectState


@dataclass(frozen=True, slots=True)
class Project:
    """A project."""

    project_id: UUID
    workspace_id: UUID
    name: str
    description: str
    state: ProjectState
    revision: int
    created_at: datetime
    updated_at: datetime
