"""Values of the ledger: a claimed attempt, its end, and an occurrence as recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from reveille_scheduler.domain.states import ExecutionState

MOST_RESULT_BYTES = 16 * 1024
MOST_MESSAGE_CHARACTERS = 4000


@dataclass(frozen=True, slots=True)
class Claim:
    """An attempt that this process may make: the row, its fence, and what the handler is told.

    `since` is the monotonic time from before the claim was sent: the lease is no younger.
    """

    id: UUID
    token: UUID
    job_name: str
    scope_kind: str
    scope_id: str
    plan_time: datetime
    attempt: int
    started_at: datetime
    carrier: Mapping[str, str]
    handler: str
    run_timeout: timedelta
    stale_timeout: timedelta
    max_attempts: int
    give_backs: int
    retry_until: datetime
    since: float


@dataclass(frozen=True, slots=True)
class Ending:
    """How an attempt ended; one `given_back` does not count, and `at_once` is not waited for."""

    state: ExecutionState
    reason: str = ""
    message: str = ""
    result: Mapping[str, Any] = field(default_factory=dict)
    given_back: bool = False
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class Execution:
    """An occurrence as recorded."""

    id: UUID
    job_name: str
    scope_kind: str
    scope_id: str
    plan_time: datetime
    state: ExecutionState
    attempt: int
    max_attempts: int
    next_retry_at: datetime | None
    runner_id: str
    started_at: datetime | None
    finished_at: datetime | None
    reason: str
    message: str
    result: Mapping[str, Any]
    collapsed: int
    carrier: Mapping[str, str]
    retry_until: datetime
    requested_at: datetime | None


def clipped(text: str) -> str:
    """Cut a handler's words to what the ledger holds, at a character."""
    clean = text.replace("\x00", "\N{REPLACEMENT CHARACTER}")
    if len(clean) <= MOST_MESSAGE_CHARACTERS:
        return clean
    return clean[: MOST_MESSAGE_CHARACTERS - 1] + "…"
