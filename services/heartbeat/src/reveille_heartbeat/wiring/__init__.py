"""The one place that connects the heartbeat service's parts."""

from __future__ import annotations

from contextlib import AsyncExitStack

from reveille_heartbeat.adapters.process.identity import this_executor
from reveille_heartbeat.adapters.registry import Registry
from reveille_heartbeat.adapters.spool import SpoolRoot
from reveille_heartbeat.config import Settings
from reveille_heartbeat.crash_points import CRASH_POINTS
from reveille_heartbeat.usecases.issues.consequences import Consequences
from reveille_heartbeat.usecases.runs.run_log import RunLog
from reveille_heartbeat.usecases.runs.run_spans import RunSpans
from reveille_heartbeat.usecases.runs.table_log import TableLog
from reveille_heartbeat.usecases.wakeups.deciding import Decider
from reveille_heartbeat.usecases.wakeups.enqueuing import Enqueuing
from reveille_heartbeat.usecases.wakeups.promote_deferred import Promotion
from reveille_heartbeat.wiring.basics import Basics
from reveille_heartbeat.wiring.executing import execute
from reveille_heartbeat.wiring.scheduling import schedule
from reveille_heartbeat.wiring.serving import serve
from reveille_runtime import feed
from reveille_runtime.app import App
from reveille_runtime.crash import check_environment
from reveille_runtime.db import Database
from reveille_runtime.hints import HintBus, Notifier
from reveille_runtime.ids import new_id
from reveille_runtime.schemas import wait_for_schema


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
    notifier = Notifier(database, enabled=settings.hints)
    decider = Decider(app.telemetry, new_id)
    closing.push_async_callback(notifier.close)
    bus = HintBus(settings.listening, database, enabled=settings.hints)
    log_store = TableLog(database)
    enqueuing = Enqueuing(decider, suppressed=settings.scheduling_suppressed)
    promotion = Promotion(decider)
    basics = Basics(
        settings=settings,
        database=database,
        telemetry=app.telemetry,
        notifier=notifier,
        spans=RunSpans(app.telemetry),
        decider=decider,
        enqueuing=enqueuing,
        promotion=promotion,
        consequences=Consequences(enqueuing, promotion, new_id),
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
