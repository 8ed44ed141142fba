"""A job: how its occurrences are planned, executed and retried, and what must hold of that."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

NAME = re.compile(r"[a-z0-9_]{1,100}")
LONGEST = timedelta(days=366)
MOST_ATTEMPTS = 100
MOST_PLANS = 1000
MOST_AT_ONCE = 100
LONGEST_JITTER = timedelta(days=1)
LONGEST_NOTE = 500


class CatchUp(StrEnum):
    """What becomes of missed occurrences."""

    LATEST_ONLY = "latest_only"
    EVERY_PLAN = "every_plan"


@dataclass(frozen=True, slots=True)
class Job:
    """The settings of a job; lengths of time are exact, `max_lateness` None means no limit."""

    name: str
    handler: str
    catch_up_window: timedelta
    max_lateness: timedelta | None
    run_timeout: timedelta
    stale_timeout: timedelta
    heartbeat_interval: timedelta
    max_attempts: int
    retry_backoff: tuple[timedelta, ...]
    retry_deadline: timedelta
    schedule_delay: timedelta = timedelta(0)
    catch_up: CatchUp = CatchUp.LATEST_ONLY
    max_plans_per_tick: int = 0
    allow_stale_reentry: bool = True
    plans_per_scope: int = 1
    jitter: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A job as registered, when it was registered and changed, and whether it is paused."""

    job: Job
    created_at: datetime
    updated_at: datetime
    paused_at: datetime | None = None
    pause_note: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """One field of a job that cannot be accepted, and why."""

    field: str
    description: str


def problems(job: Job, handlers: Collection[str], renewal: timedelta) -> list[Problem]:
    """Name everything that is wrong with a job, so that its owner mends it in one go.

    `renewal` is how often the scheduler renews the leases of a process, whatever their job.
    """
    found: list[Problem] = []

    def demand(holds: bool, field: str, description: str) -> None:
        if not holds:
            found.append(Problem(field, description))

    demand(NAME.fullmatch(job.name) is not None, "name", "must be 1 to 100 of a-z, 0-9 and _")
    known = ", ".join(sorted(handlers)) or "none"
    demand(job.handler in handlers, "handler", f"is not configured here; configured: {known}")
    positive = {
        "catch_up_window": job.catch_up_window,
        "run_timeout": job.run_timeout,
        "stale_timeout": job.stale_timeout,
        "heartbeat_interval": job.heartbeat_interval,
        "retry_deadline": job.retry_deadline,
    }
    for field, length in positive.items():
        demand(timedelta(0) < length <= LONGEST, field, "must be above 0 and at most 366 days")
    if job.max_lateness is not None:
        demand(
            timedelta(0) < job.max_lateness <= LONGEST,
            "max_lateness",
            "must be above 0 and at most 366 days, or absent for no limit",
        )
    demand(
        job.run_timeout < job.stale_timeout,
        "run_timeout",
        "must be below stale_timeout, or a handler at work would look dead",
    )
    # A lease is renewed at least three times in its life, so that one lost renewal kills nobody.
    demand(
        job.heartbeat_interval <= job.stale_timeout / 3,
        "heartbeat_interval",
        "must be at most a third of stale_timeout",
    )
    demand(
        job.heartbeat_interval >= renewal,
        "heartbeat_interval",
        f"is below what this scheduler keeps: {renewal.total_seconds():g} s",
    )
    demand(timedelta(0) <= job.schedule_delay <= LONGEST, "schedule_delay", "must be 0 to 366 days")
    demand(timedelta(0) <= job.jitter <= LONGEST_JITTER, "jitter", "must be 0 to 24 hours")
    demand(
        0 <= job.max_plans_per_tick <= MOST_PLANS,
        "max_plans_per_tick",
        f"must be 0 to {MOST_PLANS}",
    )
    demand(
        job.catch_up is CatchUp.LATEST_ONLY or job.max_plans_per_tick != 0,
        "max_plans_per_tick",
        "must be at least 1, since every missed occurrence is caught up",
    )
    demand(
        1 <= job.plans_per_scope <= MOST_AT_ONCE,
        "plans_per_scope",
        f"must be 1 to {MOST_AT_ONCE}",
    )
    demand(1 <= job.max_attempts <= MOST_ATTEMPTS, "max_attempts", f"must be 1 to {MOST_ATTEMPTS}")
    demand(len(job.retry_backoff) <= MOST_ATTEMPTS, "retry_backoff", "has too many entries")
    for index, wait in enumerate(job.retry_backoff):
        demand(
            timedelta(0) <= wait <= LONGEST,
            f"retry_backoff[{index}]",
            "must be 0 to 366 days",
        )
    return found
