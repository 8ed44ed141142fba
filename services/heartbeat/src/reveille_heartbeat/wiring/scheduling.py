"""The jobs of the heartbeat service, and their registration with the scheduler."""

from __future__ import annotations

from datetime import timedelta

from reveille.scheduler.v1.job_handler_service_pb2_grpc import (
    add_JobHandlerServiceServicer_to_server,
)
from reveille.scheduler.v1.scheduler_service_pb2_grpc import SchedulerServiceStub
from reveille_heartbeat.config import Settings
from reveille_heartbeat.usecases.agents.fire_timers import FireTimers
from reveille_heartbeat.usecases.jobs import HANDLER, retention_job, timers_job
from reveille_heartbeat.usecases.retention import Keep, Retention
from reveille_heartbeat.usecases.wakeups.enqueue_wakeups import EnqueueWakeups
from reveille_heartbeat.wiring.basics import Basics
from reveille_jobs.registering import Jobs
from reveille_jobs.servicer import JobHandlerServicer
from reveille_runtime.app import App
from reveille_runtime.ids import new_id
from reveille_runtime.lifecycle import Loop
from reveille_runtime.registration import AGAIN_SECONDS


async def schedule(app: App[Settings], basics: Basics) -> None:
    """Register the jobs that the scheduler hands over, there and here."""
    peers = await app.channels(
        {"scheduler": app.settings.scheduler_target},
        idempotent=["reveille.scheduler.v1.SchedulerService"],
    )
    enqueue = EnqueueWakeups(basics.database, basics.telemetry, basics.notifier, basics.enqueuing)
    settings = app.settings
    keep = Keep(
        runs=timedelta(days=settings.retention_days),
        output=timedelta(days=settings.log_retention_days),
        occurrences=timedelta(days=settings.occurrence_retention_days),
        feed=timedelta(days=settings.feed_retention_days),
    )
    jobs = [
        timers_job(FireTimers(basics.database, enqueue, new_id)),
        retention_job(Retention(basics.database, keep)),
    ]
    servicer = JobHandlerServicer(HANDLER, {each.name: each.execute for each in jobs})
    app.server.add(add_JobHandlerServiceServicer_to_server, servicer)
    registration = Jobs(SchedulerServiceStub(peers.get("scheduler")), jobs)
    app.claims(Loop("jobs", registration.step, AGAIN_SECONDS))
