"""Part of the bench of runs: agents that are processes, beside bare ones with pipes.

Both sides start the same small agent, as many at once. The bare side is what asyncio offers: a
child with three pipes, fed with what there is to read, and its output read to the end. Ours is the
whole way in a heartbeat process: a wake enqueued, claimed, its process on record before it starts,
output stored, end settled, events and feed written. Run alone it prints its two rates and their
ratio.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import grpc
from google.protobuf.struct_pb2 import Struct

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.support import durable_cluster, free_port, fresh_database, process

from reveille.heartbeat.v1 import agent_pb2, wakeup_pb2
from reveille.heartbeat.v1 import workspace_replica_service_pb2 as workspace_pb
from reveille.heartbeat.v1.agent_pb2_grpc import AgentServiceStub
from reveille.heartbeat.v1.wakeup_pb2_grpc import WakeupServiceStub
from reveille.heartbeat.v1.workspace_replica_service_pb2_grpc import WorkspaceReplicaServiceStub
from reveille_runtime import logs
from reveille_runtime.access import Role
from reveille_runtime.client import Channels
from reveille_runtime.telemetry import Telemetry
from reveille_testkit.cluster import TestCluster
from reveille_testkit.database import TestDatabase
from reveille_testkit.rpc import Keyring
from reveille_testkit.waiting import eventually

# An agent that does the least an agent does: it reads what woke it, and says so.
AGENT = ("/bin/sh", "-c", 'cat "$REVEILLE_PAYLOAD_FILE" >/dev/null; echo done')
BARE = ("/bin/sh", "-c", "cat >/dev/null; echo done")
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
    payload = json.dumps({"wake": {"title": "bench"}, "payload": {"body": "x" * 700}}).encode()
    waiting = iter(range(runs))

    async def worker() -> None:
        for _ in waiting:
            child = await asyncio.create_subprocess_exec(
                *BARE,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                start_new_session=True,
            )
            out, _ = await child.communicate(payload)
            assert (child.returncode, out) == (0, b"done\n")

    began = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))
    return runs / (time.perf_counter() - began)


class Heartbeat:
    """A heartbeat process of its own, and those who call it."""

    def __init__(self, database: TestDatabase, folder: Path) -> None:
        self._keys = Keyring(folder / "keys")
        self._database = database
        self._folder = folder
        self._address = f"127.0.0.1:{free_port()}"
        self._stack = AsyncExitStack()
        self.workspace_id = uuid4()

    async def start(self) -> None:
        """Start it, and make a workspace."""
        app = self._database.settings("heartbeat")
        environment = {
            "REVEILLE_LISTEN": self._address,
            "REVEILLE_DATABASE_URL": app.url,
            "REVEILLE_DATABASE_PASSWORD_FILE": str(app.password_file),
            "REVEILLE_TRUSTED_KEYS_FILE": str(self._keys.trusted_file),
            "REVEILLE_SERVICE_KEY_FILE": str(self._keys.private_key("heartbeat")),
            "REVEILLE_SPOOL_DIR": str(self._folder / "spool"),
            "REVEILLE_ENGINE_CONCURRENCY": str(AT_ONCE),
            "REVEILLE_LOG_LEVEL": "error",
        }
        log = self._folder / "heartbeat.log"
        self._stack.enter_context(process(["-m", "reveille_heartbeat"], environment, log))
        service = self._channel(self._keys.service("autopilot"))
        request = workspace_pb.PutWorkspaceRequest(
            workspace_id=str(self.workspace_id),
            issue_prefix="BEN",
            default_responsible_user_id="bench",
            revision=1,
        )

        async def put() -> bool:
            try:
                await WorkspaceReplicaServiceStub(service).PutWorkspace(request)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                return False
            return True

        await eventually(put, "heartbeat is ready", timeout=60)
        self._wakeups: Any = WakeupServiceStub(service)
        owner = self._channel(self._keys.user("bench", {self.workspace_id: Role.MEMBER}))
        self._agents: Any = AgentServiceStub(owner)

    def _channel(self, token: str) -> Any:
        channels = Channels(
            {"server": self._address}, telemetry=Telemetry.off(), token=lambda: token
        )
        self._stack.push_async_callback(channels.close)
        return channels.get("server")

    async def agent(self, number: int) -> str:
        """Make an agent that is the command."""
        settings = Struct()
        settings.update({"command": list(AGENT)})
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

    async def run(self, agents: list[str], kind: str, runs: int) -> float:
        """Wake agents, each time as another occurrence, until every wake is settled.

        Give the seconds from the first wake to the last outcome.
        """
        wakes = [
            wakeup_pb2.Wakeup(
                workspace_id=str(self.workspace_id),
                agent_id=agents[number % len(agents)],
                source=wakeup_pb2.WAKEUP_SOURCE_AUTOMATION,
                reason="autopilot_run",
                title="bench",
                origin=wakeup_pb2.Origin(
                    occurrence_key=f"{kind}:{number}", accountable_user_id="bench"
                ),
            )
            for number in range(runs)
        ]
        for start in range(0, runs, _BATCH):
            await self._wakeups.EnqueueWakeups(
                wakeup_pb2.EnqueueWakeupsRequest(wakeups=wakes[start : start + _BATCH])
            )
        connection = await self._database.connect("reveille_heartbeat_app")

        async def took() -> asyncpg.Record | None:
            return await connection.fetchrow(
                "SELECT count(*) FILTER (WHERE finished_at IS NULL) AS left,"
                " extract(epoch FROM max(finished_at) - min(created_at)) AS seconds"
                " FROM wakeup_requests WHERE occurrence_key LIKE $1 || ':%'",
                kind,
            )

        row = await eventually(
            took, "all is settled", until=lambda seen: seen and seen["left"] == 0, timeout=120
        )
        assert row is not None
        return float(row["seconds"])

    async def check(self, runs: int) -> None:
        """Hold what was written against what was asked for: rows, outcomes, output, history."""
        connection = await self._database.connect("reveille_heartbeat_app")
        row = await connection.fetchrow(
            "SELECT (SELECT count(*) FROM wakeup_requests WHERE state = 'completed') AS wakes,"
            " (SELECT count(*) FROM runs WHERE state = 'succeeded' AND process_pid IS NOT NULL"
            "  AND exit_code = 0) AS runs,"
            " (SELECT count(*) FROM run_log_chunks WHERE data = 'done\n'::bytea) AS outputs,"
            " (SELECT count(*) FROM run_events WHERE type = 'run.process_started') AS starts,"
            " (SELECT count(*) FROM feed WHERE type = 'wakeup.settled') AS told",
        )
        assert row is not None
        assert list(row.values()) == [runs] * 5, dict(row)

    async def close(self) -> None:
        """End it."""
        await self._stack.aclose()


async def ours(database: TestDatabase, runs: int = RUNS) -> float:
    """Run agents in a heartbeat of their own."""
    with tempfile.TemporaryDirectory(prefix="reveille-bench-", dir=spool_medium()) as text:
        heartbeat = Heartbeat(database, Path(text))
        try:
            await heartbeat.start()
            agents = [await heartbeat.agent(number) for number in range(AGENTS)]
            await heartbeat.run(agents, "warm", len(agents))
            took = await heartbeat.run(agents, "run", runs)
            await heartbeat.check(len(agents) + runs)
        finally:
            await heartbeat.close()
    return runs / took


async def measure(database: TestDatabase, runs: int = RUNS) -> Rates:
    """Take both rates in turn, on a database that is nobody else's."""
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
