"""The jobs that the scheduler hands to this service."""

from __future__ import annotations

from datetime import timedelta

from reveille.scheduler.v1 import job_pb2 as pb
from reveille_autopilot.usecases.plans import JOB
from reveille_runtime.validation import to_duration

HANDLER = "autopilot"
RETENTION = "autopilot_retention"
MONITOR = "autopilot_monitor"
# A schedule that fires once may be this late: nothing else makes up for it.
ONCE_LATENESS = timedelta(hours=24)


def schedule_job() -> pb.Job:
    """Describe the job of schedule triggers: how late, how often and how long."""
    return pb.Job(
        name=JOB,
        handler=HANDLER,
        catch_up_window=to_duration(timedelta(hours=24)),
        max_lateness=to_duration(timedelta(minutes=5)),
        run_timeout=to_duration(timedelta(minutes=2)),
        stale_timeout=to_duration(timedelta(minutes=5)),
        heartbeat_interval=to_duration(timedelta(seconds=30)),
        max_attempts=3,
        retry_backoff=[to_duration(timedelta(minutes=minutes)) for minutes in (1, 5, 15)],
        retry_deadline=to_duration(timedelta(hours=1)),
    )
