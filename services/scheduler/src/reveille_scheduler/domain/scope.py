"""A scope: one thing a job is planned for, as its owner wants it and as it is stored."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from reveille_scheduler.domain.job import CatchUp
from reveille_scheduler.domain.rule import Rule

ScopeKey = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class ScopeWish:
    """What an owner wants.

    An `effective_from` of None means from now on; `catch_up` and `max_lateness` override the job's
    unless they are None, a `max_lateness` of zero sets no limit.
    """

    job_name: str
    kind: str
    id: str
    rule: Rule
    enabled: bool
    revision: int
    effective_from: datetime | None
    catch_up: CatchUp | None = None
    max_lateness: timedelta | None = None

    @property
    def key(self) -> ScopeKey:
        """What names it."""
        return self.job_name, self.kind, self.id


@dataclass(frozen=True, slots=True)
class ScopeDeletion:
    """An owner's word that a scope is gone."""

    job_name: str
    kind: str
    id: str
    revision: int

    @property
    def key(self) -> ScopeKey:
        """What names it."""
        return self.job_name, self.kind, self.id


@dataclass(frozen=True, slots=True)
class Scope:
    """A scope as stored."""

    job_name: str
    kind: str
    id: str
    rule: Rule
    enabled: bool
    revision: int
    effective_from: datetime
    next_plan_at: datetime | None
    plan_error: str
    deleted: bool
    catch_up: CatchUp | None = None
    max_lateness: timedelta | None = None

    @property
    def key(self) -> ScopeKey:
        """What names it."""
        return self.job_name, self.kind, self.id
