"""kill -9 of gateway, autopilot and PostgreSQL in turn, under 500 requests a second.

Every request that was answered `accepted` or `queued` has exactly one run afterwards.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from pathlib import Path
from uuid import UUID

import pytest
from tests.crash.scheduler.stage import pass_time
from tests.e2e.conftest import living_world
from tests.e2e.harness import RUN_ONLY, Hook, World
from tests.e2e.http import github_headers, post

from reveille.heartbeat.v1 import agent_pb2

RATE = 500.0
SECONDS = 60.0
PATIENCE = 240.0
FREE = {
    "REVEILLE_IP_CEILING": "0",
    "REVEILLE_CREDENTIAL_DEBT": "0",
    "REVEILLE_RATE_PER_MINUTE": "0",
    "REVEILLE_HOURLY_BUDGET": "0",
    "REVEILLE_CONNECTIONS_PER_ADDRESS": "0",
    "REVEILLE_LEASE_RENEWAL": "1",
    "REVEILLE_LOG_LEVEL": "warning",
}


@pytest.fixture
def chance() -> random.Random:
    seed = int(os.environ.get("REVEILLE_TEST_SEED", str(time.time_ns() % 1_000_000)))
    sys.stdout.write(f"REVEILLE_TEST_SEED={seed}\n")
    return random.Random(seed)


class Senders:
    """Posts at a rate, whatever comes back, and remembers what was promised."""

    def __init__(self, world: World, hook: Hook) -> None:
        self.world = world
        self.hook = hook
        self.promised: dict[str, str] = {}
        self.sent = 0
        self.stopped = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        due = time.monotonic()
        while not self.stopped:
            due += 1 / RATE
            await pass_time(max(0.0, due - time.monotonic()))
            if len(self._tasks) >= 512:
                # The machine is slower than that: what waits is load enough.
                due = time.monotonic()
                continue
            task = asyncio.ensure_future(self._post(self.sent))
            self.sent += 1
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        await asyncio.gather(*self._tasks)

    async def _post(self, number: int) -> None:
        body = b'{"action":"opened","number":%d}' % number
        headers = github_headers(body, self.hook.secret or "", delivery=f"soak-{number}")
        address = self.world.stack.address("webhook-gateway", "http")
        try:
            answer = await post(address, self.hook.path, body, headers)
        except (OSError, EOFError, asyncio.IncompleteReadError, TimeoutError):
            return
        if answer.status in {200, 202}:
            assert answer.json["status"] in {"accepted", "queued", "duplicate"}
            self.promised[f"soak-{number}"] = answer.json["delivery_id"]


async def kill_postgres(world: World) -> None:
    """End a process of the server: it takes all the others with it, and recovers from its log."""
    pid = await world.database.fetchval(
        "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'"
    )
    os.kill(pid, signal.SIGKILL)


@pytest.mark.timeout(900)
async def test_every_promise_has_exactly_one_run(tmp_path: Path, chance: random.Random) -> None:
    async with living_world(tmp_path, environment={"webhook-gateway": FREE}, durable=True) as world:
        hook = await echoing_hook(world)
        senders = Senders(world, hook)
        sending = asyncio.ensure_future(senders.run())
        until = time.monotonic() + SECONDS
        victims = ["webhook-gateway", "autopilot", "postgres"]
        turn = 0
        while time.monotonic() < until:
            await pass_time(chance.uniform(2.0, 5.0))
            victim = victims[turn % len(victims)]
            turn += 1
            if victim == "postgres":
                await kill_postgres(world)
                world.database = await reconnected(world)
                continue
            await asyncio.to_thread(world.stack.kill, victim)
            await asyncio.to_thread(world.stack.start, victim)
        senders.stopped = True
        await sending
        await settled(world, hook)
        rows = await world.database.fetch(
            "SELECT delivery_id, count(*) AS runs FROM autopilot.runs WHERE trigger_id = $1 "
            "GROUP BY delivery_id",
            UUID(hook.trigger_id),
        )

    runs = {str(row["delivery_id"]): row["runs"] for row in rows}
    sys.stdout.write(
        f"sent {senders.sent}, promised {len(senders.promised)}, runs {len(runs)}, kills {turn}\n"
    )
    assert turn >= 6
    assert len(senders.promised) > 100
    assert len(set(senders.promised.values())) == len(senders.promised)
    assert [each for each in senders.promised.values() if runs.get(each) != 1] == []
    assert set(runs.values()) == {1}


async def echoing_hook(world: World) -> Hook:
    """Make a hook whose agent costs next to nothing."""
    workspace_id = await world.create_workspace()
    await world.create_triage_agent(workspace_id)
    agent = await world.client.agents.CreateAgent(
        agent_pb2.CreateAgentRequest(workspace_id=workspace_id, name="echo", adapter="echo")
    )
    rule = await world.create_autopilot(workspace_id, agent.agent.agent_id, RUN_ONLY)
    return await world.create_hook(rule)


async def reconnected(world: World):  # type: ignore[no-untyped-def]  # as connect_database gives it
    async with asyncio.timeout(60):
        while True:
            try:
                return await world.stack.connect_database()
            except Exception:  # noqa: BLE001 - it is recovering
                await pass_time(0.2)


async def settled(world: World, hook: Hook) -> None:
    """Wait until no delivery is on its way any more."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        waiting = await world.database.fetchval(
            "SELECT count(*) FROM webhook.deliveries WHERE endpoint_id = $1 AND state = 'queued'",
            UUID(hook.trigger_id),
        )
        if not waiting:
            return
        await pass_time(1.0)
    raise AssertionError(f"{waiting} deliveries are still queued")
