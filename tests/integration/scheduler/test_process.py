"""The whole service, wired as it ships: it plans, hands over and settles, its own job first."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Protocol

import pytest
from tests.integration.scheduler.conftest import Owner, Replica, wish

from reveille_runtime.app import App
from reveille_runtime.telemetry import Telemetry
from reveille_scheduler.config import Settings
from reveille_scheduler.domain.occurrence import Execution
from reveille_scheduler.domain.rule import Cadence
from reveille_scheduler.domain.states import ExecutionState
from reveille_scheduler.wiring import build, own_address
from reveille_testkit.database import TestDatabase
from reveille_testkit.rpc import Keyring, RpcRig
from reveille_testkit.waiting import eventually


class Starting(Protocol):
    """Starts a replica of the service whose database clock is ahead by some seconds."""

    def __call__(self, ahead: float = 0.0) -> AbstractAsyncContextManager[App[Settings]]: ...


@pytest.fixture
def start(database: TestDatabase, rig: RpcRig) -> Starting:
    keys: Keyring = rig.keys

    @asynccontextmanager
    async def started(ahead: float = 0.0) -> AsyncIterator[App[Settings]]:
        database_settings = database.settings("scheduler")
        settings = Settings(
            listen="127.0.0.1:0",
            database_url=database_settings.url,
            database_password_file=database_settings.password_file,
            trusted_keys_file=keys.trusted_file,
            service_key_file=keys.private_key("scheduler"),
            handlers={"owner": rig.server.address},
            tick_interval=0.05,
            lease_renewal=1.0,
            drain_grace=2.0,
            test_clock_offset=ahead,
        )
        app: App[Settings] = App(settings, Telemetry.of("scheduler", []))
        try:
            await app.start(build)
            yield app
        finally:
            await app.stop()

    return started


async def ledger_of(replica: Replica, job_name: str) -> list[Execution]:
    return [each for each in await replica.ledger() if each.job_name == job_name]


def ended(rows: list[Execution]) -> bool:
    return bool(rows) and all(each.state is not ExecutionState.RUNNING for each in rows)


async def test_its_own_retention_is_planned_and_handed_over_like_any_job(
    start: Starting, replica: Replica
) -> None:
    async with start():
        scopes = await eventually(
            lambda: replica.scopes.page("scheduler_retention", None, 9), "its scope is stored"
        )
    assert [each.rule for each in scopes] == [Cadence(timedelta(hours=1))]

    async with start(4_500.0):
        (execution,) = await eventually(
            lambda: ledger_of(replica, "scheduler_retention"), "it ran", until=ended
        )

    assert execution.state is ExecutionState.SUCCESS
    assert execution.result["finished"] is True


async def test_a_job_of_another_service_runs_and_a_stop_gives_it_back(
    start: Starting, replica: Replica, owner: Owner
) -> None:
    owner.may_answer.clear()
    await replica.scopes.put([wish(rule=Cadence(timedelta(seconds=1)), since=None)])
    async with start(5.0):
        await owner.called.wait()
    stopped = await ledger_of(replica, "tidy")
    assert [(each.state, each.attempt) for each in stopped] == [(ExecutionState.FAILED, 0)]
    assert stopped[0].next_retry_at is not None
    assert stopped[0].next_retry_at <= await replica.database.now() + timedelta(seconds=6)

    owner.may_answer.set()
    async with start(5.0):
        await eventually(
            lambda: ledger_of(replica, "tidy"),
            "another replica executes it",
            until=lambda rows: rows[-1].state is ExecutionState.SUCCESS,
        )
    assert (await ledger_of(replica, "tidy"))[-1].attempt == 1


@pytest.mark.parametrize(
    ("listening", "reached"),
    [
        ("0.0.0.0:50051", "127.0.0.1:50051"),
        ("[::]:50051", "[::1]:50051"),
        ("127.0.0.1:7", "127.0.0.1:7"),
    ],
)
def test_it_reaches_itself_wherever_it_listens(listening: str, reached: str) -> None:
    assert own_address(listening) == reached
