"""What claims, executes, sweeps and recovers in the heartbeat service."""

from __future__ import annotations

import random
from contextlib import AsyncExitStack

from reveille.webhook.v1.delivery_service_pb2_grpc import DeliveryServiceStub
from reveille_heartbeat.adapters.contract import Limits
from reveille_heartbeat.adapters.spool import SpoolRoot
from reveille_heartbeat.config import Settings
from reveille_heartbeat.domain.limits import RunLimits
from reveille_heartbeat.domain.places import Executor
from reveille_heartbeat.pipeline.bodies import DeliveryBodies
from reveille_heartbeat.pipeline.context import Parts
from reveille_heartbeat.pipeline.interrupts import Interrupts
from reveille_heartbeat.pipeline.runner import Runner
from reveille_heartbeat.pipeline.tokens import RunTokens
from reveille_heartbeat.usecases import channels, measure_queues
from reveille_heartbeat.usecases.agents.agent_statuses import AgentStatuses
from reveille_heartbeat.usecases.agents.put_workspace import RenewRuntimes
from reveille_heartbeat.usecases.issues.stale_locks import ClearStaleLocks
from reveille_heartbeat.usecases.measure_queues import MeasureQueues
from reveille_heartbeat.usecases.runs import log_days
from reveille_heartbeat.usecases.runs.agent_signs import AgentSigns
from reveille_heartbeat.usecases.runs.agent_words import AgentWords
from reveille_heartbeat.usecases.runs.claim_runs import ClaimRuns
from reveille_heartbeat.usecases.runs.enforce_deadlines import EnforceDeadlines
from reveille_heartbeat.usecases.runs.finishing import Finisher
from reveille_heartbeat.usecases.runs.held_run import HeldRun
from reveille_heartbeat.usecases.runs.log_days import LogDays
from reveille_heartbeat.usecases.runs.promote_retries import PromoteRetries, RetryTurn
from reveille_heartbeat.usecases.runs.take_over import HandOver, TakeOver
from reveille_heartbeat.usecases.wakeups.promote_deferred import PromoteStranded
from reveille_heartbeat.wiring.basics import Basics
from reveille_heartbeat.workers.engine import Engine
from reveille_heartbeat.workers.recovery import Recovery
from reveille_heartbeat.workers.sweeper import Sweeper
from reveille_runtime.app import App
from reveille_runtime.hints import HintBus
from reveille_runtime.ids import new_token
from reveille_runtime.lease import ExpiryWitness, LeaseKeeper
from reveille_runtime.lifecycle import Background, Loop

# An expired lease must outlast a whole round of renewals before it counts.
_WITNESS_ROUNDS = 1.5


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
    statuses = AgentStatuses(database, notifier)
    basics.closing.push_async_callback(statuses.close)
    finisher = Finisher(
        database,
        notifier,
        basics.spans,
        basics.decider,
        basics.promotion,
        basics.consequences,
        statuses,
        random.random,
    )
    basics.closing.push_async_callback(finisher.close)
    interrupts = Interrupts()
    parts = Parts(
        executor=executor,
        held_run=held_run,
        run_log=basics.run_log,
        signs=signs,
        words=words,
        finisher=finisher,
        interrupts=interrupts,
        hand_over=HandOver(database, notifier),
        registry=basics.registry,
        spools=spools,
        fetch_body=DeliveryBodies(DeliveryServiceStub(gateway.get("webhook"))).fetch,
        run_token=RunTokens(app.minter).token,
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
        interrupts,
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
        PromoteRetries(database, notifier, RetryTurn(basics.promotion)),
        keeper,
        witness_interval,
        interval=settings.sweep_interval,
    )
    renew = RenewRuntimes(database, basics.presence)
    app.works(Background("leases", keeper.run))
    app.works(engine)
    app.works(engine.stopping)
    measure = MeasureQueues(database, basics.telemetry)
    app.works(Loop("queues", measure, measure_queues.EVERY))
    app.works(Loop("log.days", LogDays(database), log_days.EVERY))
    app.claims(Loop("runtimes", renew, settings.runtime_presence / 6))
    app.claims(sweeper.loop)
    app.claims(Background("recovery.follow", recovery.follow_engine))
    app.claims(recovery.loop)
    app.claims(recovery.cleaning)
    if settings.engine_concurrency > 0 and not settings.scheduling_suppressed:
        app.claims(engine.claiming)
