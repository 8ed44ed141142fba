"""How many webhooks a second are verified, stored and admitted, against the database's own limit.

A whole stack from docker-compose.yml with a durable database: gateway, autopilot and heartbeat as
in production, 64 connections that ask when they were answered. In the same run, interleaved:
pgbench with single-row inserts of the same size, and a handler that does the same without batches.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.ingress_floors import SIZES, tell
from bench.support import ROOT, Report, free_port, process
from tests.e2e.harness import RUN_ONLY, Client, Hook, World

from reveille.heartbeat.v1 import agent_pb2
from reveille_cli.stack.pginstall import wheel_binaries
from reveille_cli.stack.record import read_record
from reveille_runtime.queries import parse_queries
from reveille_runtime.tokens import TokenMinter
from reveille_testkit.stack import TestStack, running_stack

RUNS = 3
SECONDS = 5.0
CONNECTIONS = 64
OVERLOAD_SECONDS = 30.0
_FILE = Path(__file__).with_name("ingress.sql")
Q = parse_queries(_FILE.read_text(encoding="utf-8"), _FILE.name)
# Nothing exports spans here, and floods are not told one by one.
QUIET = {"REVEILLE_LOG_LEVEL": "warning", "OTEL_SDK_DISABLED": "true"}
# No limits but what the machine has, and nothing dispatched.
FREE = {
    "REVEILLE_IP_CEILING": "0",
    "REVEILLE_CREDENTIAL_DEBT": "0",
    "REVEILLE_RATE_PER_MINUTE": "0",
    "REVEILLE_HOURLY_BUDGET": "0",
    "REVEILLE_CONNECTIONS_PER_ADDRESS": "0",
    "REVEILLE_WORKER_CAPACITY": "0",
    **QUIET,
}


class Ingress:
    """The stack, and what is measured on it."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        self.folder = folder
        self.round = 0

    async def prepare(self) -> None:
        self.workspace = await self.world.create_workspace()
        # The first agent of a workspace waits until heartbeat knows it.
        await self.world.create_triage_agent(self.workspace)
        made = await self.world.client.agents.CreateAgent(
            agent_pb2.CreateAgentRequest(
                workspace_id=self.workspace, name="echo", adapter="echo", max_concurrent_runs=8
            )
        )
        self.rule = await self.world.create_autopilot(self.workspace, made.agent.agent_id, RUN_ONLY)
        await self.world.database.execute("CREATE SCHEMA IF NOT EXISTS bench")
        await self.world.database.execute("SET search_path = bench")
        await self.world.database.execute(Q["create_plain"].sql)

    async def hook(self) -> Hook:
        return await self.world.create_hook(self.rule)

    async def load(self, hook: Hook, **plan: object) -> dict[str, Any]:
        """Let the sender run."""
        host, _, port = self.world.stack.address("webhook-gateway", "http").rpartition(":")
        self.round += 1
        whole = {
            "host": host,
            "port": int(port),
            "path": hook.path,
            "secret": hook.secret,
            "connections": CONNECTIONS,
            "seconds": SECONDS,
            "body_bytes": 2048,
            "mode": "distinct",
            "run": f"r{self.round}",
            **plan,
        }
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            str(ROOT / "bench" / "hooks_load.py"),
            json.dumps(whole),
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await child.communicate()
        assert child.returncode == 0
        found: dict[str, Any] = json.loads(said)
        return found

    async def accepted(self, size: int) -> tuple[float, float]:
        """Take distinct, signed requests; everything that was accepted has its row and its run."""
        hook = await self.hook()
        found = await self.load(hook, body_bytes=size)
        assert set(found["statuses"]) <= {"200", "202"}, found["statuses"]
        await self.settle(hook)
        rows = await self.world.database.fetchrow(Q["counted"].sql, UUID(hook.trigger_id))
        assert rows is not None
        assert rows["deliveries"] >= found["answered"], (dict(rows), found)
        assert rows["runs"] == rows["distinct_runs"], dict(rows)
        assert rows["runs"] >= found["words"].get("accepted", 0), (dict(rows), found)
        return found["words"].get("accepted", 0) / found["seconds"], found["p99"]

    async def settle(self, hook: Hook) -> None:
        """Let what was under way when the sender stopped come to its end."""
        for _ in range(50):
            rows = await self.world.database.fetchrow(Q["counted"].sql, UUID(hook.trigger_id))
            if rows is not None and rows["deliveries"] == rows["admitted"]:
                return
            await asyncio.sleep(0.1)

    async def pgbench(self, size: int) -> float:
        """Single-row inserts of the same size, 32 clients."""
        script = self.folder / "insert.sql"
        script.write_text(
            "INSERT INTO bench.plain VALUES (gen_random_uuid(), "
            "'00000000-0000-4000-8000-000000000000', gen_random_uuid()::text, "
            f"decode(repeat('61', {size}), 'hex'), statement_timestamp());\n"
        )
        record = read_record(self.world.stack.data_dir)
        assert record is not None
        assert record.database is not None
        address = record.database
        command = [str(wheel_binaries() / "pgbench"), "-n", "-M", "prepared", "-c", "32"]
        command += ["-j", "2", "-T", str(int(SECONDS)), "-f", str(script)]
        child = await asyncio.create_subprocess_exec(
            *command,
            address.url(address.user),
            env={**os.environ, "PGPASSWORD": address.password_file.read_text().strip()},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        said, error = await child.communicate()
        line = next((each for each in said.decode().splitlines() if each.startswith("tps")), "")
        assert line, error
        await self.world.database.execute("TRUNCATE bench.plain")
        return float(line.split()[2])

    async def unbatched(self, size: int) -> float:
        """The same without batches."""
        hook = await self.hook()
        port = free_port()
        record = read_record(self.world.stack.data_dir)
        assert record is not None
        assert record.database is not None
        stack = self.world.stack
        minter = TokenMinter(stack.key_file("webhook-gateway"), "webhook-gateway")
        environment = {
            "PGPASSWORD": record.database.password_file.read_text().strip(),
            "HOOK_SECRET": hook.secret or "",
            "REVEILLE_TOKEN": minter.service_token(),
        }
        arguments = [
            str(ROOT / "bench" / "unbatched.py"),
            str(port),
            record.database.url(record.database.user),
            stack.address("autopilot"),
        ]
        log = self.folder / "unbatched.log"
        with process(arguments, environment, log):
            await reachable(port)
            found = await self.load(hook, host="127.0.0.1", port=port, body_bytes=size)
        assert set(found["statuses"]) == {"200"}, (found, log.read_text()[-2000:])
        return float(found["words"]["accepted"] / found["seconds"])

    async def refused(self) -> float:
        """Answer bad signatures."""
        found = await self.load(await self.hook(), mode="bad")
        assert set(found["statuses"]) == {"401"}, found["statuses"]
        return float(found["answered"] / found["seconds"])

    async def duplicates(self) -> tuple[float, float]:
        """Answer the same delivery again and again; it stays one."""
        hook = await self.hook()
        found = await self.load(hook, mode="same")
        assert set(found["words"]) <= {"accepted", "duplicate"}, found["words"]
        rows = await self.world.database.fetchrow(Q["counted"].sql, UUID(hook.trigger_id))
        assert rows is not None
        assert (rows["deliveries"], rows["runs"]) == (1, 1), dict(rows)
        return found["answered"] / found["seconds"], found["p99"]

    async def overload(self, capacity: float) -> dict[str, float]:
        """Five times what it can take, for half a minute."""
        hook = await self.hook()
        before = self.memory()
        loading = asyncio.ensure_future(
            self.load(
                hook,
                connections=CONNECTIONS * 8,
                rate=5 * capacity,
                seconds=OVERLOAD_SECONDS,
                ids=True,
            )
        )
        half = []
        while not loading.done():
            await asyncio.sleep(1.0)
            half.append(self.memory())
        found = loading.result()
        lost = await self.world.database.fetchval(
            Q["lost"].sql, [UUID(each) for each in found["safe"]]
        )
        middle = half[len(half) // 2 :]
        return {
            "lost": float(lost),
            "safe": float(len(found["safe"])),
            "grown": max(middle) - max(half[: len(half) // 2]),
            "memory": max(half),
            "before": before,
            "errors": float(
                sum(
                    n
                    for status, n in found["statuses"].items()
                    if status[0] == "5" and status != "503"
                )
            ),
        }

    def memory(self) -> float:
        """The gateway's resident memory in MiB."""
        pid = self.world.stack.status("webhook-gateway").pid
        text = Path(f"/proc/{pid}/status").read_text()
        line = next(each for each in text.splitlines() if each.startswith("VmRSS"))
        return int(line.split()[1]) / 1024


async def reachable(port: int) -> None:
    """Wait until somebody listens."""
    until = time.monotonic() + 20
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            assert time.monotonic() < until
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return


async def measure(stack: TestStack, report: Report, folder: Path) -> None:
    client = Client(stack, stack.operator_token())
    database: asyncpg.Connection[asyncpg.Record] = await stack.connect_database()
    ingress = Ingress(World(stack, client, database, folder), folder)
    try:
        await ingress.prepare()
        await rounds(ingress, report)
    finally:
        await client.close()
        await database.close()


async def rounds(ingress: Ingress, report: Report) -> None:
    figures: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        figures.setdefault(name, []).append(value)

    for _ in range(RUNS):
        for kib, (size, _, _) in SIZES.items():
            note(f"pgbench {kib} KB", await ingress.pgbench(size))
            rate, p99 = await ingress.accepted(size)
            note(f"accepted {kib} KB", rate)
            note(f"p99 {kib} KB", p99)
            note(f"unbatched {kib} KB", await ingress.unbatched(size))
        note("bad signatures", await ingress.refused())
        rate, p99 = await ingress.duplicates()
        note("duplicates", rate)
        note("p99 duplicates", p99)
    capacity = sorted(figures["accepted 2 KB"])[RUNS // 2]
    overload = await ingress.overload(capacity)
    for _ in range(RUNS):
        note("after the overload", (await ingress.accepted(2048))[0])
    stack = ingress.world.stack
    # What was taken while nothing was dispatched would be dispatched first.
    await ingress.world.database.execute(Q["forget"].sql)
    await asyncio.to_thread(
        stack.restart, "webhook-gateway", {**FREE, "REVEILLE_WORKER_CAPACITY": "400"}
    )
    for kib, (size, _, _) in SIZES.items():
        note(f"accepted {kib} KB, dispatching", (await ingress.accepted(size))[0])
    tell(report, figures, overload, capacity)


def main() -> int:
    """Run the bench."""
    report = Report("ingress")
    with tempfile.TemporaryDirectory(prefix="reveille-bench-") as text:
        folder = Path(text)
        environment = {"webhook-gateway": FREE, "*": QUIET}
        with running_stack(folder / "data", environment=environment, durable=True) as stack:
            asyncio.run(measure(stack, report, folder))
    return report.end(
        connections=CONNECTIONS,
        seconds=SECONDS,
        runs=RUNS,
        fsync=True,
        synchronous_commit=True,
        spans=False,
    )


if __name__ == "__main__":
    raise SystemExit(main())
