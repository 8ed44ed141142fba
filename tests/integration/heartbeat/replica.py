"""A heartbeat replica as a process of its own: what is killed is real, and so is its restart."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.integration.heartbeat.kit import QUICK, Client

from reveille_runtime.crash import POINT_VARIABLE
from reveille_runtime.interceptors.deadline import DEFAULT_TIMEOUT
from reveille_testkit.database import TestDatabase
from reveille_testkit.rpc import Keyring


class Replica:
    """One process, from its start to its end; its log is kept for messages."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process = process
        self.log = log
        self.address = ""

    @property
    def pid(self) -> int:
        """The process' number."""
        return self.process.pid

    def send(self, number: signal.Signals) -> None:
        """Signal the process itself, none of its children."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    async def ended(self, timeout: float = 20.0) -> int:
        """Wait for its end."""
        async with asyncio.timeout(timeout):
            return await self.process.wait()

    async def listening(self) -> str:
        """Wait until it is ready, and say where."""
        async with asyncio.timeout(20):
            while not self.address:
                for line in self.log.read_text(encoding="utf-8").splitlines():
                    if '"service.ready"' in line:
                        self.address = json.loads(line)["address"]
                if self.process.returncode is not None and not self.address:
                    raise AssertionError(self.log.read_text(encoding="utf-8"))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await self.process.wait()
        return self.address


class Replicas:
    """Starts replicas over one database and one spool, and ends what is left of them."""

    def __init__(self, keys: Keyring, database: TestDatabase, folder: Path) -> None:
        self.keys = keys
        self._database = database
        self._folder = folder
        self._started: list[Replica] = []
        self._clients: list[Client] = []

    async def start(self, crash_point: str = "", **more: Any) -> Replica:
        """Start one; with a crash point it will die there."""
        app = self._database.settings("heartbeat")
        given: dict[str, Any] = {
            "listen": "127.0.0.1:0",
            "database_url": app.url,
            "database_password_file": app.password_file,
            "trusted_keys_file": self.keys.trusted_file,
            "service_key_file": self.keys.private_key("heartbeat"),
            "spool_dir": self._folder / "spool",
            "scheduler_target": "127.0.0.1:1",
        }
        environment = {"PATH": os.environ["PATH"], POINT_VARIABLE: crash_point}
        for name, value in (given | QUICK | more).items():
            environment[f"REVEILLE_{name.upper()}"] = str(value)
        log = self._folder / f"replica-{len(self._started)}.log"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "reveille_heartbeat", env=environment, stderr=output
            )
        replica = Replica(process, log)
        self._started.append(replica)
        return replica

    async def client(self, replica: Replica, timeout: float = DEFAULT_TIMEOUT) -> Client:
        """Call a replica, once it is ready."""
        client = Client(await replica.listening(), self.keys, timeout)
        self._clients.append(client)
        return client

    async def close(self) -> None:
        """End everything."""
        for client in self._clients:
            await client.close()
        for replica in self._started:
            if replica.process.returncode is None:
                # It may be stopped, and is then deaf to everything else.
                replica.send(signal.SIGKILL)
                await replica.process.wait()


@asynccontextmanager
async def replicas_of(
    keys: Keyring, database: TestDatabase, folder: Path
) -> AsyncIterator[Replicas]:
    """Give a factory of replicas for one test."""
    replicas = Replicas(keys, database, folder)
    try:
        yield replicas
    finally:
        await replicas.close()
