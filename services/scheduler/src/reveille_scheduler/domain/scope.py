"""A scope: one thing a job is planned for, as its owner wants it and as it is stored."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class ScopeWish:
    """What an owner wants; an `effective_from` of None means from now on."""

    job_name: str
    kind: str
    id: str
    cron: str
    time_zone: str
    enabled: bool
    revision: int
    effective_from: datetime | None


@dataclass(frozen=True, slots=True)
class ScopeDeletion:
    """An owner's word that a scope is gone."""

    job_name: str
    kind: str
    id: str
    revision: int


@dataclass(frozen=True, slots=True)
class Scope:
    """A scope as stored."""

    job_name: str
    kind: str
    id: str
    cron: str
    time_zone: str
    enabled: bool
    revision: int
    effective_from: datetime
    next_plan_at: datetime | None
    plan_error: str
    deleted: bool
