"""Other queues on PostgreSQL, with jobs that do nothing: enqueued in bulk, and all of them run.

They are the optional dependency group `bench-peers`; a peer that is not installed has no rate. None
of them keeps what a run of ours keeps, so their rates are an orientation and no floor. Each runs in
a process of its own, as `python peers.py NAME URL JOBS`, and prints its jobs a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

PEERS = ("procrastinate", "pgqueuer", "dbos")
_PATIENCE = 60.0


def installed(peer: str) -> bool:
    """Tell whether a peer can be measured here."""
    return importlib.util.find_spec(peer) is not None


def rate(peer: str, url: str, password: str, jobs: int) -> float | None:
    """Measure a peer on a database of its own; None when it fails there."""
    scheme, _, rest = url.partition("://")
    user, _, place = rest.partition("@")
    done = subprocess.run(
        [sys.executable, __file__, peer, f"{scheme}://{user}:{quote(password)}@{place}", str(jobs)],
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        timeout=_PATIENCE * 2,
        check=False,
    )
    last = done.stdout.decode().strip().rpartition("\n")[2]
    if done.returncode != 0 or not last.startswith("rate "):
        print(f"{peer}: {done.stderr.decode()[-500:]}", flush=True)
        return None
    return float(last.removeprefix("rate "))


async def procrastinate(url: str, jobs: int) -> float:
    """A worker of 100 jobs at once."""
    module: Any = importlib.import_module("procrastinate")
    app = module.App(connector=module.PsycopgConnector(conninfo=url, max_size=12))

    async def nothing(number: int) -> None:
        """Do nothing."""

    noop = app.task(nothing, name="noop")

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        began = time.perf_counter()
        for first in range(0, jobs, 200):
            await noop.batch_defer_async(*({"number": first + at} for at in range(200)))
        await app.run_worker_async(
            wait=False, concurrency=100, install_signal_handlers=False, delete_jobs="never"
        )
        spent = time.perf_counter() - began
        rows = await app.job_manager.list_jobs_async(status="succeeded")
        assert len(list(rows)) == jobs
    return jobs / spent


async def pgqueuer(url: str, jobs: int) -> float:
    """A consumer of batches of 100."""
    asyncpg: Any = importlib.import_module("asyncpg")
    module: Any = importlib.import_module("pgqueuer")
    database: Any = importlib.import_module("pgqueuer.db")
    queries: Any = importlib.import_module("pgqueuer.queries")
    connection = await asyncpg.connect(url)
    driver = database.AsyncpgDriver(connection)
    calls = queries.Queries(driver)
    await calls.install()
    consumer = module.PgQueuer(driver)
    seen, all_done = 0, asyncio.Event()

    async def nothing(_job: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == jobs:
            all_done.set()

    consumer.entrypoint("noop")(nothing)

    began = time.perf_counter()
    for _ in range(0, jobs, 200):
        await calls.enqueue(["noop"] * 200, [None] * 200, [0] * 200)
    running = asyncio.ensure_future(consumer.run(batch_size=100))
    async with asyncio.timeout(_PATIENCE):
        await all_done.wait()
    spent = time.perf_counter() - began
    consumer.shutdown.set()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(10):
            await running
    return jobs / spent


def dbos(url: str, jobs: int) -> float:
    """A queue of workflows without steps."""
    module: Any = importlib.import_module("dbos")
    instance = module.DBOS(
        config={"name": "bench", "system_database_url": url, "run_admin_server": False}
    )

    def nothing() -> None:
        """Do nothing."""

    noop = module.DBOS.workflow()(nothing)

    module.DBOS.launch()
    queue = module.DBOS.register_queue("bench", polling_interval_sec=0.05)
    began = time.perf_counter()
    handles = [queue.enqueue(noop) for _ in range(jobs)]
    for handle in handles:
        handle.get_result()
    spent = time.perf_counter() - began
    instance.destroy()
    return jobs / spent


def main(peer: str, url: str, jobs: int) -> None:
    """Measure one and say it."""
    measure: dict[str, Callable[[], float]] = {
        "procrastinate": lambda: asyncio.run(procrastinate(url, jobs)),
        "pgqueuer": lambda: asyncio.run(pgqueuer(url, jobs)),
        "dbos": lambda: dbos(url, jobs),
    }
    print(f"rate {measure[peer]()}", flush=True)


if __name__ == "__main__":
    # The folder of this file would hide the peers' own names.
    sys.path.remove(str(Path(__file__).parent))
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
