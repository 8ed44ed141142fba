"""The jobs that the scheduler hands to this service, and their registration there."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from reveille.scheduler.v1 import job_pb2 as pb
from reveille.scheduler.v1 import scheduler_service_pb2 as scheduler_pb
from reveille_autopilot.usecases.plans import JOB
from reveille_runtime.registration import Registration
from reveille_runtime.rpc_errors import as_domain_errors
from reveille_runtime.validation import to_duration

if TYPE_CHECKING:
    from reveille.scheduler.v1.scheduler_service_pb2_grpc import SchedulerServiceAsyncStub

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


def upkeep_job(name: str) -> pb.Job:
    """Describe a job that this service does for itself, once an hour."""
    return pb.Job(
        name=name,
        handler=HANDLER,
        catch_up_window=to_duration(timedelta(days=2)),
        run_timeout=to_duration(timedelta(minutes=10)),
        stale_timeout=to_duration(timedelta(minutes=15)),
        heartbeat_interval=to_duration(timedelta(minutes=1)),
        max_attempts=3,
        retry_backoff=[to_duration(timedelta(minutes=minutes)) for minutes in (1, 10)],
        retry_deadline=to_duration(timedelta(hours=1)),
        jitter=to_duration(timedelta(minutes=10)),
    )


def upkeep_scope(name: str) -> pb.Scope:
    """Describe when such a job falls due."""
    return pb.Scope(
        job_name=name,
        kind="global",
        id="global",
        cadence=to_duration(timedelta(hours=1)),
        enabled=True,
        revision=1,
    )


class Jobs(Registration):
    """Keeps the registrations."""

    def __init__(self, scheduler: SchedulerServiceAsyncStub) -> None:
        super().__init__(JOB)
        self._scheduler = scheduler

    async def _tell(self) -> None:
        """Tell the scheduler what the jobs are, and when the upkeep is due."""
        upkeep = (RETENTION, MONITOR)
        with as_domain_errors():
            for job in (schedule_job(), *map(upkeep_job, upkeep)):
                await self._scheduler.RegisterJob(scheduler_pb.RegisterJobRequest(job=job))
            await self._scheduler.UpsertScopes(
                scheduler_pb.UpsertScopesRequest(scopes=map(upkeep_scope, upkeep))
            )
