"""Two hundred thousand odd requests: no fault, no forgery, no memory that grows with them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
import structlog
from tests.integration.webhook.conftest import Stage
from tests.integration.webhook.fuzz import SECRET, storm
from tests.integration.webhook.peer import FakeAutopilot

from reveille.autopilot.v1.dispatch_service_pb2_grpc import add_DispatchServiceServicer_to_server
from reveille_runtime import logs
from reveille_testkit.database import TestDatabase
from reveille_testkit.rpc import Keyring, RpcRig, serving
from reveille_webhook.providers.table import PROVIDERS

REQUESTS = 200_000
STRETCH = 10_000
# What the first stretches fill once: caches, pools, the bounded counters.
MIB_AFTER_THE_FIRST = 96.0


@pytest.fixture
def seed() -> int:
    chosen = int(os.environ.get("REVEILLE_TEST_SEED", str(time.time_ns() % 1_000_000)))
    sys.stdout.write(f"REVEILLE_TEST_SEED={chosen}\n")
    return chosen


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """A line for each of so many requests would cost more than the requests."""
    logs.configure("webhook-gateway", "ERROR")
    yield
    structlog.reset_defaults()


@pytest_asyncio.fixture
async def stage(database: TestDatabase, tmp_path: Path) -> AsyncIterator[Stage]:
    rig = RpcRig(Keyring(tmp_path / "keys"))
    peer = FakeAutopilot()
    rig.server.add(add_DispatchServiceServicer_to_server, peer)
    async with serving(rig):
        yield Stage(tmp_path, database, rig, peer)


def resident() -> float:
    """This process's memory in MiB: the gateway and its sender share it."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


@pytest.mark.timeout(1500)
async def test_two_hundred_thousand_odd_requests(stage: Stage, seed: int) -> None:
    async with stage.gateway() as gateway:
        hooks = [await gateway.hook(provider, secret=SECRET) for provider in PROVIDERS]
        hooks.append(await gateway.hook("generic", secret=None))
        rows = await stage.database.admin()
        sizes, faults = [], []
        for stretch in range(REQUESTS // STRETCH):
            began = time.monotonic()
            outcome = await storm(gateway, hooks, seed + stretch * 1000, STRETCH)
            faults += outcome.faults
            stage.peer.admitted.clear()
            # What rows weigh is the database's; the tests' own log of spans is ours.
            await rows.execute("TRUNCATE webhook.deliveries")
            gateway.spans.ended.clear()
            sizes.append(resident())
            rate = STRETCH / (time.monotonic() - began)
            sys.stdout.write(
                f"{(stretch + 1) * STRETCH} requests, {rate:.0f} requests/s, {sizes[-1]:.0f} MiB\n"
            )

    assert faults == []
    assert max(sizes) - sizes[1] <= MIB_AFTER_THE_FIRST, sizes
