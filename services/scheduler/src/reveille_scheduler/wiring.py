"""The one place that connects the scheduler's parts."""

from __future__ import annotations

import os
import socket
from datetime import timedelta

from reveille.explain.v1.explain_service_pb2_grpc import add_ExplainServiceServicer_to_server
from reveille.scheduler.v1.job_handler_service_pb2_grpc import (
    JobHandlerServiceStub,
    add_JobHandlerServiceServicer_to_server,
)
from reveille.scheduler.v1.scheduler_service_pb2_grpc import add_SchedulerServiceServicer_to_server
from reveille_jobs.servicer import JobHandlerServicer
from reveille_runtime.app import App
from reveille_runtime.batcher import Batcher
from reveille_runtime.crash import check_environment
from reveille_runtime.db import Database
from reveille_runtime.explain import ExplainServicer
from reveille_runtime.lease import ExpiryWitness, LeaseKeeper
from reveille_runtime.lifecycle import Background, Loop
from reveille_runtime.schemas import wait_for_schema
from reveille_scheduler.config import Settings
from reveille_scheduler.crash_points import CRASH_POINTS
from reveille_scheduler.rpc.servicer import SchedulerServicer
from reveille_scheduler.usecases.asking import Asking
from reveille_scheduler.usecases.backfill import BackfillScope
from reveille_scheduler.usecases.check_scopes import CheckScopes
from reveille_scheduler.usecases.claim_retries import ClaimRetries
from reveille_scheduler.usecases.due_jobs import DueJobs
from reveille_scheduler.usecases.executions import Executions
from reveille_scheduler.usecases.explain import Explain
from reveille_scheduler.usecases.hand_over import Handler, HandOver
from reveille_scheduler.usecases.jobs import Jobs
from reveille_scheduler.usecases.plan_due import PlanDue
from reveille_scheduler.usecases.plan_hooks import PlanHooks
from reveille_scheduler.usecases.preview import Preview
from reveille_scheduler.usecases.renew import Renew
from reveille_scheduler.usecases.retention import HANDLER, JOB, Retention
from reveille_scheduler.usecases.scopes import Scopes
from reveille_scheduler.usecases.settle import Ended, Settle
from reveille_scheduler.usecases.take_over import TakeOver
from reveille_scheduler.usecases.trace import Tracing
from reveille_scheduler.workers.executor import Executor
from reveille_scheduler.workers.own_job import AGAIN_SECONDS, OwnJob
from reveille_scheduler.workers.patience import patiently
from reveille_scheduler.workers.planner import Planner

SETTLE_PATIENCE_SECONDS = 900.0
PLANNING_LANES = 2


async def build(app: App[Settings]) -> None:
    """Open what the scheduler needs and register what it does."""
    check_environment(CRASH_POINTS)
    settings = app.settings
    runner = f"{socket.gethostname()}:{os.getpid()}"
    database = await app.resource(Database(settings.database, app.telemetry))
    await wait_for_schema(database, "scheduler")
    targets = {**settings.handlers, HANDLER: own_address(app.server.address)}
    channels = await app.channels(targets, idempotent=["reveille.scheduler.v1.JobHandlerService"])
    handlers = {name: Handler(name, JobHandlerServiceStub(channels.get(name))) for name in targets}
    kept_for = timedelta(days=settings.retention_days)

    tracing = Tracing(app.telemetry)
    # Each claim brings its own length; what is set here is the shortest a job may ask for.
    keeper = LeaseKeeper(
        Renew(database), duration=settings.lease_renewal * 3, interval=settings.lease_renewal
    )
    # An end is told for as long as its fence may stand: longer than any outage that leases survive.
    settle: Batcher[Ended, bool] = Batcher(
        "settlements", Settle(database, tracing), retry_for=SETTLE_PATIENCE_SECONDS
    )
    executor = Executor(
        HandOver(handlers, settle, keeper, tracing),
        settings.executor_capacity,
        settings.drain_grace / 2,
    )
    planner = Planner(
        DueJobs(database),
        [PlanDue(database, runner) for _ in range(PLANNING_LANES)],
        ClaimRetries(database, tracing, runner),
        PlanHooks(database, handlers, runner),
        executor,
        settings.tick_batch,
    )
    take_over = TakeOver(
        database,
        keeper,
        ExpiryWitness(settings.lease_renewal),
        tracing,
        settings.tick_batch,
    )

    jobs = Jobs(database, targets, timedelta(seconds=settings.lease_renewal))
    scopes = Scopes(database)
    app.server.add(
        add_SchedulerServiceServicer_to_server,
        SchedulerServicer(
            jobs,
            scopes,
            Executions(database),
            Preview(database),
            Asking(database, Executions(database), BackfillScope(kept_for)),
        ),
    )
    app.server.add(
        add_JobHandlerServiceServicer_to_server,
        JobHandlerServicer(HANDLER, {JOB.name: Retention(database, kept_for)}),
    )
    app.server.add(add_ExplainServiceServicer_to_server, ExplainServicer(Explain(database)))
    app.works(Background("lease keeper", keeper.run))
    app.works(executor)
    app.claims(
        Loop("planner", patiently("planner", planner.step), settings.tick_interval, hint=executor)
    )
    app.claims(Loop("take over", patiently("take over", take_over), settings.lease_renewal))
    app.claims(Loop("own job", OwnJob(jobs, scopes), AGAIN_SECONDS))
    app.claims(Loop("scope check", CheckScopes(database), settings.check_interval))


def own_address(listening: str) -> str:
    """Say where this process reaches itself: it may listen on every interface."""
    host, _, port = listening.rpartition(":")
    return f"{_REACHED_AT.get(host, host)}:{port}"


_REACHED_AT = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - replaced, not bound
