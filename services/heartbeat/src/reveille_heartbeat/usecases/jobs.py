"""The jobs that this service executes for the scheduler."""

from __future__ import annotations

from datetime import timedelta

from reveille_jobs.own_job import Execute, OwnJob, upkeep

HANDLER = "heartbeat"
TIMERS = "heartbeat_timers"
RETENTION = "heartbeat_retention"


def timers_job(fire: Execute) -> OwnJob:
    """Make the job that wakes agents now and then; the next tick makes up for one that failed."""
    return OwnJob(
        name=TIMERS,
        handler=HANDLER,
        cadence=timedelta(seconds=30),
        execute=fire,
        missed=timedelta(minutes=10),
        limit=timedelta(minutes=2),
    )


def retention_job(forget: Execute) -> OwnJob:
    """Make the job that forgets what is old."""
    return upkeep(HANDLER, RETENTION, forget)
