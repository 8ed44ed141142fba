"""Projects: what issues are gathered under."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID


class ProjectState(StrEnum):
    """Whether work is done for a project."""

    ACTIVE = "active"
    ARCHIVED = "archived"


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
