"""What the scheduler does in a second, against the database's own limit in the same run.

10,000 crons of one minute are claimed by a whole scheduler process, handed over gRPC to a handler
process that commits a row each, and settled; again with stale statistics, and with a snapshot held
throughout. Beside them: bare batched SQL of the same writes, an idle tick over 100,000 scopes, and
claims beside a ledger of ten thousand and of a million rows.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import asyncpg

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.handler import QUERIES as EFFECTS
from bench.support import (
    ROOT,
    Report,
    durable_cluster,
    free_port,
    fresh_database,
    percentile,
    process,
)

from reveille_runtime.ids import new_id
from reveille_runtime.queries import parse_queries
from reveille_scheduler.domain.job import Job
from reveille_scheduler.usecases.due_jobs import DueJobs
from reveille_scheduler.usecases.jobs import Jobs
from reveille_scheduler.usecases.plan_due import PlanDue
from reveille_testkit.cluster import TestCluster
from reveille_testkit.database import TestDatabase
from reveille_testkit.rpc import Keyring

CRONS = 10_000
IDLE_SCOPES = 100_000
SMALL, LARGE = 10_000, 1_000_000
CLAIMED = 4_000
BATCH = 200
RUNS = 3
# Of claims beside two ledgers: so short that there can be more.
ROUNDS = 7
# From the start of the processes to the minute at which all is due.
LEAD_SECONDS = 6.0
FLOOR_RATE, FLOOR_SHARE, FLOOR_IDLE_MS, FLAT = 1_000.0, 0.8, 10.0, 0.2
_FILE = Path(__file__).with_name("scheduler.sql")
Q = parse_queries(_FILE.read_text(encoding="utf-8"), _FILE.name)
JOB = Job(
    name="bench",
    handler="bench",
    catch_up_window=timedelta(days=1),
    max_lateness=None,
    run_timeout=timedelta(minutes=2),
    stale_timeout=timedelta(minutes=5),
    heartbeat_interval=timedelta(seconds=30),
    max_attempts=3,
    retry_backoff=(),
    retry_deadline=timedelta(hours=1),
)
SETTINGS = ("plain", "stale statistics", "held snapshot")


@dataclass(frozen=True)
class Round:
    """What one minute's crons did."""

    rate: float
    lateness: list[float]


async def due_minute(database: TestDatabase, setting: str, keys: Keyring, folder: Path) -> Round:
    """Let a scheduler process meet 10,000 crons of one minute; the ledger tells how it went."""
    admin = await database.admin()
    await admin.execute(EFFECTS["create_effects"].sql)
    opened = await database.open("scheduler")
    await Jobs(opened, {"bench"}, timedelta(seconds=10)).register(JOB)
    async with setting_of(database, admin, setting):
        real = datetime.now(UTC)
        due = real.replace(second=0, microsecond=0) + timedelta(minutes=1)
        cron = f"{due.minute} {due.hour} * * *"
        await admin.execute(Q["add_scopes"].sql, "bench", CRONS, cron, due)
        if setting != "stale statistics":
            await admin.execute("VACUUM ANALYZE scheduler.scopes, scheduler.executions")
        ahead = (due - datetime.now(UTC)).total_seconds() - LEAD_SECONDS
        handler, scheduler = free_port(), free_port()
        with (
            process(
                [str(ROOT / "bench" / "handler.py"), f"127.0.0.1:{handler}", admin_url(database)],
                handler_environment(database),
                folder / "handler.log",
            ),
            process(
                ["-m", "reveille_scheduler"],
                scheduler_environment(database, keys, handler, scheduler, ahead),
                folder / "scheduler.log",
            ),
        ):
            await ended(admin, folder)
        rows = await admin.fetch(Q["outcome"].sql, "bench")
        effects = await admin.fetchrow(Q["repeated_effects"].sql)
    assert effects is not None
    assert len(rows) == CRONS, f"{len(rows)} occurrences"
    assert {(row["state"], row["attempt"]) for row in rows} == {("success", 1)}
    assert len({row["scope_id"] for row in rows}) == CRONS
    assert (effects["effects"], effects["repeated"]) == (CRONS, 0), dict(effects)
    lateness = [row["lateness"] for row in rows]
    assert min(lateness) >= 0
    return Round(CRONS / max(row["settled_after"] for row in rows), lateness)


@asynccontextmanager
async def setting_of(
    database: TestDatabase, admin: asyncpg.Connection[asyncpg.Record], setting: str
) -> AsyncIterator[None]:
    """Put the database into one of the three settings."""
    holder = await database.admin()
    if setting == "stale statistics":
        for table in ("scopes", "executions"):
            await admin.execute(f"ALTER TABLE scheduler.{table} SET (autovacuum_enabled = false)")
            await admin.execute(f"ANALYZE scheduler.{table}")
    held = holder.transaction(isolation="repeatable_read")
    await held.start()
    if setting == "held snapshot":
        await holder.fetchval("SELECT count(*) FROM scheduler.scopes")
    try:
        yield
    finally:
        await held.rollback()


async def ended(admin: asyncpg.Connection[asyncpg.Record], folder: Path) -> None:
    """Wait until all occurrences have ended; a minute is far beyond the floor."""
    limit = time.monotonic() + 60
    while await admin.fetchval(Q["ended"].sql, "bench") < CRONS:
        if time.monotonic() > limit:
            raise AssertionError((folder / "scheduler.log").read_text()[-4000:])
        await asyncio.sleep(0.5)


def admin_url(database: TestDatabase) -> str:
    return database.url(database.cluster.admin)


def handler_environment(database: TestDatabase) -> dict[str, str]:
    password = database.cluster.password_file("admin").read_text(encoding="utf-8").strip()
    return {"PGPASSWORD": password}


def scheduler_environment(
    database: TestDatabase, keys: Keyring, handler: int, listen: int, ahead: float
) -> dict[str, str]:
    settings = database.settings("scheduler")
    return {
        "REVEILLE_LISTEN": f"127.0.0.1:{listen}",
        "REVEILLE_DATABASE_URL": settings.url,
        "REVEILLE_DATABASE_PASSWORD_FILE": str(settings.password_file),
        "REVEILLE_TRUSTED_KEYS_FILE": str(keys.trusted_file),
        "REVEILLE_SERVICE_KEY_FILE": str(keys.private_key("scheduler")),
        "REVEILLE_HANDLERS": json.dumps({"bench": f"127.0.0.1:{handler}"}),
        "REVEILLE_TEST_CLOCK_OFFSET": str(ahead),
    }


async def bare_limit(database: TestDatabase) -> float:
    """The same writes as bare batched SQL: claim, effect, settle; a transaction each."""
    admin = await database.admin()
    await admin.execute(EFFECTS["create_effects"].sql)
    opened = await database.open("scheduler")
    await Jobs(opened, {"bench"}, timedelta(seconds=10)).register(JOB)
    due = datetime(2030, 1, 1, 12, tzinfo=UTC)
    await admin.execute(Q["add_scopes"].sql, "bench", CRONS, "0 12 * * *", due)
    await admin.execute("VACUUM ANALYZE scheduler.scopes, scheduler.executions")
    names = [f"scope-{number}" for number in range(1, CRONS + 1)]
    batches = [names[first : first + BATCH] for first in range(0, CRONS, BATCH)]
    connections = [await database.admin() for _ in range(4)]

    async def work(connection: asyncpg.Connection[asyncpg.Record]) -> None:
        while batches:
            batch = batches.pop()
            ids = [new_id() for _ in batch]
            async with connection.transaction():
                await connection.execute(
                    Q["bare_claim"].sql, ids, batch, [uuid4() for _ in batch], due
                )
                await connection.execute(Q["bare_move"].sql, batch, due + timedelta(days=1))
            await connection.execute(EFFECTS["insert_effects"].sql, batch, [due] * len(batch))
            await connection.execute(Q["bare_settle"].sql, ids, due)

    began = time.perf_counter()
    await asyncio.gather(*(work(connection) for connection in connections))
    return CRONS / (time.perf_counter() - began)


async def idle_tick(database: TestDatabase) -> float:
    """Milliseconds that an idle tick over 100,000 scopes takes, its round trip included."""
    admin = await database.admin()
    opened = await database.open("scheduler")
    await Jobs(opened, {"bench"}, timedelta(seconds=10)).register(JOB)
    far = datetime(2100, 1, 1, tzinfo=UTC)
    await admin.execute(Q["add_scopes"].sql, "bench", IDLE_SCOPES, "0 12 * * *", far)
    await admin.execute("ANALYZE scheduler.scopes")
    tick = DueJobs(opened)
    spent = []
    for _ in range(100):
        began = time.perf_counter()
        assert await tick() == []
        spent.append((time.perf_counter() - began) * 1000)
    return percentile(spent, 0.5)


class Claims:
    """Claims of 4,000 due scopes beside a ledger of a given size, again and again."""

    def __init__(self, database: TestDatabase, rows: int) -> None:
        self._database = database
        self._rows = rows
        self._due = datetime(2030, 1, 1, 12, tzinfo=UTC)

    async def prepare(self) -> None:
        """Fill the ledger."""
        self._admin = await self._database.admin()
        self._opened = await self._database.open("scheduler")
        await Jobs(self._opened, {"bench"}, timedelta(seconds=10)).register(JOB)
        await self._admin.execute(Q["add_scopes"].sql, "bench", CLAIMED, "0 12 * * *", self._due)
        await self._admin.execute(Q["add_history"].sql, "bench", self._rows, CLAIMED)
        self._opened.move_clock((self._due - await self._opened.now()).total_seconds() + 1.0)

    async def take_back(self) -> None:
        """Forget what was claimed, and clean up after it: every round finds the same."""
        await self._admin.execute(Q["take_back"].sql, "bench")
        await self._admin.execute(Q["due_again"].sql, "bench", self._due)
        await self._admin.execute("VACUUM ANALYZE scheduler.scopes, scheduler.executions")
        self._plan = PlanDue(self._opened, "bench")

    async def checkpoint(self) -> None:
        """Write all that is dirty, of every database of the server."""
        await self._admin.execute("CHECKPOINT")

    async def batch(self) -> float:
        """Claim a batch; gives the seconds that it took."""
        began = time.perf_counter()
        claimed = len((await self._plan("bench", BATCH)).claims)
        spent = time.perf_counter() - began
        assert claimed == BATCH, claimed
        return spent


async def claim_all(claims: Mapping[int, Claims]) -> dict[int, float]:
    """Claim all that is due beside each ledger, a batch of each in turn; gives claims a second.

    Whatever else the machine does in these seconds, it does to each of them. Each round begins with
    a checkpoint, which is the dearest state: a page is written whole at its first change after it,
    and beside a long ledger each claim is the first to change its pages.
    """
    spent: dict[int, list[float]] = {size: [] for size in claims}
    for each in claims.values():
        await each.take_back()
    await next(iter(claims.values())).checkpoint()
    for number in range(CLAIMED // BATCH):
        for size, each in sorted(claims.items(), reverse=number % 2 == 1):
            spent[size].append(await each.batch())
    return {size: BATCH / statistics.median(seconds) for size, seconds in spent.items()}


async def measure(cluster: TestCluster, report: Report, folder: Path) -> None:
    keys = Keyring(folder / "keys")
    rates: dict[str, list[float]] = {setting: [] for setting in SETTINGS}
    late: dict[str, list[float]] = {setting: [] for setting in SETTINGS}
    limits: list[float] = []
    for _ in range(RUNS):
        async with fresh_database(cluster) as database:
            limits.append(await bare_limit(database))
        for setting in SETTINGS:
            async with fresh_database(cluster) as database:
                found = await due_minute(database, setting, keys, folder)
            rates[setting].append(found.rate)
            late[setting].append(percentile(found.lateness, 0.99))
    async with fresh_database(cluster) as database:
        idle = [await idle_tick(database)]
    async with fresh_database(cluster) as small, fresh_database(cluster) as large:
        claims = {SMALL: Claims(small, SMALL), LARGE: Claims(large, LARGE)}
        for each in claims.values():
            await each.prepare()
        rounds = [await claim_all(claims) for _ in range(ROUNDS)]
        flat = {size: [each[size] for each in rounds] for size in claims}
    tell(report, rates, late, limits, idle, flat)


def tell(
    report: Report,
    rates: dict[str, list[float]],
    late: dict[str, list[float]],
    limits: list[float],
    idle: list[float],
    flat: dict[int, list[float]],
) -> None:
    """Print figures and ratios, and judge the floors."""
    limit = report.figure("bare batched SQL", limits, "occurrences/s")
    plain = report.figure("plain", rates["plain"], "occurrences/s")
    report.figure("plain p99 lateness", late["plain"], "s")
    report.ratio("plain / bare SQL", plain / limit)
    report.require(plain >= FLOOR_RATE, f"{FLOOR_RATE:.0f} occurrences/s from due to settled")
    for setting in SETTINGS[1:]:
        rate = report.figure(setting, rates[setting], "occurrences/s")
        report.figure(f"{setting} p99 lateness", late[setting], "s")
        report.ratio(f"{setting} / plain", rate / plain)
        report.require(rate >= FLOOR_SHARE * plain, f"{setting}: {FLOOR_SHARE:.0%} of plain")
    tick = report.figure("idle tick", idle, "ms")
    report.require(tick <= FLOOR_IDLE_MS, f"idle tick in {FLOOR_IDLE_MS:.0f} ms")
    small = report.figure(f"claims beside {SMALL} rows", flat[SMALL], "claims/s")
    large = report.figure(f"claims beside {LARGE} rows", flat[LARGE], "claims/s")
    report.ratio("claims, large / small ledger", large / small)
    report.require(large >= (1 - FLAT) * small, "claims flat to a million rows")


def main() -> int:
    """Run the bench."""
    report = Report("scheduler")
    with durable_cluster() as cluster, tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(cluster, report, Path(folder)))
    return report.end(
        crons=CRONS,
        batch=BATCH,
        runs=RUNS,
        handler="one row a plan, committed a call",
        fsync=True,
        synchronous_commit=True,
    )


if __name__ == "__main__":
    raise SystemExit(main())
