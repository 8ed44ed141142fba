"""Part of the bench of runs: agents that are processes, beside bare ones with pipes.

Both sides start the same command, as many at once, in this very process. The bare side is what
asyncio offers: a child with three pipes, its output read to the end. Ours is the whole way: a wake
enqueued, claimed, its process on record before it starts, output stored, end settled, events and
feed written. Run alone it prints its two rates and their ratio.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from google.protobuf.struct_pb2 import Struct

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.support import durable_cluster, fresh_database

from reveille.heartbeat.v1 import agent_pb2, wakeup_pb2
from reveille.heartbeat.v1 import workspace_replica_service_pb2 as workspace_pb
from reveille.heartbeat.v1.agent_pb2_grpc import AgentServiceStub
from reveille.heartbeat.v1.wakeup_pb2_grpc import WakeupServiceStub
from reveille.heartbeat.v1.workspace_replica_service_pb2_grpc import WorkspaceReplicaServiceStub
from reveille_heartbeat import wiring
from reveille_heartbeat.adapters.process import become_guardian
from reveille_heartbeat.config import Settings
from reveille_runtime import logs
from reveille_runtime.access import Role
from reveille_runtime.app import App
from reveille_runtime.client import Channels
from reveille_runtime.telemetry import Telemetry
from reveille_testkit.cluster import TestCluster
from reveille_testkit.database import TestDatabase
from reveille_testkit.rpc import Keyring
from reveille_testkit.waiting import eventually

COMMAND = ("/bin/sh", "-c", "echo done")
AT_ONCE = 64
RUNS = 600
AGENTS = 64
_BATCH = 200


def spool_medium() -> str | None:
    """Give a file system in memory for the spool, which is where the bare side's pipes are.

    Seven files and folders a run cost some disks more than the processes themselves.
    """
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@dataclass(frozen=True, slots=True)
class Rates:
    """Processes a second."""

    ours: float
    bare: float

    @property
    def ratio(self) -> float:
        """How much of the bare rate is left when everything is recorded."""
        return self.ours / self.bare


async def bare(runs: int = RUNS) -> float:
    """Start and await processes as asyncio does."""
    environment = {"PATH": os.environ["PATH"]}
    waiting = iter(range(runs))

    async def worker() -> None:
        for _ in waiting:
            process = await asyncio.create_subprocess_exec(
                *COMMAND,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                start_new_session=True,
            )
            out, _ = await process.communicate()
            assert (process.returncode, out) == (0, b"done\n")

    began = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))
    return runs / (time.perf_counter() - began)


class Heartbeat:
    """One replica in this process, with its callers."""

    def __init__(self, database: TestDatabase, folder: Path) -> None:
        self._keys = Keyring(folder / "keys")
        self._database = database
        app = database.settings("heartbeat")
        given: dict[str, Any] = {
            "listen": "127.0.0.1:0",
            "database_url": app.url,
            "database_password_file": app.password_file,
            "trusted_keys_file": self._keys.trusted_file,
            "service_key_file": self._keys.private_key("heartbeat"),
            "spool_dir": folder / "spool",
            "api_address": "127.0.0.1:1",
            "engine_concurrency": AT_ONCE,
        }
        self._app = App(Settings(**given), Telemetry.off())
        self._stack = AsyncExitStack()
        self.workspace_id = uuid4()

    async def start(self) -> None:
        """Start it, and make a workspace."""
        await self._app.start(wiring.build)
        self._stack.push_async_callback(self._app.stop)
        service = self._channel(self._keys.service("autopilot"))
        await WorkspaceReplicaServiceStub(service).PutWorkspace(
            workspace_pb.PutWorkspaceRequest(
                workspace_id=str(self.workspace_id),
                issue_prefix="BEN",
                default_responsible_user_id="bench",
                revision=1,
            )
        )
        self._wakeups: Any = WakeupServiceStub(service)
        owner = self._channel(self._keys.user("bench", {self.workspace_id: Role.MEMBER}))
        self._agents: Any = AgentServiceStub(owner)

    def _channel(self, token: str) -> Any:
        channels = Channels(
            {"server": self._app.server.address}, telemetry=Telemetry.off(), token=lambda: token
        )
        self._stack.push_async_callback(channels.close)
        return channels.get("server")

    async def agent(self, number: int) -> str:
        """Make an agent that is the command."""
        settings = Struct()
        settings.update({"command": list(COMMAND)})
        made = await self._agents.CreateAgent(
            agent_pb2.CreateAgentRequest(
                workspace_id=str(self.workspace_id),
                name=f"agent-{number}",
                adapter="process",
                adapter_config=settings,
                max_concurrent_runs=2,
            )
        )
        return str(made.agent.agent_id)

    async def run(self, agents: list[str], runs: int) -> None:
        """Wake agents, each time as another occurrence, and wait until every wake is settled."""
        wakes = [
            wakeup_pb2.Wakeup(
                workspace_id=str(self.workspace_id),
                agent_id=agents[number % len(agents)],
                source=wakeup_pb2.WAKEUP_SOURCE_AUTOMATION,
                reason="autopilot_run",
                title="bench",
                origin=wakeup_pb2.Origin(
                    occurrence_key=f"manual:{uuid4()}", accountable_user_id="bench"
                ),
            )
            for number in range(runs)
        ]
        for start in range(0, runs, _BATCH):
            await self._wakeups.EnqueueWakeups(
                wakeup_pb2.EnqueueWakeupsRequest(wakeups=wakes[start : start + _BATCH])
            )
        connection = await self._database.connect("reveille_heartbeat_app")

        async def unsettled() -> int:
            count: int = await connection.fetchval(
                "SELECT count(*) FROM wakeup_requests WHERE finished_at IS NULL"
            )
            return count

        await eventually(unsettled, "all is settled", until=lambda left: left == 0, timeout=120)

    async def check(self, workspace_id: UUID, runs: int) -> None:
        """Hold what was written against what was asked for: rows, outcomes, output, history."""
        connection = await self._database.connect("reveille_heartbeat_app")
        row = await connection.fetchrow(
            "SELECT (SELECT count(*) FROM wakeup_requests WHERE state = 'completed') AS wakes,"
            " (SELECT count(*) FROM runs WHERE state = 'succeeded' AND process_pid IS NOT NULL"
            "  AND exit_code = 0 AND workspace_id = $1) AS runs,"
            " (SELECT count(*) FROM run_log_chunks WHERE data = 'done\n'::bytea) AS outputs,"
            " (SELECT count(*) FROM run_events WHERE type = 'run.process_started') AS starts,"
            " (SELECT count(*) FROM feed WHERE type = 'wakeup.settled') AS told",
            workspace_id,
        )
        assert row is not None
        assert list(row.values()) == [runs] * 5, dict(row)

    async def close(self) -> None:
        """End it."""
        await self._stack.aclose()


async def ours(database: TestDatabase, runs: int = RUNS) -> float:
    """Run agents in a heartbeat of this process."""
    with tempfile.TemporaryDirectory(prefix="reveille-bench-", dir=spool_medium()) as text:
        heartbeat = Heartbeat(database, Path(text))
        await heartbeat.start()
        try:
            agents = [await heartbeat.agent(number) for number in range(AGENTS)]
            warm = len(agents)
            await heartbeat.run(agents, warm)
            began = time.perf_counter()
            await heartbeat.run(agents, runs)
            took = time.perf_counter() - began
            await heartbeat.check(heartbeat.workspace_id, warm + runs)
        finally:
            await heartbeat.close()
    return runs / took


async def measure(database: TestDatabase, runs: int = RUNS) -> Rates:
    """Take both rates in turn, on a database that is nobody else's."""
    # As the service does at its start; the bare side's children are awaited by asyncio as ever.
    become_guardian()
    bare_before = await bare(runs)
    recorded = await ours(database, runs)
    bare_after = await bare(runs)
    return Rates(recorded, (bare_before + bare_after) / 2)


async def _alone(cluster: TestCluster) -> Rates:
    async with fresh_database(cluster) as database:
        return await measure(database)


if __name__ == "__main__":
    logs.configure("bench", "warning")
    with durable_cluster() as server:
        found = asyncio.run(_alone(server))
    sys.stdout.write(f"ours {found.ours:.0f}/s, bare {found.bare:.0f}/s, ratio {found.ratio:.3f}\n")
