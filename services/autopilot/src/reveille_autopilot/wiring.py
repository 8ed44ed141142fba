"""The one place that connects the autopilot service's parts."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import timedelta

from reveille.autopilot.v1.autopilot_service_pb2_grpc import add_AutopilotServiceServicer_to_server
from reveille.autopilot.v1.dispatch_service_pb2_grpc import add_DispatchServiceServicer_to_server
from reveille.autopilot.v1.workspace_service_pb2_grpc import add_WorkspaceServiceServicer_to_server
from reveille.events.v1.event_service_pb2_grpc import add_EventServiceServicer_to_server
from reveille.explain.v1.explain_service_pb2_grpc import add_ExplainServiceServicer_to_server
from reveille.scheduler.v1.job_handler_service_pb2_grpc import (
    add_JobHandlerServiceServicer_to_server,
)
from reveille_autopilot.config import Settings
from reveille_autopilot.crash_points import CRASH_POINTS
from reveille_autopilot.rpc.dispatch import DispatchServicer
from reveille_autopilot.rpc.plans import PlanServicer
from reveille_autopilot.rpc.runs import AutopilotServicer, Rules
from reveille_autopilot.rpc.workspaces import WorkspaceServicer
from reveille_autopilot.usecases.admit import Admissions
from reveille_autopilot.usecases.autopilots import Autopilots
from reveille_autopilot.usecases.call_off import CallOff
from reveille_autopilot.usecases.check import Checker
from reveille_autopilot.usecases.collaborators import Collaborators
from reveille_autopilot.usecases.deliveries import Deliveries
from reveille_autopilot.usecases.dispatch import Dispatcher
from reveille_autopilot.usecases.explain import Explain
from reveille_autopilot.usecases.follow import TYPES, Follower
from reveille_autopilot.usecases.follow_targets import TARGET_TYPES, TargetFollower
from reveille_autopilot.usecases.hooks import Hooks
from reveille_autopilot.usecases.jobs import HANDLER, MONITOR, RETENTION, schedule_job
from reveille_autopilot.usecases.monitor import Monitor, Watchfulness
from reveille_autopilot.usecases.peers import Heartbeat, endpoints_on, scheduler_on
from reveille_autopilot.usecases.plans import Plans
from reveille_autopilot.usecases.read_rules import RuleReader
from reveille_autopilot.usecases.read_runs import RunReader
from reveille_autopilot.usecases.relays import Relays
from reveille_autopilot.usecases.retention import Keeping, Retention
from reveille_autopilot.usecases.run_now import RunRequests
from reveille_autopilot.usecases.settle import RUNS_CHANNEL, Settler
from reveille_autopilot.usecases.signals import RunSignals
from reveille_autopilot.usecases.signing import LOOK_SECONDS, SigningSecrets
from reveille_autopilot.usecases.summary import RunTracing
from reveille_autopilot.usecases.sweep import LONGEST_PAUSE, Sweep
from reveille_autopilot.usecases.system import SystemChanges
from reveille_autopilot.usecases.targets import Targets
from reveille_autopilot.usecases.telling import FEED_CHANNEL
from reveille_autopilot.usecases.triggers import Triggers
from reveille_autopilot.usecases.usage import Usage
from reveille_autopilot.usecases.watch_runs import RunWatcher
from reveille_autopilot.usecases.workspaces import Workspaces
from reveille_autopilot.workers.following import Following
from reveille_autopilot.workers.forgetting import FORGET_SECONDS, forget
from reveille_autopilot.workers.news import pass_on, send_home
from reveille_jobs.own_job import OwnJob, upkeep
from reveille_jobs.registering import Jobs
from reveille_runtime import feed
from reveille_runtime.app import App
from reveille_runtime.crash import check_environment
from reveille_runtime.crypto import Sealer
from reveille_runtime.db import Database
from reveille_runtime.explain import ExplainServicer
from reveille_runtime.feed import CursorStore, FeedConsumer
from reveille_runtime.feed.servicer import EventServicer
from reveille_runtime.hints import HintBus, Notifier
from reveille_runtime.lifecycle import Background, Loop
from reveille_runtime.registration import AGAIN_SECONDS
from reveille_runtime.schemas import wait_for_schema

# How often each relay looks for rows that its receiver lacks.
RELAY_SECONDS = 1.0
# Every call of ours carries ids or keys of our own making, so each may be repeated.
REPEATABLE = (
    "reveille.heartbeat.v1.AgentService",
    "reveille.heartbeat.v1.IssueService",
    "reveille.heartbeat.v1.RunService",
    "reveille.heartbeat.v1.WakeupService",
    "reveille.heartbeat.v1.WorkspaceReplicaService",
    "reveille.scheduler.v1.SchedulerService",
    "reveille.webhook.v1.EndpointService",
)


async def build(app: App[Settings]) -> None:
    """Open what the service needs and register what it does."""
    check_environment(CRASH_POINTS)
    settings = app.settings
    sealer = Sealer(settings.sealing_key_file)
    database = await app.resource(Database(settings.database, app.telemetry))
    await wait_for_schema(database, "autopilot")
    await feed.begin_epoch(database)
    channels = await app.channels(
        {
            "scheduler": settings.scheduler_target,
            "webhook": settings.webhook_target,
            "heartbeat": settings.heartbeat_target,
        },
        idempotent=REPEATABLE,
    )
    heartbeat = Heartbeat.on(channels.get("heartbeat"))
    endpoints = endpoints_on(channels.get("webhook"))

    bus = HintBus(settings.listening, database, enabled=settings.hints)
    notifier = Notifier(database, enabled=settings.hints)
    signals = RunSignals()
    tracing = RunTracing(app.telemetry)
    settler = Settler(database, tracing, signals, notifier)
    admissions = Admissions(database, heartbeat, tracing, settler)
    dispatcher = Dispatcher(database, heartbeat, settler, tracing)
    call_off = CallOff(database, heartbeat, settler)
    checker = Checker(database, heartbeat, settler, call_off)
    sweep = Sweep(database, dispatcher, call_off, checker, settler)
    system = SystemChanges(database, settler)
    scheduler = scheduler_on(channels.get("scheduler"))
    targets = TargetFollower(database, heartbeat, system)
    own = own_jobs(settings, database, system, targets, settler)
    jobs = Jobs(scheduler, own, [schedule_job()])
    relays = Relays(database, scheduler, endpoints, heartbeat, jobs)
    secrets = SigningSecrets(database, endpoints, relays, sealer)
    following = Following(Follower(database, settler), targets, sweep)
    consumer = FeedConsumer(
        "heartbeat",
        watch=heartbeat.events.WatchEvents,
        cursors=CursorStore(database, "heartbeat"),
        handle=following.handle,
        reconcile=following.reconcile,
        types=(*TYPES, *TARGET_TYPES),
    )
    closing = await app.resource(AsyncExitStack())
    closing.push_async_callback(notifier.close)
    closing.push_async_callback(dispatcher.batcher.close)
    closing.push_async_callback(admissions.batcher.close)

    app.server.add(
        add_WorkspaceServiceServicer_to_server, WorkspaceServicer(Workspaces(database, relays))
    )
    app.server.add(
        add_AutopilotServiceServicer_to_server,
        AutopilotServicer(
            Rules(
                Autopilots(database, Targets(heartbeat)),
                RuleReader(database),
                Collaborators(database),
                Triggers(database, relays, Hooks(endpoints), sealer, settings.public_url),
                secrets,
            ),
            RunRequests(database, admissions, dispatcher),
            RunReader(database, signals),
            RunWatcher(database, lambda: bus.event(FEED_CHANNEL), app.server.draining),
            call_off,
            Usage(database),
        ),
    )
    app.server.add(
        add_DispatchServiceServicer_to_server,
        DispatchServicer(Deliveries(database, admissions, dispatcher, settler)),
    )
    app.server.add(
        add_JobHandlerServiceServicer_to_server,
        PlanServicer(Plans(admissions, dispatcher), {each.name: each.execute for each in own}),
    )
    app.server.add(
        add_EventServiceServicer_to_server,
        EventServicer(database, lambda: bus.event(FEED_CHANNEL), app.server.draining),
    )
    app.server.add(add_ExplainServiceServicer_to_server, ExplainServicer(Explain(database)))

    app.works(bus)
    hint = bus.event(RUNS_CHANNEL)
    app.works(Background("news", lambda: pass_on(hint, signals)))
    app.works(Background("send home", lambda: send_home(app.server.draining, signals)))
    app.claims(Loop("job", jobs.step, AGAIN_SECONDS))
    for relay in (relays.workspaces, relays.endpoints, relays.scopes):
        app.claims(Loop(relay.name, relay.step, RELAY_SECONDS))
    app.claims(Loop("requests", lambda: forget(database), FORGET_SECONDS))
    app.claims(Loop("secrets", secrets.record_unheard, LOOK_SECONDS))
    sweeping = Loop("sweep", sweep.step, LONGEST_PAUSE)
    settler.wake_sweep = sweeping.wake
    app.claims(sweeping)
    app.claims(Background("feed", consumer.run))


def own_jobs(
    settings: Settings,
    database: Database,
    system: SystemChanges,
    targets: TargetFollower,
    settler: Settler,
) -> list[OwnJob]:
    """Make what this service does for itself, once an hour."""
    keeping = Keeping(
        timedelta(days=settings.retention_days), timedelta(days=settings.feed_retention_days)
    )
    watchfulness = Watchfulness(
        timedelta(days=settings.monitor_days),
        settings.monitor_least_runs,
        settings.monitor_least_share,
        settings.skip_streak,
    )
    return [
        upkeep(HANDLER, RETENTION, Retention(database, keeping)),
        upkeep(HANDLER, MONITOR, Monitor(database, system, targets, settler, watchfulness)),
    ]
