"""The one place that connects the gateway's parts."""

from __future__ import annotations

from datetime import timedelta

from reveille.autopilot.v1.dispatch_service_pb2_grpc import DispatchServiceStub
from reveille.explain.v1.explain_service_pb2_grpc import add_ExplainServiceServicer_to_server
from reveille.scheduler.v1.job_handler_service_pb2_grpc import (
    add_JobHandlerServiceServicer_to_server,
)
from reveille.scheduler.v1.scheduler_service_pb2_grpc import SchedulerServiceStub
from reveille.webhook.v1.delivery_service_pb2_grpc import add_DeliveryServiceServicer_to_server
from reveille.webhook.v1.endpoint_service_pb2_grpc import add_EndpointServiceServicer_to_server
from reveille_jobs.own_job import upkeep
from reveille_jobs.registering import Jobs
from reveille_jobs.servicer import JobHandlerServicer
from reveille_runtime.app import App
from reveille_runtime.batcher import Batcher
from reveille_runtime.crash import check_environment
from reveille_runtime.crypto import Sealer
from reveille_runtime.db import Database
from reveille_runtime.explain import ExplainServicer
from reveille_runtime.lease import ExpiryWitness, LeaseKeeper
from reveille_runtime.lifecycle import Background, Loop
from reveille_runtime.registration import AGAIN_SECONDS
from reveille_runtime.schemas import wait_for_schema
from reveille_webhook.config import Settings
from reveille_webhook.crash_points import CRASH_POINTS
from reveille_webhook.domain.client_address import networks
from reveille_webhook.domain.ratelimit import SlidingCounters
from reveille_webhook.domain.room import Room
from reveille_webhook.http.edge import HttpEdge
from reveille_webhook.http.hooks import Hooks
from reveille_webhook.http.protocol import Limits
from reveille_webhook.rpc.delivery_servicer import DeliveryServicer
from reveille_webhook.rpc.endpoint_servicer import EndpointServicer
from reveille_webhook.usecases.admit import Admit
from reveille_webhook.usecases.autopilot import Autopilot
from reveille_webhook.usecases.claim import ClaimDeliveries
from reveille_webhook.usecases.deliver import Deliver, HandOver
from reveille_webhook.usecases.deliveries import Deliveries
from reveille_webhook.usecases.diagnose import Diagnose
from reveille_webhook.usecases.endpoints import Endpoints
from reveille_webhook.usecases.explain import Explain
from reveille_webhook.usecases.find_endpoint import FindEndpoint
from reveille_webhook.usecases.held import Held
from reveille_webhook.usecases.measure_queue import EVERY, MeasureQueue
from reveille_webhook.usecases.receive import Receive
from reveille_webhook.usecases.refuse import Refuse
from reveille_webhook.usecases.renew import Renew
from reveille_webhook.usecases.replay import Replay
from reveille_webhook.usecases.retention import HANDLER, JOB, Retention
from reveille_webhook.usecases.secrets import Secrets, SecretUses
from reveille_webhook.usecases.settle import Ended, Settle
from reveille_webhook.usecases.store_delivery import StoreDelivery
from reveille_webhook.usecases.take_over import TakeOver
from reveille_webhook.usecases.trace import Tracing
from reveille_webhook.usecases.watch import Watch
from reveille_webhook.workers.dispatcher import Dispatcher

# Between two looks of somebody who watches, in seconds.
_LOOK_AGAIN = 0.5


async def build(app: App[Settings]) -> None:
    """Open what the gateway needs and register what it does."""
    check_environment(CRASH_POINTS)
    settings = app.settings
    sealer = Sealer(settings.sealing_key_file)
    database = await app.resource(Database(settings.database, app.telemetry))
    await wait_for_schema(database, "webhook")
    channels = await app.channels(
        {"autopilot": settings.autopilot_target, "scheduler": settings.scheduler_target},
        idempotent=["reveille.autopilot.v1.DispatchService"],
    )
    tracing = Tracing(app.telemetry)
    autopilot = Autopilot(DispatchServiceStub(channels.get("autopilot")))
    admit = await app.resource(Admit(database, autopilot, lambda: claiming.wake()))
    uses = await app.resource(SecretUses(database))

    lease = settings.lease_renewal * 3
    keeper = LeaseKeeper(Renew(database, lease), duration=lease, interval=settings.lease_renewal)
    settle: Batcher[Ended, None] = Batcher("settlements", Settle(database))
    dispatcher = Dispatcher(
        ClaimDeliveries(database, lease, settings.rate_per_minute, settings.hourly_budget, tracing),
        Deliver(admit, HandOver(database, autopilot), settle, keeper, tracing),
        keeper,
        settings.worker_capacity,
        settings.drain_grace / 2,
    )
    take_over = TakeOver(database, keeper, ExpiryWitness(settings.lease_renewal))
    claiming = Loop("dispatcher claims", dispatcher.step, settings.worker_interval)

    store = StoreDelivery(database)
    secrets = Secrets(database, sealer)
    refuse = Refuse(store, Diagnose(database, sealer), settings.rejected_rows)
    trusted = networks(settings.trusted_proxies)
    edge = HttpEdge(
        settings.http_listen,
        Hooks(
            FindEndpoint(database, sealer),
            Receive(
                store,
                admit,
                refuse,
                uses,
                secrets,
                settings.admission_budget,
            ),
            tracing,
            ceiling=SlidingCounters(settings.ip_ceiling),
            debt=SlidingCounters(settings.credential_debt),
            room=Room(settings.body_room),
            trusted=trusted,
            public_url=settings.public_url,
        ),
        limits=Limits(
            head_timeout=settings.http_head_timeout,
            request_timeout=settings.http_request_timeout,
            connections=settings.http_connections,
            connections_per_address=settings.connections_per_address,
        ),
        trusted=trusted,
        idle_timeout=settings.http_idle_timeout,
        grace=settings.drain_grace,
    )

    app.server.add(
        add_EndpointServiceServicer_to_server,
        EndpointServicer(Endpoints(database), secrets),
    )
    app.server.add(
        add_DeliveryServiceServicer_to_server,
        DeliveryServicer(
            Deliveries(database),
            Replay(database, tracing),
            Held(database, autopilot, claiming.wake),
            Watch(database, app.server.draining, _LOOK_AGAIN),
        ),
    )
    retention = Retention(database, timedelta(days=settings.retention_days))
    tidying = upkeep(HANDLER, JOB, retention)
    app.server.add(
        add_JobHandlerServiceServicer_to_server,
        JobHandlerServicer(HANDLER, {tidying.name: tidying.execute}),
    )
    app.server.add(add_ExplainServiceServicer_to_server, ExplainServicer(Explain(database)))
    app.works(Background("lease keeper", keeper.run))
    app.works(dispatcher)
    app.works(Background("http", edge.serve))
    app.claims(claiming)
    scheduler = SchedulerServiceStub(channels.get("scheduler"))
    app.claims(Loop("own job", Jobs(scheduler, [tidying]).step, AGAIN_SECONDS))
    app.works(Loop("queue measure", MeasureQueue(database, app.telemetry), EVERY))
    app.claims(Loop("take over", take_over, settings.lease_renewal))
    app.on_drain(edge.stop)
    edge.listen()
