"""A database that is down when a service starts: it waits, says so, and serves once it can."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from reveille_cli.stack.health import Health, probe
from reveille_testkit.waiting import eventually

from .harness import World

SERVICES = ("scheduler", "autopilot", "webhook-gateway", "heartbeat")


def free_address() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{found.getsockname()[1]}"


class Gate:
    """A port that leads to the database once it is open, and nowhere before."""

    def __init__(self, target: str) -> None:
        self.address = free_address()
        self._target = target
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        host, port = self.address.rsplit(":", 1)
        self._server = await asyncio.start_server(self._pass_on, host, int(port))

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = self._target.rsplit(":", 1)
        beyond, back = await asyncio.open_connection(host, int(port))
        await asyncio.gather(_copy(reader, back), _copy(beyond, writer))


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
    target.close()


@dataclass(frozen=True)
class Late:
    """A further replica that was started before its database."""

    name: str
    address: str
    process: asyncio.subprocess.Process
    log: Path

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8")

    async def health(self) -> Health:
        return await asyncio.to_thread(probe, self.address)


@contextlib.asynccontextmanager
async def started(world: World, name: str, gate: Gate, folder: Path) -> AsyncIterator[Late]:
    """Start one more replica of a service, with its database behind the gate."""
    launch = world.stack.supervisor.process(name).launch
    environment = dict(launch.environment)
    address = free_address()
    environment["REVEILLE_LISTEN"] = address
    if "REVEILLE_HTTP_LISTEN" in environment:
        environment["REVEILLE_HTTP_LISTEN"] = free_address()
    parts = urlsplit(environment["REVEILLE_DATABASE_URL"])
    environment["REVEILLE_DATABASE_URL"] = urlunsplit(
        parts._replace(netloc=f"{parts.username}@{gate.address}")
    )
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *launch.argv, env=environment, cwd=folder, stdout=output, stderr=output
        )
    try:
        yield Late(name, address, process, log)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(20):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


async def test_a_service_waits_for_its_database(world: World, tmp_path: Path) -> None:
    parts = urlsplit(world.stack.supervisor.database_url)
    gate = Gate(f"{parts.hostname}:{parts.port}")
    async with contextlib.AsyncExitStack() as running:
        late = [
            await running.enter_async_context(started(world, name, gate, tmp_path))
            for name in SERVICES
        ]

        async def waiting() -> dict[str, Health]:
            return {each.name: await each.health() for each in late}

        await eventually(
            waiting,
            "every service listens",
            until=lambda seen: set(seen.values()) == {Health.NOT_SERVING},
            timeout=40,
        )
        for each in late:

            async def said(each: Late = each) -> str:
                return each.said()

            await eventually(
                said,
                f"{each.name} says what it waits for",
                until=lambda text: "database.waiting" in text and "does not answer yet" in text,
            )
        assert set((await waiting()).values()) == {Health.NOT_SERVING}

        await gate.open()
        running.push_async_callback(gate.close)
        await eventually(
            waiting,
            "every service serves",
            until=lambda seen: set(seen.values()) == {Health.SERVING},
            timeout=40,
        )
        for each in late:
            each.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            codes = [await each.process.wait() for each in late]
        assert codes == [0, 0, 0, 0], [each.said() for each in late]
