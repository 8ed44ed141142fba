"""Stacks of real processes: `test_<stack>_*.py` share one, and so run in one worker of xdist."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from reveille_testkit.otlp import OtlpReceiver
from reveille_testkit.stack import TestStack, running_stack

from .crashing import QUICK, Crasher
from .harness import Client, World

CALM = {
    # Its clock is a minute ahead: the first minute of a schedule that is made now has come
    # already, so no test waits for it.
    "scheduler": {"REVEILLE_TEST_CLOCK_OFFSET": "60"},
    # However busy the machine is, a sender hears what autopilot said.
    "webhook-gateway": {"REVEILLE_ADMISSION_BUDGET": "9"},
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all of this folder's tests in one event loop, which the stacks' clients live in."""
    for item in items:
        if item.path.parent == Path(__file__).parent and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@asynccontextmanager
async def living_world(
    folder: Path,
    *,
    environment: Mapping[str, Mapping[str, str]] | None = None,
    otlp_endpoint: str | None = None,
    durable: bool = False,
) -> AsyncIterator[World]:
    """Start a stack, and give it with a client and a database connection."""
    async with AsyncExitStack() as opened:
        manager = running_stack(
            folder / "data",
            environment=environment,
            otlp_endpoint=otlp_endpoint,
            durable=durable,
        )
        # Starting and stopping block; this loop has a receiver to serve meanwhile.
        stack: TestStack = await asyncio.to_thread(manager.__enter__)
        opened.push_async_callback(asyncio.to_thread, manager.__exit__, None, None, None)
        client = Client(stack, stack.operator_token())
        opened.push_async_callback(client.close)
        database = await stack.connect_database()
        opened.push_async_callback(database.close, timeout=5)
        yield World(stack, client, database, folder)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def otlp() -> AsyncIterator[OtlpReceiver]:
    """Where every process of the shared stack sends its spans."""
    async with OtlpReceiver() as receiver:
        yield receiver


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def world(
    otlp: OtlpReceiver, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[World]:
    """The shared stack: tests make their own workspaces in it and break nothing."""
    folder = tmp_path_factory.mktemp("shared")
    async with living_world(folder, environment=CALM, otlp_endpoint=otlp.endpoint) as made:
        yield made


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def mortal(
    otlp: OtlpReceiver, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Crasher]:
    """A stack whose services are killed and restarted."""
    folder = tmp_path_factory.mktemp("mortal")
    async with living_world(folder, environment=QUICK, otlp_endpoint=otlp.endpoint) as made:
        yield Crasher(made)


@pytest_asyncio.fixture(loop_scope="session")
async def crash(mortal: Crasher) -> AsyncIterator[Crasher]:
    """The same, alive before and after each test."""
    yield mortal
    await mortal.mend()
