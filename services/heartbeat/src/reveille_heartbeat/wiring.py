"""The one place that connects the heartbeat service's parts."""

from __future__ import annotations

import random
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta

from reveille.events.v1.event_service_pb2_grpc import add_EventServiceServicer_to_server
from reveille.explain.v1.explain_service_pb2_grpc import add_ExplainServiceServicer_to_server
from reveille.heartbeat.v1.agent_pb2_grpc import add_AgentServiceServicer_to_server
from reveille.heartbeat.v1.issue_pb2_grpc import add_IssueServiceServicer_to_server
from reveille.heartbeat.v1.run_pb2_grpc import add_RunServiceServicer_to_server
from reveille.heartbeat.v1.wakeup_pb2_grpc import add_WakeupServiceServicer_to_server
from reveille.heartbeat.v1.workspace_replica_service_pb2_grpc import (
    add_WorkspaceReplicaServiceServicer_to_server,
)
from reveille.scheduler.v1.job_handler_service_pb2_grpc import (
    add_JobHandlerServiceServicer_to_server,
)
from reveille.scheduler.v1.scheduler_service_pb2_grpc import SchedulerServiceStub
from reveille.webhook.v1.delivery_service_pb2_grpc import DeliveryServiceStub
from reveille_heartbeat.adapters.contract import Limits
from reveille_heartbeat.adapters.process.identity import this_executor
from reveille_heartbeat.adapters.registry import Registry
from reveille_heartbeat.adapters.spool import SpoolRoot
from reveille_heartbeat.config import Settings
from reveille_heartbeat.crash_points import CRASH_POINTS
from reveille_heartbeat.domain.places import Executor
from reveille_heartbeat.pipeline.bodies import DeliveryBodies
from reveille_heartbeat.pipeline.context import Parts
from reveille_heartbeat.pipeline.runner import Runner
from reveille_heartbeat.pipeline.tokens import RunTokens
from reveille_heartbeat.rpc.agents import AgentServicer
from reveille_heartbeat.rpc.events import EventServicer
from reveille_heartbeat.rpc.issues import IssueServicer
from reveille_heartbeat.rpc.jobs import JobHandlerServicer
from reveille_heartbeat.rpc.runs import RunServicer
from reveille_heartbeat.rpc.wakeups import WakeupServicer
from reveille_heartbeat.rpc.workspaces import WorkspaceReplicaServicer
from reveille_heartbeat.usecases import channels, log_days
from reveille_heartbeat.usecases.add_comment import AddComment
from reveille_heartbeat.usecases.agent_signs import AgentSigns
from reveille_heartbeat.usecases.agent_words import AgentWords
from reveille_heartbeat.usecases.approvals import Approvals
from reveille_heartbeat.usecases.cancel_run import CancelRun
from reveille_heartbeat.usecases.cancel_wakeups import CancelWakeups
from reveille_heartbeat.usecases.check_invocable import CheckInvocable
from reveille_heartbeat.usecases.checkout_issue import CheckoutIssue
from reveille_heartbeat.usecases.claim_runs import ClaimRuns
from reveille_heartbeat.usecases.claiming import Limits as RunLimits
from reveille_heartbeat.usecases.consequences import Consequences
from reveille_heartbeat.usecases.create_agent import CreateAgent
from reveille_heartbeat.usecases.create_issue import CreateIssue
from reveille_heartbeat.usecases.deciding import Decider
from reveille_heartbeat.usecases.delete_issue import DeleteIssue
from reveille_heartbeat.usecases.enforce_deadlines import EnforceDeadlines
from reveille_heartbeat.usecases.enqueue_wakeups import EnqueueWakeups
from reveille_heartbeat.usecases.enqueuing import Enqueuing
from reveille_heartbeat.usecases.explain import Explain
from reveille_heartbeat.usecases.finishing import Finisher
from reveille_heartbeat.usecases.fire_timers import FireTimers
from reveille_heartbeat.usecases.held_run import HeldRun
from reveille_heartbeat.usecases.hold_trees import HoldTrees
from reveille_heartbeat.usecases.jobs import Jobs, timers_job
from reveille_heartbeat.usecases.log_days import LogDays
from reveille_heartbeat.usecases.log_store import LogStore
from reveille_heartbeat.usecases.move_agent import MoveAgent
from reveille_heartbeat.usecases.projects import Projects
from reveille_heartbeat.usecases.promote_deferred import PromoteStranded, Promotion
from reveille_heartbeat.usecases.put_workspace import PutWorkspace, RenewRuntimes
from reveille_heartbeat.usecases.reading import Reader
from reveille_heartbeat.usecases.reading_issues import IssueReader
from reveille_heartbeat.usecases.relate_issues import RelateIssues
from reveille_heartbeat.usecases.run_log import RunLog
from reveille_heartbeat.usecases.run_news import ReadNews
from reveille_heartbeat.usecases.run_spans import RunSpans
from reveille_heartbeat.usecases.runtimes import Runtimes
from reveille_heartbeat.usecases.squads import Squads
from reveille_heartbeat.usecases.stale_locks import ClearStaleLocks
from reveille_heartbeat.usecases.table_log import TableLog
from reveille_heartbeat.usecases.take_over import HandOver, TakeOver
from reveille_heartbeat.usecases.update_agent import UpdateAgent
from reveille_heartbeat.usecases.update_issue import UpdateIssue
from reveille_heartbeat.usecases.watch_run import WatchRuns
from reveille_heartbeat.workers.engine import Engine
from reveille_heartbeat.workers.recovery import Recovery
from reveille_heartbeat.workers.sweeper import Sweeper
from reveille_runtime import feed
from reveille_runtime.app import App
from reveille_runtime.crash import check_environment
from reveille_runtime.db import Database
from reveille_runtime.explain import ExplainServicer
from reveille_runtime.hints import HintBus, Notifier
from reveille_runtime.ids import new_id, new_token
from reveille_runtime.lease import ExpiryWitness, LeaseKeeper
from reveille_runtime.lifecycle import Background, Loop
from reveille_runtime.registration import AGAIN_SECONDS
from reveille_runtime.schemas import wait_for_schema
from reveille_runtime.telemetry import Telemetry

# An expired lease must outlast a whole round of renewals before it counts.
_WITNESS_ROUNDS = 1.5
# Seconds between looks at runs that are followed, when no hint comes.
_WATCH_INTERVAL = 0.5


@dataclass(frozen=True, slots=True)
class Basics:
    """What nearly every part needs."""

    settings: Settings
    database: Database
    telemetry: Telemetry
    notifier: Notifier
    spans: RunSpans
    decider: Decider
    log_store: LogStore
    enqueuing: Enqueuing
    promotion: Promotion
    consequences: Consequences
    run_log: RunLog
    registry: Registry
    closing: AsyncExitStack

    @property
    def presence(self) -> timedelta:
        """How long the local runtimes count as present."""
        return timedelta(seconds=self.settings.runtime_presence)

    @property
    def lease(self) -> timedelta:
        """How long a run is held for."""
        return timedelta(seconds=self.settings.lease_duration)


async def build(app: App[Settings]) -> None:
    """Open what the service needs and register what it does."""
    check_environment(CRASH_POINTS)
    settings = app.settings
    spools = SpoolRoot(settings.spool_dir)
    executor = this_executor(spools.spool_id)
    database = await app.resource(Database(settings.database, app.telemetry))
    await wait_for_schema(database, "heartbeat")
    await feed.begin_epoch(database)
    closing = await app.resource(AsyncExitStack())
    notifier = Notifier(database)
    decider = Decider(app.telemetry, new_id)
    closing.push_async_callback(notifier.close)
    bus = HintBus(settings.database, database)
    log_store = TableLog(database)
    enqueuing = Enqueuing(decider, suppressed=settings.scheduling_suppressed)
    basics = Basics(
        settings=settings,
        database=database,
        telemetry=app.telemetry,
        notifier=notifier,
        spans=RunSpans(app.telemetry),
        decider=decider,
        enqueuing=enqueuing,
        promotion=Promotion(decider),
        consequences=Consequences(enqueuing, new_id),
        log_store=log_store,
        run_log=RunLog(database, log_store, notifier),
        registry=Registry.installed(),
        closing=closing,
    )
    closing.push_async_callback(basics.run_log.close)
    app.works(bus)
    serve(app, basics, bus)
    await schedule(app, basics)
    await execute(app, basics, bus, spools, executor)


def serve(app: App[Settings], basics: Basics, bus: HintBus) -> None:
    """Register the RPCs."""
    database, notifier, spans = basics.database, basics.notifier, basics.spans
    reader = Reader(database)
    making = (database, basics.telemetry, notifier, basics.enqueuing)
    server = app.server
    server.add(
        add_AgentServiceServicer_to_server,
        AgentServicer(
            CreateAgent(database, basics.presence, new_id),
            UpdateAgent(database, basics.registry.check, basics.presence, new_id),
            MoveAgent(database, notifier, spans),
            CheckInvocable(database),
            basics.registry.check,
            reader,
            Squads(database, notifier),
            Runtimes(database, notifier),
        ),
    )
    server.add(
        add_IssueServiceServicer_to_server,
        issue_servicer(basics),
    )
    server.add(
        add_WakeupServiceServicer_to_server,
        WakeupServicer(
            EnqueueWakeups(*making),
            CancelWakeups(database, notifier, spans, basics.promotion, basics.consequences),
            reader,
        ),
    )
    watch = WatchRuns(
        ReadNews(database, basics.log_store),
        bus.event(channels.FEED, channels.OUTPUT),
        server.draining,
    )
    app.works(Loop("run.watch", watch.step, _WATCH_INTERVAL, watch))
    server.add(
        add_RunServiceServicer_to_server,
        RunServicer(
            reader,
            basics.run_log,
            watch,
            CancelRun(database, notifier, spans, basics.promotion),
        ),
    )
    server.add(
        add_WorkspaceReplicaServiceServicer_to_server,
        WorkspaceReplicaServicer(PutWorkspace(database, basics.presence, new_id)),
    )
    server.add(
        add_EventServiceServicer_to_server,
        EventServicer(database, lambda: bus.event(channels.FEED), server.draining),
    )
    server.add(add_ExplainServiceServicer_to_server, ExplainServicer(Explain(database)))


def issue_servicer(basics: Basics) -> IssueServicer:
    """Make what serves issues."""
    database, notifier, spans = basics.database, basics.notifier, basics.spans
    consequences = basics.consequences
    changing = (database, notifier, spans, consequences)
    return IssueServicer(
        CreateIssue(database, basics.telemetry, notifier, basics.enqueuing),
        UpdateIssue(*changing),
        DeleteIssue(*changing),
        CheckoutIssue(*changing),
        AddComment(database, notifier, consequences, new_id),
        Approvals(database, notifier, consequences, new_id),
        RelateIssues(database, notifier, consequences),
        HoldTrees(*changing),
        Projects(database),
        IssueReader(database),
    )


async def schedule(app: App[Settings], basics: Basics) -> None:
    """Register the jobs that the scheduler hands over, there and here."""
    peers = await app.channels(
        {"scheduler": app.settings.scheduler_target},
        idempotent=["reveille.scheduler.v1.SchedulerService"],
    )
    enqueue = EnqueueWakeups(basics.database, basics.telemetry, basics.notifier, basics.enqueuing)
    jobs = [timers_job(FireTimers(basics.database, enqueue, new_id))]
    app.server.add(add_JobHandlerServiceServicer_to_server, JobHandlerServicer(jobs))
    registration = Jobs(SchedulerServiceStub(peers.get("scheduler")), jobs)
    app.claims(Loop("jobs", registration.step, AGAIN_SECONDS))


async def execute(
    app: App[Settings],
    basics: Basics,
    bus: HintBus,
    spools: SpoolRoot,
    executor: Executor,
) -> None:
    """Start what claims, executes, sweeps and recovers."""
    settings, database, notifier = basics.settings, basics.database, basics.notifier
    gateway = await app.channels(
        {"webhook": settings.webhook_target}, idempotent=["reveille.webhook.v1.DeliveryService"]
    )
    signs = AgentSigns(database)
    closing = await app.resource(AsyncExitStack())
    closing.push_async_callback(signs.close)
    words = AgentWords(database, notifier)
    closing.push_async_callback(words.close)
    held_run = HeldRun(database, basics.lease)
    keeper = LeaseKeeper(
        held_run.renew, duration=settings.lease_duration, interval=settings.lease_interval
    )
    finisher = Finisher(
        database,
        notifier,
        basics.spans,
        basics.decider,
        basics.promotion,
        basics.consequences,
        random.random,
    )
    basics.closing.push_async_callback(finisher.close)
    parts = Parts(
        executor=executor,
        held_run=held_run,
        run_log=basics.run_log,
        signs=signs,
        words=words,
        finisher=finisher,
        hand_over=HandOver(database, notifier),
        registry=basics.registry,
        spools=spools,
        fetch_body=DeliveryBodies(DeliveryServiceStub(gateway.get("webhook"))).fetch,
        run_token=RunTokens(app.minter, settings.start_limit).token,
        api_address=settings.agent_api_address,
        limits=Limits(
            kill_grace=settings.kill_grace,
            output_bytes=settings.output_limit,
            file_bytes=settings.file_size_limit,
        ),
    )
    claim = ClaimRuns(
        database,
        executor,
        basics.lease,
        notifier,
        basics.promotion,
        new_token,
        RunLimits(settings.workspace_run_limit or None, settings.global_run_limit or None),
    )
    take_over = TakeOver(database, executor, basics.lease, new_token)
    engine = Engine(
        claim,
        take_over,
        Runner(parts, keeper),
        keeper,
        basics.telemetry,
        concurrency=settings.engine_concurrency,
        interval=settings.claim_interval,
        # The supervisor's own patience is a little longer.
        grace=settings.drain_grace * 0.8,
        queue_hint=bus.event(channels.QUEUE),
        stop_hint=bus.event(channels.STOPS),
    )
    witness_interval = settings.lease_interval * _WITNESS_ROUNDS
    recovery = Recovery(
        take_over,
        ClearStaleLocks(database),
        engine,
        executor,
        keeper,
        ExpiryWitness(witness_interval),
        spools,
        basics.telemetry,
        interval=settings.recovery_interval,
        grace=settings.kill_grace,
        handed_over=bus.event(channels.HANDED_OVER),
    )
    sweeper = Sweeper(
        EnforceDeadlines(database, notifier, basics.spans, ExpiryWitness(witness_interval)),
        PromoteStranded(database, notifier, basics.promotion),
        keeper,
        witness_interval,
        interval=settings.sweep_interval,
    )
    renew = RenewRuntimes(database, basics.presence)
    app.works(Background("leases", keeper.run))
    app.works(engine)
    app.works(engine.stopping)
    app.works(Loop("log.days", LogDays(database), log_days.EVERY))
    app.claims(Loop("runtimes", renew, settings.runtime_presence / 6))
    app.claims(sweeper.loop)
    app.claims(Background("recovery.follow", recovery.follow_engine))
    app.claims(recovery.loop)
    app.claims(recovery.cleaning)
    if settings.engine_concurrency > 0 and not settings.scheduling_suppressed:
        app.claims(engine.claiming)
