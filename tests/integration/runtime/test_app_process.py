"""A service as a process: how it starts, what it says, in which order it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from reveille.events.v1 import event_service_pb2 as events
from reveille.events.v1 import event_service_pb2_grpc as events_grpc
from reveille_runtime.app import CLOSING, SETTLING
from reveille_runtime.client import Channels, stream
from reveille_runtime.telemetry import Telemetry
from reveille_testkit.rpc import Keyring

PROGRAM = Path(__file__).with_name("app_process.py")


class Process:
    """The running program: its lines, its logs, its end."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []

    async def line(self, start: str) -> str:
        """Read until a line begins so."""
        assert self.process.stdout is not None
        async with asyncio.timeout(30):
            while raw := await self.process.stdout.readline():
                self.lines.append(raw.decode().strip())
                if self.lines[-1].startswith(start):
                    return self.lines[-1].removeprefix(start).strip()
        raise AssertionError(f"ended without {start!r}: {self.lines}")

    async def end(self) -> tuple[int, list[str], list[dict[str, Any]]]:
        """Wait for the end: exit code, lines, log entries."""
        async with asyncio.timeout(30):
            out, err = await self.process.communicate()
        assert self.process.returncode is not None
        logged = [json.loads(line) for line in err.decode().splitlines() if line.startswith("{")]
        return self.process.returncode, self.lines + out.decode().split("\n")[:-1], logged


class Launcher:
    """Starts the program in a clean environment."""

    def __init__(self, folder: Path) -> None:
        self.keys = Keyring(folder / "keys")
        self.folder = folder
        self.started: list[Process] = []

    async def start(self, *arguments: str, **variables: str) -> Process:
        environ = {
            "PATH": os.environ["PATH"],
            "REVEILLE_LISTEN": "127.0.0.1:0",
            "REVEILLE_DATABASE_URL": "postgresql://app@127.0.0.1:1/reveille",
            "REVEILLE_TRUSTED_KEYS_FILE": str(self.keys.trusted_file),
            "REVEILLE_SERVICE_KEY_FILE": str(self.keys.private_key("autopilot")),
            "REVEILLE_OTLP_DIR": str(self.folder / "otlp"),
            **{f"REVEILLE_{name.upper()}": value for name, value in variables.items()},
        }
        process = Process(
            await asyncio.create_subprocess_exec(
                sys.executable,
                "-W",
                "error",
                str(PROGRAM),
                *arguments,
                env=environ,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        )
        self.started.append(process)
        return process


@pytest.fixture
async def launcher(tmp_path: Path) -> AsyncIterator[Launcher]:
    launcher = Launcher(tmp_path)
    yield launcher
    for each in launcher.started:
        if each.process.returncode is None:
            each.process.kill()
            await each.process.communicate()


async def health(address: str) -> str:
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        reply = await stub.Check(health_pb2.HealthCheckRequest(), timeout=5)
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_service_ends_in_order(launcher: Launcher, number: signal.Signals) -> None:
    service = await launcher.start()
    address = await service.line("address")
    await service.line("claimed")
    token = launcher.keys.service("heartbeat")
    async with Channels(
        {"it": address}, telemetry=Telemetry.off(), token=lambda: token
    ) as channels:
        stub = events_grpc.EventServiceStub(channels.get("it"))
        async with stream(stub.WatchEvents(events.WatchEventsRequest())) as replies:
            await anext(aiter(replies))
            assert await health(address) == "SERVING"
            service.process.send_signal(number)
            code, lines, logged = await service.end()

    assert code == 0
    ending = lines[lines.index("claimed") + 1 :]
    assert set(ending[:2]) == {"watch ended", "front end closed"}
    assert ending[2:] == ["worker ended", "resource closed"]
    assert [entry["action"] for entry in logged] == [
        "service.starting",
        "service.ready",
        "service.stopping",
        "service.stopped",
    ]
    (traces,) = (launcher.folder / "otlp").iterdir()
    assert "WatchEvents" in traces.read_text()


async def test_a_service_that_still_waits_is_not_serving_and_stops_at_once(
    launcher: Launcher,
) -> None:
    service = await launcher.start(behave="wait")
    address = await service.line("address")

    assert await health(address) == "NOT_SERVING"
    service.process.terminate()
    code, lines, logged = await service.end()

    assert code == 0
    assert lines[-1] == "resource closed"
    assert "service.ready" not in [entry["action"] for entry in logged]


async def test_each_part_of_a_stop_has_its_time_and_none_keeps_the_next_from_its_turn(
    launcher: Launcher,
) -> None:
    """Whoever asked for the stop kills the process when that takes longer than was agreed."""
    service = await launcher.start(behave="stick", drain_grace="0.1")
    await service.line("claimed")
    began = time.monotonic()
    service.process.terminate()
    code, lines, logged = await service.end()

    assert code == 0
    assert time.monotonic() - began < 3 * (0.1 + SETTLING) + CLOSING
    assert lines[-3:] == ["front end closed", "worker ended", "resource closed"]
    assert [entry["action"] for entry in logged][3:] == [
        "task.failed",
        "component.stop_timeout",
        "service.stop_overdue",
        "service.stopped",
    ]


async def test_a_failed_start_closes_what_was_opened(launcher: Launcher) -> None:
    code, lines, logged = await (await launcher.start(behave="fail")).end()

    assert code == 1
    assert lines[-1] == "resource closed"
    assert "service.start_failed" in [entry["action"] for entry in logged]


async def test_a_taken_port_is_told_in_one_line(launcher: Launcher) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, lines, logged = await (await launcher.start(listen=f"127.0.0.1:{port}")).end()

    assert code == 3
    assert lines == []
    (refusal,) = [entry for entry in logged if entry["level"] == "error"]
    assert f"cannot listen on 127.0.0.1:{port}" in refusal["event"]


async def test_a_broken_key_file_is_named(launcher: Launcher) -> None:
    launcher.keys.trusted_file.write_text("{}")

    code, _, logged = await (await launcher.start()).end()

    assert code == 2
    assert logged[0]["action"] == "service.bad_key_file"
    assert "trusted_keys.json" in logged[0]["problem"]


async def test_wrong_settings_end_with_code_2(launcher: Launcher) -> None:
    code, lines, _ = await (await launcher.start(listen="nowhere", drain_grace="-1")).end()

    assert code == 2
    assert lines == []


async def test_the_settings_can_be_printed(launcher: Launcher) -> None:
    code, lines, _ = await (await launcher.start("--print-config")).end()

    assert code == 0
    assert json.loads("\n".join(lines))["behave"] == "serve"
