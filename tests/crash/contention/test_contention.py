"""Eight engines, two thousand agents and twenty thousand wishes over shared issues.

Callers hold, cancel and reassign at random meanwhile. No cap is exceeded at any instant, no issue
has two runs, no better run waits for a worse one, every wish is settled and explained, and no
caller ever sees a deadlock. The seed is printed; REVEILLE_TEST_SEED plays it again.
"""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path

import pytest
from tests.integration.heartbeat.contention import JOURNAL, Ledger, Load, Size
from tests.integration.heartbeat.replica import replicas_of

from reveille_testkit.database import TestDatabase
from reveille_testkit.rpc import Keyring

ENGINES = 8
SIZE = Size(workspaces=4, agents=2000, issues=600, wakeups=20_000, callers=16)


@pytest.mark.timeout(900)
async def test_eight_engines_keep_every_promise(database: TestDatabase, tmp_path: Path) -> None:
    seed = int(os.environ.get("REVEILLE_TEST_SEED", str(time.time_ns() % 1_000_000)))
    sys.stdout.write(f"REVEILLE_TEST_SEED={seed}\n")
    await database.ddl("heartbeat", JOURNAL)
    async with replicas_of(Keyring(tmp_path / "keys"), database, tmp_path) as replicas:
        clients = []
        for _ in range(ENGINES):
            engine = await replicas.start(lease_duration=60.0, database_pool_max=6)
            # One after the other: eight starts at once are slow on a small machine.
            clients.append(await replicas.client(engine, timeout=120))
        load = Load(clients, random.Random(seed), SIZE)
        await load.prepare()
        began = time.monotonic()
        await load.run()
        ledger = Ledger(await database.connect("admin"))
        await ledger.at_rest(300)
        took = time.monotonic() - began
        ends = await ledger.check(SIZE.wakeups)
    sys.stdout.write(f"{SIZE.wakeups / took:.0f} wishes/s; ends {ends}; refused {load.refused}\n")
