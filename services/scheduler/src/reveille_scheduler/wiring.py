"""The one place that connects the scheduler's parts."""

from __future__ import annotations

import os
import socket
from datetime import timedelta

from reveille.explain.v1.explain_service_pb2_grpc import add_ExplainServiceServicer_to_server
from reveille.scheduler.v1.job_handler_service_pb2_grpc import JobHandlerServiceStub
from reveille.scheduler.v1.scheduler_service_pb2_grpc import add_SchedulerServiceServicer_to_server
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
from reveille_scheduler.usecases.claim_retries import ClaimRetries
from reveille_scheduler.usecases.executions import Executions
from reveille_scheduler.usecases.explain import Explain
from reveille_scheduler.usecases.hand_over import Handler, HandOver
from reveille_scheduler.usecases.jobs import Jobs
from reveille_scheduler.usecases.plan_due import PlanDue
from reveille_scheduler.usecases.preview import Preview
from reveille_scheduler.usecases.renew import Renew
from reveille_scheduler.usecases.scopes import Scopes
from reveille_scheduler.usecases.settle import Ended, Settle
from reveille_scheduler.usecases.take_over import TakeOver
from reveille_scheduler.usecases.trace import Tracing
from reveille_scheduler.workers.executor import Executor
from reveille_scheduler.workers.planner import Planner


async def build(app: App[Settings]) -> None:
    """Open what the scheduler needs and register what it does."""
    check_environment(CRASH_POINTS)
    settings = app.settings
    runner = f"{socket.gethostname()}:{os.getpid()}"
    database = await app.resource(Database(settings.database, app.telemetry))
    await wait_for_schema(database, "scheduler")
    channels = await app.channels(
        settings.handlers, idempotent=["reveille.scheduler.v1.JobHandlerService"]
    )
    handlers = {
        name: Handler(name, JobHandlerServiceStub(channels.get(name))) for name in settings.handlers
    }

    tracing = Tracing(app.telemetry)
    # Each claim brings its own length; what is set here is the shortest a job may ask for.
    keeper = LeaseKeeper(
        Renew(database), duration=settings.lease_renewal * 3, interval=settings.lease_renewal
    )
    settle: Batcher[Ended, None] = Batcher("settlements", Settle(database, tracing))
    executor = Executor(
        HandOver(handlers, settle, keeper, tracing),
        settings.executor_capacity,
        settings.drain_grace / 2,
    )
    planner = Planner(
        PlanDue(database, runner),
        ClaimRetries(database, tracing, runner),
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

    app.server.add(
        add_SchedulerServiceServicer_to_server,
        SchedulerServicer(
            Jobs(database, settings.handlers, timedelta(seconds=settings.lease_renewal)),
            Scopes(database),
            Executions(database),
            Preview(database),
        ),
    )
    app.server.add(add_ExplainServiceServicer_to_server, ExplainServicer(Explain(database)))
    app.works(Background("lease keeper", keeper.run))
    app.works(executor)
    app.claims(Loop("planner", planner.step, settings.tick_interval))
    app.claims(Loop("take over", take_over, settings.lease_renewal))
