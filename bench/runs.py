"""How many runs a heartbeat process brings from wish to outcome in a second, with all it records.

A whole heartbeat process is sent wishes over gRPC while it claims, executes (`echo`) and settles
them; a run leaves a wakeup, its payload and key, the run, two entries of history, output, and four
events of the feed. The same with stale statistics, and with a snapshot held throughout. Beside it:
the same statements as bare batched SQL, processes beside bare ones, and other queues' jobs that do
nothing.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import peers, process_part
from bench.bare_runs import BATCH, bare_limit
from bench.support import Report, durable_cluster, free_port, fresh_database, process

from reveille.heartbeat.v1 import agent_pb2, wakeup_pb2
from reveille.heartbeat.v1 import workspace_replica_service_pb2 as workspace_pb
from reveille.heartbeat.v1.agent_pb2_grpc import AgentServiceStub
from reveille.heartbeat.v1.wakeup_pb2_grpc import WakeupServiceStub
from reveille.heartbeat.v1.workspace_replica_service_pb2_grpc import WorkspaceReplicaServiceStub
from reveille_runtime import logs
from reveille_runtime.access import Role
from reveille_runtime.client import Channels
from reveille_runtime.errors import Unavailable
from reveille_runtime.queries import parse_queries
from reveille_runtime.rpc_errors import as_domain_errors
from reveille_runtime.telemetry import Telemetry
from reveille_testkit.cluster import TestCluster
from reveille_testkit.database import TestDatabase
from reveille_testkit.rpc import Keyring
from reveille_testkit.waiting import eventually

RUNS_EACH = 6_000
AGENTS = 40
SLOTS = 50
CONCURRENCY = 600
SENDERS = 3
PEER_JOBS = 1_000
ROUNDS = 3
FLOOR_RATE, FLOOR_PROCESS = 1_200.0, 0.35
_FILE = Path(__file__).with_name("runs.sql")
Q = parse_queries(_FILE.read_text(encoding="utf-8"), _FILE.name)
SETTINGS = ("plain", "stale statistics", "held snapshot")
HOT = ("runs", "wakeup_requests", "wakeup_payloads", "run_events", "feed", "occurrences")


class Caller:
    """Autopilot and a member, as heartbeat hears them."""

    def __init__(self, address: str, keys: Keyring) -> None:
        self._address = address
        self._keys = keys
        self._channels: list[Channels] = []
        self.workspace_id = uuid4()
        service = self._channel(keys.service("autopilot"))
        self.wakeups: Any = WakeupServiceStub(service)
        self._workspaces: Any = WorkspaceReplicaServiceStub(service)

    def _channel(self, token: str) -> Any:
        channels = Channels(
            {"server": self._address}, telemetry=Telemetry.off(), token=lambda: token
        )
        self._channels.append(channels)
        return channels.get("server")

    async def prepare(self) -> list[str]:
        """Make a workspace and its agents."""
        await eventually(self._put, "the service serves", timeout=60)
        member = self._keys.user("bench", {self.workspace_id: Role.MEMBER})
        agents: Any = AgentServiceStub(self._channel(member))
        made = [
            await agents.CreateAgent(
                agent_pb2.CreateAgentRequest(
                    workspace_id=str(self.workspace_id),
                    name=f"agent-{number:03}",
                    adapter="echo",
                    max_concurrent_runs=SLOTS,
                )
            )
            for number in range(AGENTS)
        ]
        return [each.agent.agent_id for each in made]

    async def _put(self) -> bool:
        """Tell of the workspace; False while the service is starting."""
        request = workspace_pb.PutWorkspaceRequest(
            workspace_id=str(self.workspace_id),
            issue_prefix="BEN",
            default_responsible_user_id="bench",
            revision=1,
        )
        try:
            with as_domain_errors():
                await self._workspaces.PutWorkspace(request, wait_for_ready=True, timeout=60)
        except Unavailable:
            return False
        return True

    def wishes(self, agents: list[str], prefix: str, count: int) -> list[Any]:
        """Make requests of a batch of wishes each."""
        wakes = [
            wakeup_pb2.Wakeup(
                workspace_id=str(self.workspace_id),
                agent_id=agents[number % len(agents)],
                source=wakeup_pb2.WAKEUP_SOURCE_AUTOMATION,
                reason="autopilot_run",
                title="Look at it",
                prompt="Please look.",
                payload=wakeup_pb2.Payload(
                    content_type="application/json", body=b'{"action": "opened"}'
                ),
                origin=wakeup_pb2.Origin(
                    occurrence_key=f"{prefix}:{number}", accountable_user_id="bench"
                ),
            )
            for number in range(count)
        ]
        return [
            wakeup_pb2.EnqueueWakeupsRequest(wakeups=wakes[first : first + BATCH])
            for first in range(0, count, BATCH)
        ]

    async def send(self, requests: list[Any]) -> None:
        """Send them, a few at a time."""

        async def sender() -> None:
            while requests:
                await self.wakeups.EnqueueWakeups(requests.pop(), timeout=60)

        await asyncio.gather(*(sender() for _ in range(SENDERS)))

    async def close(self) -> None:
        for channels in self._channels:
            await channels.close()


async def settled(admin: asyncpg.Connection[asyncpg.Record], prefix: str, count: int) -> None:
    """Wait until all have their outcome."""
    limit = time.monotonic() + 90
    while await admin.fetchval(Q["settled"].sql, prefix) < count:
        if time.monotonic() > limit:
            raise AssertionError(f"{prefix}: not all settled within 90 s")
        await asyncio.sleep(0.25)


async def whole_service(database: TestDatabase, setting: str, keys: Keyring, folder: Path) -> float:
    """Send wishes to a heartbeat process; the ledger tells how long all took."""
    admin = await database.admin()
    address = f"127.0.0.1:{free_port()}"
    app = database.settings("heartbeat")
    environment = {
        "REVEILLE_LISTEN": address,
        "REVEILLE_DATABASE_URL": app.url,
        "REVEILLE_DATABASE_PASSWORD_FILE": str(app.password_file),
        "REVEILLE_TRUSTED_KEYS_FILE": str(keys.trusted_file),
        "REVEILLE_SERVICE_KEY_FILE": str(keys.private_key("heartbeat")),
        "REVEILLE_SPOOL_DIR": str(folder / "spool"),
        "REVEILLE_ENGINE_CONCURRENCY": str(CONCURRENCY),
        "REVEILLE_LOG_LEVEL": "error",
    }
    with process(["-m", "reveille_heartbeat"], environment, folder / "heartbeat.log"):
        caller = Caller(address, keys)
        agents = await caller.prepare()
        await caller.send(caller.wishes(agents, "warm", BATCH * 4))
        await settled(admin, "warm", BATCH * 4)
        async with setting_of(database, admin, setting):
            requests = caller.wishes(agents, "run", RUNS_EACH)
            await caller.send(requests)
            await settled(admin, "run", RUNS_EACH)
        await caller.close()
    row = await admin.fetchrow(Q["ledger"].sql, "run")
    assert row is not None
    counts = [row[name] for name in ("wakeups", "payloads", "runs", "history", "outputs", "told")]
    assert counts == [RUNS_EACH * times for times in (1, 1, 1, 2, 1, 4)], dict(row)
    return RUNS_EACH / float(row["seconds"])


@asynccontextmanager
async def setting_of(
    database: TestDatabase, admin: asyncpg.Connection[asyncpg.Record], setting: str
) -> AsyncIterator[None]:
    """Put the database into one of the three settings."""
    holder = await database.admin()
    if setting == "stale statistics":
        for table in HOT:
            await admin.execute(f"ALTER TABLE heartbeat.{table} SET (autovacuum_enabled = false)")
            await admin.execute(f"ANALYZE heartbeat.{table}")
    held = holder.transaction(isolation="repeatable_read")
    await held.start()
    if setting == "held snapshot":
        await holder.fetchval("SELECT count(*) FROM heartbeat.runs")
    try:
        yield
    finally:
        await held.rollback()


async def bare(cluster: TestCluster) -> float:
    """Make a workspace and its agents, and leave the service out."""
    async with fresh_database(cluster) as database:
        admin = await database.admin()
        await admin.execute(Q["add_workspace"].sql, uuid4())
        await admin.execute(Q["add_agents"].sql, AGENTS, SLOTS)
        return await bare_limit(database, await admin.fetch(Q["agents"].sql), RUNS_EACH)


async def measure(cluster: TestCluster, report: Report, folder: Path) -> None:
    keys = Keyring(folder / "keys")
    rates: dict[str, list[float]] = {setting: [] for setting in SETTINGS}
    limits: list[float] = []
    for _ in range(ROUNDS):
        limits.append(await bare(cluster))
        for setting in SETTINGS:
            async with fresh_database(cluster) as database:
                rates[setting].append(await whole_service(database, setting, keys, folder))
    limit = report.figure("bare batched SQL", limits, "runs/s")
    plain = report.figure("plain", rates["plain"], "runs/s")
    report.ratio("plain / bare SQL", plain / limit)
    report.require(plain >= FLOOR_RATE, f"{FLOOR_RATE:.0f} runs/s from wish to outcome")
    for setting in SETTINGS[1:]:
        rate = report.figure(setting, rates[setting], "runs/s")
        report.ratio(f"{setting} / plain", rate / plain)
    await measure_peers(cluster, report, plain)
    async with fresh_database(cluster) as database:
        found = await process_part.measure(database)
    report.figure("processes", [found.ours], "runs/s")
    report.figure("bare processes", [found.bare], "processes/s")
    report.ratio("processes / bare processes", found.ratio)
    report.require(found.ratio >= FLOOR_PROCESS, f"{FLOOR_PROCESS} of bare processes")


async def measure_peers(cluster: TestCluster, report: Report, plain: float) -> None:
    """Jobs that do nothing, in other queues."""
    password = cluster.password_file("admin").read_text(encoding="utf-8").strip()
    for peer in peers.PEERS:
        if not peers.installed(peer):
            print(f"{peer}: not installed (dependency group bench-peers)", flush=True)
            continue
        async with fresh_database(cluster) as database:
            url = database.url(cluster.admin)
            rate = await asyncio.to_thread(peers.rate, peer, url, password, PEER_JOBS)
        if rate is not None:
            report.figure(f"{peer}, jobs that do nothing", [rate], "jobs/s")
            report.ratio(f"plain / {peer}", plain / rate)


def main() -> int:
    """Run the bench."""
    logs.configure("bench", "error")
    report = Report("runs")
    with durable_cluster() as cluster, tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(cluster, report, Path(folder)))
    return report.end(
        runs=RUNS_EACH,
        batch=BATCH,
        rounds=ROUNDS,
        agents=AGENTS,
        slots=SLOTS,
        concurrency=CONCURRENCY,
        peers=json.dumps([peer for peer in peers.PEERS if peers.installed(peer)]),
        fsync=True,
        synchronous_commit=True,
    )


if __name__ == "__main__":
    raise SystemExit(main())
