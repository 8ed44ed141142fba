"""The heartbeat service, wired as in production, over a real database and real processes."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.integration.heartbeat import executors
from tests.integration.heartbeat.desk import Desk
from tests.integration.heartbeat.kit import QUICK, Client, World
from tests.integration.heartbeat.replica import Replicas, replicas_of

from reveille_heartbeat import wiring
from reveille_heartbeat.adapters.process.identity import start_ticks, this_place
from reveille_heartbeat.adapters.spool import SpoolRoot
from reveille_heartbeat.config import Settings
from reveille_heartbeat.domain.places import Place
from reveille_heartbeat.usecases.runs.claim_runs import ClaimRuns
from reveille_heartbeat.usecases.runs.finishing import Finisher
from reveille_heartbeat.workers.engine import Engine
from reveille_runtime.app import App
from reveille_runtime.db import Database
from reveille_runtime.lifecycle import Component, Loop
from reveille_runtime.telemetry import Telemetry
from reveille_testkit.database import TestDatabase
from reveille_testkit.rpc import Keyring, SpanLog


class WatchedApp(App[Settings]):
    """The service's own composition, with its loops and its database within reach."""

    def __init__(self, settings: Settings, telemetry: Telemetry) -> None:
        super().__init__(settings, telemetry)
        self.loops: dict[str, Loop] = {}
        self.engine: Engine | None = None
        self.database: Database | None = None

    def claims(self, component: Component) -> None:
        if isinstance(component, Loop):
            self.loops[component.name] = component
        super().claims(component)

    def works(self, component: Component) -> None:
        if isinstance(component, Loop):
            self.loops[component.name] = component
        if isinstance(component, Engine):
            self.engine = component
        super().works(component)

    async def resource(self, manager: Any) -> Any:
        if isinstance(manager, Database):
            self.database = manager
        return await super().resource(manager)


class Service:
    """One running replica."""

    def __init__(self, app: WatchedApp, client: Client) -> None:
        self.app = app
        self.client = client

    async def tick(self, loop: str) -> None:
        """Have a loop do its step now, whole."""
        self.app.loops[loop].wake()
        await self.app.loops[loop].ticked()

    def move_clock(self, seconds: float) -> None:
        self.database.move_clock(seconds)

    @property
    def database(self) -> Database:
        assert self.app.database is not None
        return self.app.database

    @property
    def place(self) -> Place:
        """Where this replica's agents live."""
        return this_place(SpoolRoot(self.app.settings.spool_dir).spool_id)

    @property
    def engine(self) -> Engine:
        assert self.app.engine is not None
        return self.app.engine

    async def stop(self) -> None:
        await self.client.close()
        await self.app.stop()


def end_agents(spool: Path) -> None:
    """End what agents outlived the services of a test, as they are made to."""
    for file in spool.glob("*/identity"):
        pid, ticks, _ = file.read_text(encoding="ascii").split()
        if start_ticks(int(pid)) == int(ticks):
            # The wrapper leads the group of its agent.
            os.killpg(int(pid), signal.SIGKILL)


class Stage:
    """Starts replicas over one database and one spool."""

    def __init__(self, keys: Keyring, database: TestDatabase, folder: Path) -> None:
        self.keys = keys
        self.database = database
        self.folder = folder
        self.spans = SpanLog()
        self._running: list[Service] = []

    def settings(self, **more: Any) -> Settings:
        app = self.database.settings("heartbeat")
        given: dict[str, Any] = {
            "listen": "127.0.0.1:0",
            "database_url": app.url,
            "database_password_file": app.password_file,
            "trusted_keys_file": self.keys.trusted_file,
            "service_key_file": self.keys.private_key("heartbeat"),
            "spool_dir": self.folder / "spool",
            "api_address": "127.0.0.1:1",
            "scheduler_target": "127.0.0.1:1",
        }
        return Settings(**(given | QUICK | more))

    async def start(self, **more: Any) -> Service:
        telemetry = Telemetry.of("heartbeat", [self.spans])
        app = WatchedApp(self.settings(**more), telemetry)
        await app.start(wiring.build)
        service = Service(app, Client(app.server.address, self.keys))
        self._running.append(service)
        return service

    async def close(self) -> None:
        for service in self._running:
            await service.stop()
        end_agents(self.folder / "spool")


@pytest.fixture
def keys(tmp_path: Path) -> Keyring:
    return Keyring(tmp_path / "keys")


@pytest.fixture
async def stage(keys: Keyring, database: TestDatabase, tmp_path: Path) -> AsyncIterator[Stage]:
    stage = Stage(keys, database, tmp_path)
    try:
        yield stage
    finally:
        await stage.close()


@pytest.fixture
async def service(stage: Stage) -> Service:
    return await stage.start()


@pytest.fixture
async def world(service: Service, tmp_path: Path) -> World:
    world = World(service.client, tmp_path)
    await world.put()
    return world


@pytest.fixture
async def rows(database: TestDatabase) -> asyncpg.Connection[asyncpg.Record]:
    """Look behind the scenes."""
    return await database.connect("reveille_heartbeat_app")


@pytest.fixture
async def replicas(
    keys: Keyring, database: TestDatabase, tmp_path: Path
) -> AsyncIterator[Replicas]:
    async with replicas_of(keys, database, tmp_path) as made:
        yield made


@pytest.fixture
async def desk(database: TestDatabase) -> Desk:
    """Heartbeat's enqueueing without a service around it."""
    return await Desk.open(database)


@pytest.fixture
async def idle(stage: Stage) -> tuple[Service, World]:
    """A workspace whose queue nobody serves but the test."""
    service = await stage.start(
        engine_concurrency=0, recovery_interval=3600, sweep_interval=3600, lease_interval=0.5
    )
    world = World(service.client, stage.folder)
    await world.put()
    return service, world


@pytest.fixture
async def claimers(database: TestDatabase) -> list[ClaimRuns]:
    """Several executors, as they would be in several processes."""
    return [await executors.claimer(database, number) for number in range(4)]


@pytest.fixture
async def finisher(database: TestDatabase) -> AsyncIterator[Finisher]:
    """What writes the ends of runs."""
    made = await executors.finisher(database)
    yield made
    await made.close()
