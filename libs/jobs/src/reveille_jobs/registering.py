"""Keeping a service's jobs known to the scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from reveille.scheduler.v1 import job_pb2
from reveille.scheduler.v1 import scheduler_service_pb2 as pb
from reveille_jobs.own_job import OwnJob
from reveille_runtime.registration import Registration
from reveille_runtime.rpc_errors import as_domain_errors

if TYPE_CHECKING:
    from reveille.scheduler.v1.scheduler_service_pb2_grpc import SchedulerServiceAsyncStub


class Jobs(Registration):
    """Registers own jobs with their scopes, and `others`, whose scopes come by another way."""

    def __init__(
        self,
        scheduler: SchedulerServiceAsyncStub,
        own: Sequence[OwnJob],
        others: Sequence[job_pb2.Job] = (),
    ) -> None:
        self._own = tuple(own)
        self._jobs = (*others, *(each.job for each in own))
        super().__init__(", ".join(job.name for job in self._jobs))
        self._scheduler = scheduler

    async def _tell(self) -> None:
        """Tell the scheduler of them; a scope needs its job first."""
        with as_domain_errors():
            for job in self._jobs:
                await self._scheduler.RegisterJob(pb.RegisterJobRequest(job=job))
            await self._scheduler.UpsertScopes(
                pb.UpsertScopesRequest(scopes=[each.scope for each in self._own])
            )
