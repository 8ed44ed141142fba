"""Fifty kills and suspensions of engines at work, with agents that are real processes.

Whatever happens, no agent runs twice without a recorded retry, none outlives its run, nothing
begins in a slot that is not free, no run outlasts its deadline, and every wake has an end that is
explained. The seed is printed; REVEILLE_TEST_SEED plays it again.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from tests.integration.heartbeat.conftest import Stage
from tests.integration.heartbeat.kit import World
from tests.integration.heartbeat.ledger import Ledger
from tests.integration.heartbeat.replica import Replica, Replicas, replicas_of

from reveille.heartbeat.v1 import agent_pb2
from reveille_testkit.database import TestDatabase
from reveille_testkit.rpc import Keyring

EVENTS = 50
ENGINES = 3
# Seconds in which a sweep on a machine under load comes round.
SWEEP = timedelta(seconds=4)


@pytest.fixture
def chance() -> random.Random:
    seed = int(os.environ.get("REVEILLE_TEST_SEED", str(time.time_ns() % 1_000_000)))
    sys.stdout.write(f"REVEILLE_TEST_SEED={seed}\n")
    return random.Random(seed)


@pytest.fixture
def keys(tmp_path: Path) -> Keyring:
    return Keyring(tmp_path / "keys")


@pytest_asyncio.fixture
async def stage(keys: Keyring, database: TestDatabase, tmp_path: Path) -> AsyncIterator[Stage]:
    stage = Stage(keys, database, tmp_path)
    try:
        yield stage
    finally:
        await stage.close()


@pytest_asyncio.fixture
async def replicas(
    keys: Keyring, database: TestDatabase, tmp_path: Path
) -> AsyncIterator[Replicas]:
    async with replicas_of(keys, database, tmp_path) as made:
        yield made


async def pass_time(seconds: float) -> None:
    """Let real time pass: a soak is made of it."""
    await asyncio.wait({asyncio.get_running_loop().create_future()}, timeout=seconds)


async def load(
    world: World, agents: list[agent_pb2.Agent], chance: random.Random, over: asyncio.Event
) -> int:
    """Wake agents, on issues and without, by occurrence and without, and cancel some."""
    issues = {agent.agent_id: (await world.issue(agent)).issue.issue_id for agent in agents}
    wakes = len(issues)
    while not over.is_set():
        agent = chance.choice(agents)
        key = f"manual:{wakes}" if chance.random() < 0.7 else ""
        about = {"issue_id": issues[agent.agent_id]} if chance.random() < 0.4 else {}
        await world.wake(agent, key, **about)
        wakes += 1
        if key and chance.random() < 0.1:
            await pass_time(chance.uniform(0, 1))
            await world.cancel(key)
        await pass_time(chance.uniform(0.05, 0.35))
    return wakes


async def torment(replicas: Replicas, engines: list[Replica], chance: random.Random) -> None:
    """Kill engines, and suspend them for up to more than a lease."""
    for _ in range(EVENTS):
        number = chance.randrange(len(engines))
        if chance.random() < 0.5:
            engines[number].send(signal.SIGKILL)
            await engines[number].ended()
            await pass_time(chance.uniform(0, 0.5))
            engines[number] = await replicas.start()
        else:
            engines[number].send(signal.SIGSTOP)
            await pass_time(chance.uniform(0.2, 5.0))
            engines[number].send(signal.SIGCONT)
        await pass_time(chance.uniform(0.1, 1.2))


@pytest.mark.timeout(420)
async def test_fifty_kills_and_suspensions_break_no_rule(
    replicas: Replicas,
    stage: Stage,
    database: TestDatabase,
    chance: random.Random,
    tmp_path: Path,
) -> None:
    # It takes calls and sweeps, and is the only one that is left alone.
    desk = await stage.start(
        engine_concurrency=0, recovery_interval=3600, spool_dir=tmp_path / "elsewhere"
    )
    world = World(desk.client, tmp_path)
    await world.put()
    ledger = Ledger(tmp_path / "ledger")
    agents = [
        *[await ledger.agent(world, f"quick-{n}", "work", 0.1) for n in range(4)],
        *[await ledger.agent(world, f"slow-{n}", "work", 1.5) for n in range(4)],
        *[await ledger.agent(world, f"leaver-{n}", "leaver", 0.3) for n in range(2)],
        await ledger.agent(world, "failing", "failing"),
        await ledger.agent(world, "stubborn", "stubborn", run_timeout={"seconds": 2}),
    ]
    engines = [await replicas.start() for _ in range(ENGINES)]
    over = asyncio.Event()
    waking = asyncio.ensure_future(load(world, agents, chance, over))
    try:
        await torment(replicas, engines, chance)
    finally:
        over.set()
        wakes = await waking

    rows = await database.connect("reveille_heartbeat_app")
    runs = await ledger.judge(rows, sweep=SWEEP, patience=150)
    for engine in engines:
        engine.send(signal.SIGTERM)
        assert await engine.ended() == 0
    states = Counter(f"{run['state']} {run['reason']}".strip() for run in runs)
    taken = await rows.fetchval("SELECT count(*) FROM run_events WHERE type = 'run.taken_over'")
    repeats = sum(run["attempt"] > 1 for run in runs)
    sys.stdout.write(
        f"{wakes} wakes, {len(runs)} runs, {taken} taken over, {repeats} repeated; {dict(states)}\n"
    )
    assert taken > 0
