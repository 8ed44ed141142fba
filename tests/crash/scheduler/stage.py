"""What the soaks play on: a durable server, replicas as real processes, a handler that counts."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc

from reveille.scheduler.v1 import job_handler_service_pb2 as pb
from reveille.scheduler.v1.job_handler_service_pb2_grpc import (
    JobHandlerServiceServicer,
    add_JobHandlerServiceServicer_to_server,
)
from reveille_cli.stack.postgres import EmbeddedPostgres, PostgresSettings
from reveille_testkit.cluster import SessionCluster
from reveille_testkit.database import TestDatabase
from reveille_testkit.rpc import Keyring

Key = tuple[str, str, datetime]


class CountingOwner(JobHandlerServiceServicer):
    """Has one effect per key, counts how often it was asked, and takes its time.

    `waits` names what a plan waits for; `lingers` how many seconds a call takes before its effects
    and how many after them, in which its answer may be lost.
    """

    def __init__(self) -> None:
        self.effects: set[Key] = set()
        self.asked: Counter[Key] = Counter()
        self.waits: Callable[[pb.Plan], asyncio.Event | None] = lambda _: None
        self.lingers: Callable[[], tuple[float, float]] = lambda: (0.0, 0.0)

    async def RunPlans(self, request: pb.RunPlansRequest, context: Any) -> pb.RunPlansResponse:
        results = []
        before, after = self.lingers()
        await pass_time(before)
        for plan in request.plans:
            key = (plan.job_name, plan.scope_id, plan.plan_time.ToDatetime(tzinfo=UTC))
            self.asked[key] += 1
            if (event := self.waits(plan)) is not None:
                await event.wait()
            self.effects.add(key)
            results.append(
                pb.PlanResult(execution_id=plan.execution_id, outcome=pb.PLAN_OUTCOME_SUCCESS)
            )
        await pass_time(after)
        return pb.RunPlansResponse(results=results)

    async def PlanScopes(
        self, request: pb.PlanScopesRequest, context: Any
    ) -> pb.PlanScopesResponse:
        return pb.PlanScopesResponse()


async def pass_time(seconds: float) -> None:
    """Let real time pass: a soak is made of it."""
    await asyncio.wait({asyncio.get_running_loop().create_future()}, timeout=seconds)


class Process:
    """One replica: its process, started, stopped, killed and suspended at will."""

    def __init__(self, name: str, environment: dict[str, str], log: Path) -> None:
        self.name = name
        self._environment = environment
        self._log = log
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as out:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "reveille_scheduler"],
                env={**os.environ, **self._environment},
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def send(self, number: signal.Signals) -> None:
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(number)

    async def end(self, number: signal.Signals) -> None:
        """Send a signal and wait for the end."""
        self.send(signal.SIGCONT)
        self.send(number)
        if self._child is not None:
            await asyncio.to_thread(self._child.wait, 30)

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")


class Stage:
    """The server, the database, the handler and the replicas of one soak."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self.folder = folder
        self.owner = CountingOwner()
        self.replicas: list[Process] = []
        self._stack = stack

    async def open(self, skews: list[float]) -> None:
        """Start everything; each replica's own clock is wrong by its skew."""
        self.server = EmbeddedPostgres(
            self.folder / "postgres",
            _free_port(),
            PostgresSettings(owner_pid=os.getpid(), shared_buffers="64MB"),
        )
        await asyncio.to_thread(self.server.start)
        self._stack.push_async_callback(asyncio.to_thread, self.server.stop)
        host = self.server.url().partition("@")[2]
        password = quote(self.server.superuser_password, safe="")
        session = SessionCluster(
            self.folder, os.getpid(), f"postgresql://postgres:{password}@{host}"
        )
        cluster = await asyncio.to_thread(session.get)
        # The server is taken away and comes back: no connection is kept for a clean-up.
        self.database = TestDatabase(cluster, cluster.template, self._stack)
        rpc = grpc.aio.server(options=[("grpc.http2.min_ping_interval_without_data_ms", 5_000)])
        add_JobHandlerServiceServicer_to_server(self.owner, rpc)
        port = rpc.add_insecure_port("127.0.0.1:0")
        await rpc.start()
        self._stack.push_async_callback(rpc.stop, 0)
        keys = Keyring(self.folder / "keys")
        site = self.folder / "site"
        site.mkdir()
        shutil.copy(Path(__file__).with_name("skew.py"), site / "sitecustomize.py")
        for number, skew in enumerate(skews):
            self._add(f"replica-{number}", self._environment(keys, port, site, skew))

    def _add(self, name: str, environment: dict[str, str]) -> None:
        replica = Process(name, environment, self.folder / f"{name}.log")
        self.replicas.append(replica)
        self._stack.push_async_callback(replica.end, signal.SIGKILL)
        replica.start()

    def _environment(self, keys: Keyring, handler: int, site: Path, skew: float) -> dict[str, str]:
        settings = self.database.settings("scheduler")
        return {
            "PYTHONPATH": str(site),
            "REVEILLE_TEST_SKEW": str(skew),
            "REVEILLE_LISTEN": f"127.0.0.1:{_free_port()}",
            "REVEILLE_DATABASE_URL": settings.url,
            "REVEILLE_DATABASE_PASSWORD_FILE": str(settings.password_file),
            "REVEILLE_TRUSTED_KEYS_FILE": str(keys.trusted_file),
            "REVEILLE_SERVICE_KEY_FILE": str(keys.private_key("scheduler")),
            "REVEILLE_HANDLERS": json.dumps({"owner": f"127.0.0.1:{handler}"}),
            "REVEILLE_TICK_INTERVAL": "0.2",
            "REVEILLE_LEASE_RENEWAL": "1",
            "REVEILLE_DRAIN_GRACE": "2",
            "REVEILLE_LOG_LEVEL": "warning",
        }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
