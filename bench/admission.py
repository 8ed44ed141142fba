"""How many deliveries a second become runs, against bare inserts of the same rows in the same run.

A whole autopilot process judges what the gateway would hand it: AdmitDeliveries by the batch, over
gRPC, of webhooks of many rules. It asks a whole heartbeat process by CheckInvocable, over gRPC, and
commits a row and an event each. Beside it: the same rows inserted bare, 200 a statement, over one
connection; and single manual runs, from the call to the answer, dispatch included.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.support import (
    Report,
    durable_cluster,
    free_port,
    fresh_database,
    percentile,
    process,
)

from reveille.autopilot.v1 import autopilot_pb2 as rule_pb
from reveille.autopilot.v1 import autopilot_service_pb2 as pb
from reveille.autopilot.v1 import dispatch_service_pb2 as dispatch_pb
from reveille.autopilot.v1 import run_pb2
from reveille.autopilot.v1 import workspace_service_pb2 as workspace_pb
from reveille.autopilot.v1.autopilot_service_pb2_grpc import AutopilotServiceStub
from reveille.autopilot.v1.dispatch_service_pb2_grpc import DispatchServiceStub
from reveille.autopilot.v1.workspace_service_pb2_grpc import WorkspaceServiceStub
from reveille.heartbeat.v1 import agent_pb2
from reveille.heartbeat.v1.agent_pb2_grpc import AgentServiceStub
from reveille_autopilot.store import admission, runs
from reveille_runtime.access import Role
from reveille_runtime.client import Channels
from reveille_runtime.crypto import generate_key
from reveille_runtime.ids import new_id
from reveille_runtime.telemetry import Telemetry
from reveille_testkit.cluster import TestCluster
from reveille_testkit.database import TestDatabase
from reveille_testkit.rpc import Keyring

DELIVERIES, BATCH, IN_FLIGHT, RULES = 12_000, 200, 8, 20
SINGLE = 100
RUNS = 3
FLOOR_RATE, FLOOR_SHARE = 3_000.0, 0.15
USER = "bench"


@dataclass(frozen=True)
class Scene:
    """The services, their callers, and webhooks of many rules."""

    dispatcher: Any
    user: Any
    hooks: list[rule_pb.Trigger]
    autopilot_id: str


def environment(
    database: TestDatabase, keys: Keyring, service: str, schema: str, port: int, folder: Path
) -> dict[str, str]:
    settings = database.settings(schema)
    return {
        "REVEILLE_LISTEN": f"127.0.0.1:{port}",
        "REVEILLE_DATABASE_URL": settings.url,
        "REVEILLE_DATABASE_PASSWORD_FILE": str(settings.password_file),
        "REVEILLE_TRUSTED_KEYS_FILE": str(keys.trusted_file),
        "REVEILLE_SERVICE_KEY_FILE": str(keys.private_key(service)),
        "REVEILLE_SEALING_KEY_FILE": str(folder / "sealing"),
        "REVEILLE_SPOOL_DIR": str(folder / "spool"),
        # Nothing is executed: what a run costs afterwards is another bench.
        "REVEILLE_ENGINE_CONCURRENCY": "0",
        "REVEILLE_LOG_LEVEL": "error",
    }


@asynccontextmanager
async def scene(database: TestDatabase, folder: Path) -> AsyncIterator[Scene]:
    """Start both services, and publish rules for agents that may be woken."""
    keys = Keyring(folder / "keys")
    (folder / "sealing").write_text(generate_key() + "\n", encoding="ascii")
    autopilot, heartbeat = free_port(), free_port()
    ours = environment(database, keys, "autopilot", "autopilot", autopilot, folder)
    theirs = environment(database, keys, "heartbeat", "heartbeat", heartbeat, folder)
    targets = {"autopilot": f"127.0.0.1:{autopilot}", "heartbeat": f"127.0.0.1:{heartbeat}"}
    ours["REVEILLE_HEARTBEAT_TARGET"] = targets["heartbeat"]
    with (
        process(["-m", "reveille_heartbeat"], theirs, folder / "heartbeat.log"),
        process(["-m", "reveille_autopilot"], ours, folder / "autopilot.log"),
    ):
        opened: list[Channels] = []

        def channel(service: str, token: str) -> Any:
            made = Channels(targets, telemetry=Telemetry.off(), token=lambda: token)
            opened.append(made)
            return made.get(service)

        try:
            for service in targets:
                try:
                    async with asyncio.timeout(60):
                        await channel(service, keys.service("scheduler")).channel_ready()
                except TimeoutError:
                    raise AssertionError((folder / f"{service}.log").read_text()[-4000:]) from None
            yield await published(keys, channel)
        finally:
            for each in opened:
                await each.close()


async def published(keys: Keyring, channel: Any) -> Scene:
    operator = WorkspaceServiceStub(channel("autopilot", keys.user("root", operator=True)))
    request = workspace_pb.CreateWorkspaceRequest(
        name="Bench", issue_prefix="BEN", owner_user_id=USER
    )
    workspace = (await operator.CreateWorkspace(request)).workspace.workspace_id
    token = keys.user(USER, {UUID(workspace): Role.OWNER})
    agents, user = AgentServiceStub(channel("heartbeat", token)), channel("autopilot", token)
    rules = AutopilotServiceStub(user)

    async def rule(number: int) -> tuple[str, rule_pb.Trigger]:
        agent = await agents.CreateAgent(
            agent_pb2.CreateAgentRequest(
                workspace_id=workspace,
                name=f"agent-{number}",
                adapter="echo",
                invocation_rule=agent_pb2.INVOCATION_RULE_WORKSPACE,
            )
        )
        made = await rules.CreateAutopilot(
            pb.CreateAutopilotRequest(
                workspace_id=workspace,
                title=f"Rule {number}",
                prompt="Look at what came in, and say in a sentence what it is about.",
                agent_id=agent.agent.agent_id,
                execution_mode=rule_pb.EXECUTION_MODE_RUN_ONLY,
            )
        )
        rule_id = made.autopilot.autopilot_id
        hook = await rules.CreateTrigger(
            pb.CreateTriggerRequest(
                autopilot_id=rule_id, webhook=rule_pb.WebhookTrigger(provider="github")
            )
        )
        return rule_id, hook.trigger

    found = await asyncio.gather(*(rule(number) for number in range(RULES)))
    dispatcher = DispatchServiceStub(channel("autopilot", keys.service("webhook-gateway")))
    return Scene(dispatcher, rules, [hook for _, hook in found], found[0][0])


def batches(hooks: list[rule_pb.Trigger], total: int) -> list[dispatch_pb.AdmitDeliveriesRequest]:
    facts = [
        dispatch_pb.DeliveryFacts(
            delivery_id=str(new_id()),
            endpoint_id=hooks[number % len(hooks)].trigger_id,
            workspace_id=hooks[0].workspace_id,
            event="issues",
            actions=["opened"],
            body_bytes=2_000,
            body_sha256=bytes(32),
        )
        for number in range(total)
    ]
    return [
        dispatch_pb.AdmitDeliveriesRequest(deliveries=facts[first : first + BATCH])
        for first in range(0, total, BATCH)
    ]


async def admitted(scene: Scene, total: int) -> tuple[float, list[UUID]]:
    """Admit so many deliveries; gives how many a second, and their runs."""
    waiting = batches(scene.hooks, total)
    found: list[dispatch_pb.AdmitResult] = []

    async def send() -> None:
        while waiting:
            found.extend((await scene.dispatcher.AdmitDeliveries(waiting.pop())).results)

    began = time.perf_counter()
    await asyncio.gather(*(send() for _ in range(IN_FLIGHT)))
    spent = time.perf_counter() - began
    assert {each.outcome for each in found} == {dispatch_pb.ADMIT_OUTCOME_ACCEPTED}
    made = {UUID(each.run_id) for each in found}
    assert len(made) == len(found) == total
    return total / spent, sorted(made)


async def bare(database: TestDatabase, like: list[UUID]) -> float:
    """Insert the same rows again, under other keys, and nothing else."""
    opened = await database.open("autopilot")
    async with opened.session() as tx:
        same = list((await runs.get(tx, like)).values())
    new = [
        admission.NewRun(
            replace(run, id=new_id(), occurrence_key=f"bare:{uuid4()}", delivery_id=uuid4()), None
        )
        for run in same
    ]
    prepared = [
        admission.columns(new[first : first + BATCH]) for first in range(0, len(new), BATCH)
    ]
    inserted = 0
    async with opened.session() as tx:
        began = time.perf_counter()
        for columns in prepared:
            inserted += len(await tx.fetch(admission.Q["insert_runs"], *columns))
        spent = time.perf_counter() - began
    assert inserted == len(like)
    return inserted / spent


async def one_by_one(scene: Scene) -> float:
    """Milliseconds in which half of single manual runs are answered, one after the other."""
    spent = []
    for _ in range(SINGLE):
        began = time.perf_counter()
        answer = await scene.user.RunAutopilot(
            pb.RunAutopilotRequest(autopilot_id=scene.autopilot_id)
        )
        spent.append((time.perf_counter() - began) * 1000)
        assert answer.run.state == run_pb2.RUN_STATE_RUNNING, answer
    return percentile(spent, 0.5)


async def stored(database: TestDatabase) -> None:
    """Look at the rows: each admitted, with somebody who answers, and its event."""
    admin = await database.admin()
    row = await admin.fetchrow(Q)
    assert row is not None
    assert row["runs"] == row["answered"] == row["events"] > 0, dict(row)


Q = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")


async def measure(cluster: TestCluster, report: Report, folder: Path) -> None:
    rates: list[float] = []
    limits: list[float] = []
    single: list[float] = []
    async with fresh_database(cluster) as database, scene(database, folder) as stage:
        await admitted(stage, 10 * BATCH)
        for _ in range(RUNS):
            rate, made = await admitted(stage, DELIVERIES)
            rates.append(rate)
            await stored(database)
            limits.append(await bare(database, made))
            single.append(await one_by_one(stage))
    limit = report.figure("bare inserts", limits, "rows/s")
    rate = report.figure("batched admission", rates, "runs/s")
    report.figure("single manual run p50", single, "ms")
    report.ratio("admission / bare inserts", rate / limit)
    report.require(rate >= FLOOR_RATE, f"{FLOOR_RATE:.0f} runs/s with CheckInvocable over gRPC")
    report.require(rate >= FLOOR_SHARE * limit, f"{FLOOR_SHARE} of the bare rate")


def main() -> int:
    """Run the bench."""
    report = Report("admission")
    with durable_cluster() as cluster, tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(cluster, report, Path(folder)))
    return report.end(
        deliveries=DELIVERIES,
        batch=BATCH,
        in_flight=IN_FLIGHT,
        rules=RULES,
        runs=RUNS,
        fsync=True,
        synchronous_commit=True,
    )


if __name__ == "__main__":
    raise SystemExit(main())
