"""The jobs that this service executes for the scheduler, and their registration there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from reveille.scheduler.v1 import job_pb2 as pb
from reveille.scheduler.v1 import scheduler_service_pb2 as scheduler_pb
from reveille_runtime.registration import Registration
from reveille_runtime.rpc_errors import as_domain_errors
from reveille_runtime.validation import to_duration

if TYPE_CHECKING:
    from reveille.scheduler.v1.scheduler_service_pb2_grpc import SchedulerServiceAsyncStub

HANDLER = "heartbeat"
SCOPE_KIND = "global"
SCOPE_ID = "global"
TIMERS = "heartbeat_timers"
RETENTION = "heartbeat_retention"
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class OwnJob:
    """A job with one cadence; `execute` gives facts for the ledger, and may be repeated.

    Attributes:
        missed: An occurrence older than this is not made up for.
        limit: How long it may take.
        attempts: How often it is tried.
    """

    name: str
    cadence: timedelta
    execute: Callable[[], Awaitable[Mapping[str, object]]]
    missed: timedelta
    limit: timedelta
    attempts: int = 1

    @property
    def job(self) -> pb.Job:
        """Describe it to the scheduler."""
        return pb.Job(
            name=self.name,
            handler=HANDLER,
            catch_up=pb.CATCH_UP_LATEST_ONLY,
            catch_up_window=to_duration(self.missed),
            run_timeout=to_duration(self.limit),
            stale_timeout=to_duration(self.limit * 2),
            heartbeat_interval=to_duration(timedelta(seconds=30)),
            max_attempts=self.attempts,
            retry_backoff=[to_duration(_MINUTE)],
            retry_deadline=to_duration(timedelta(hours=1)),
        )

    @property
    def scope(self) -> pb.Scope:
        """Describe its one scope."""
        return pb.Scope(
            job_name=self.name,
            kind=SCOPE_KIND,
            id=SCOPE_ID,
            cadence=to_duration(self.cadence),
            enabled=True,
            revision=1,
        )


def timers_job(fire: Callable[[], Awaitable[Mapping[str, object]]]) -> OwnJob:
    """Make the job that wakes agents now and then; the next tick makes up for one that failed."""
    return OwnJob(
        name=TIMERS,
        cadence=timedelta(seconds=30),
        execute=fire,
        missed=10 * _MINUTE,
        limit=2 * _MINUTE,
    )


def retention_job(forget: Callable[[], Awaitable[Mapping[str, object]]]) -> OwnJob:
    """Make the job that forgets what is old; one that was cut short goes on in an hour."""
    return OwnJob(
        name=RETENTION,
        cadence=timedelta(hours=1),
        execute=forget,
        missed=timedelta(days=2),
        limit=10 * _MINUTE,
        attempts=3,
    )


class Jobs(Registration):
    """Keeps the jobs and their scopes known to the scheduler."""

    def __init__(self, scheduler: SchedulerServiceAsyncStub, jobs: Sequence[OwnJob]) -> None:
        super().__init__(", ".join(each.name for each in jobs))
        self._scheduler = scheduler
        self._jobs = tuple(jobs)

    async def _tell(self) -> None:
        """Tell the scheduler of them; a scope needs its job first."""
        with as_domain_errors():
            for each in self._jobs:
                await self._scheduler.RegisterJob(scheduler_pb.RegisterJobRequest(job=each.job))
            await self._scheduler.UpsertScopes(
                scheduler_pb.UpsertScopesRequest(scopes=[each.scope for each in self._jobs])
            )
