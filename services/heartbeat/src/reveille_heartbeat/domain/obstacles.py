"""What can keep an issue from being worked on: holds above it, and issues that block it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from reveille_heartbeat.domain.states import IssueState

# How far a hold reaches down, and how deep a tree may be that anybody walks.
MAX_DEPTH = 100


class HoldMode(StrEnum):
    """What a hold does to the issues of its tree."""

    PAUSE = "pause"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class HoldOver:
    """A hold that is in force over an issue."""

    hold_id: UUID
    mode: HoldMode
    reason: str
    root_issue_id: UUID
    root_identifier: str


@dataclass(frozen=True, slots=True)
class Blocker:
    """An issue that blocks another until it is done; cancelling it resolves nothing."""

    issue_id: UUID
    identifier: str
    title: str
    status: IssueState
