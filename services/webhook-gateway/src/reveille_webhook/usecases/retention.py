"""Forget deliveries that ended long ago: a job that the scheduler plans, and this service executes.

What is still on its way stays, and so does every sender's id that is younger than the days kept:
those are more than any sender's retries last.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from reveille.scheduler.v1 import job_pb2
from reveille.scheduler.v1 import scheduler_service_pb2 as pb
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database
from reveille_runtime.registration import Registration
from reveille_runtime.requests import prune as prune_requests
from reveille_runtime.rpc_errors import as_domain_errors
from reveille_runtime.validation import to_duration
from reveille_webhook import crash_points
from reveille_webhook.store import deliveries

if TYPE_CHECKING:
    from reveille.scheduler.v1.scheduler_service_pb2_grpc import SchedulerServiceAsyncStub

JOB = "webhook_retention"
HANDLER = "webhook-gateway"
# Rows a stretch may remove, and how much of the run's time is used before the next run goes on.
STRETCH = 500
PATIENCE_SECONDS = 480.0


class Retention:
    """Removes what is old, in stretches of their own transactions."""

    def __init__(
        self,
        database: Database,
        kept_for: timedelta,
        stretch: int = STRETCH,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._kept_for = kept_for
        self._stretch = stretch
        self._monotonic = monotonic

    async def __call__(self) -> bytes:
        """Forget; gives what was removed, as JSON for the ledger."""
        until = self._monotonic() + PATIENCE_SECONDS
        removed, finished = 0, False
        while not finished and self._monotonic() < until:
            async with self._database.session() as tx:
                some = await deliveries.prune(tx, self._kept_for, self._stretch)
            crash_point(crash_points.AFTER_PRUNED)
            removed += some
            finished = some < self._stretch
        requests = await prune_requests(self._database, limit=self._stretch)
        return json.dumps(
            {"deliveries_removed": removed, "requests_removed": requests, "finished": finished}
        ).encode()


class OwnJob(Registration):
    """Keeps the job registered at the scheduler."""

    def __init__(self, scheduler: SchedulerServiceAsyncStub) -> None:
        super().__init__(JOB)
        self._scheduler = scheduler

    async def _tell(self) -> None:
        with as_domain_errors():
            await self._scheduler.RegisterJob(pb.RegisterJobRequest(job=_job()))
            await self._scheduler.UpsertScopes(pb.UpsertScopesRequest(scopes=[_scope()]))


def _job() -> job_pb2.Job:
    return job_pb2.Job(
        name=JOB,
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


def _scope() -> job_pb2.Scope:
    return job_pb2.Scope(
        job_name=JOB,
        kind="global",
        id="global",
        enabled=True,
        revision=1,
        cadence=to_duration(timedelta(hours=1)),
    )
