"""Small stacks of stand-in services, written as compose files, each in a folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from typer.testing import CliRunner

from reveille_cli.main import app
from reveille_cli.stack.datadir import DataDir
from reveille_cli.stack.leftovers import find_leftovers, stop_leftovers
from reveille_cli.stack.process import ProcessState, ProcessStatus
from reveille_cli.stack.supervisor import Listener, StackOptions, Supervisor

SERVICE = Path(__file__).with_name("service.py")


class Recorder(Listener):
    """Remembers what it heard."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.states: list[tuple[str, ProcessState]] = []
        self.waits: list[tuple[str, str]] = []
        self.failures: dict[str, list[str]] = {}

    def note(self, text: str) -> None:
        self.notes.append(text)

    def changed(self, status: ProcessStatus) -> None:
        self.states.append((status.name, status.state))

    def waiting(self, status: ProcessStatus, reason: str, seconds: int) -> None:
        self.waits.append((status.name, reason))

    def failed(self, status: ProcessStatus, tail: list[str]) -> None:
        self.failures[status.name] = tail


def stand_in(port: int, **more: Any) -> dict[str, Any]:
    """Return a service that serves gRPC health on a port of its container."""
    environment = {"REVEILLE_LISTEN": f"0.0.0.0:{port}", **more.pop("environment", {})}
    return {
        "image": "stand-in:1",
        "command": ["python", str(SERVICE)],
        "environment": environment,
        "stop_grace_period": "10s",
        **more,
    }


def job(code: str, **more: Any) -> dict[str, Any]:
    """Return a one-shot that runs some Python."""
    return {"image": "stand-in:1", "command": ["python", "-c", code], **more}


@dataclass
class Place:
    """One data directory and one compose file, both thrown away after the test."""

    folder: Path
    made: list[Supervisor] = field(default_factory=list)

    @property
    def data_dir(self) -> DataDir:
        return DataDir.at(self.folder / "data")

    @property
    def compose_file(self) -> Path:
        return self.folder / "docker-compose.yml"

    def write(self, services: dict[str, Any], **top: Any) -> None:
        self.compose_file.write_text(yaml.safe_dump({"services": services, **top}))

    def supervisor(self, listener: Listener | None = None, **options: Any) -> Supervisor:
        chosen = StackOptions(
            compose_file=self.compose_file,
            data_dir=self.data_dir.root,
            free_ports=options.pop("free_ports", True),
            **options,
        )
        supervisor = Supervisor(chosen, listener)
        self.made.append(supervisor)
        return supervisor

    def reveille(self, verb: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command in this process, and return how it ended."""
        words = self.command(verb, *arguments)[3:]
        result = CliRunner().invoke(app, words)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return subprocess.CompletedProcess(words, result.exit_code, result.stdout, result.stderr)

    def command(self, verb: str, *arguments: str) -> list[str]:
        """Return the command line of `reveille` on this data directory."""
        place = ["--data-dir", str(self.data_dir.root)]
        if verb == "up":
            place += ["--file", str(self.compose_file)]
        return [sys.executable, "-m", "reveille_cli", verb, *place, *arguments]

    def settings_of(self, process: str) -> dict[str, str]:
        """Return the environment that a stand-in has seen in its latest life."""
        lines = self.data_dir.log(process).read_text().splitlines()
        said = [line for line in lines if line.startswith("{")]
        seen: dict[str, str] = json.loads(said[-1])
        return seen


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    for supervisor in made.made:
        supervisor.stop()
    record = made.data_dir.record
    if record.exists():
        _end_supervisor(json.loads(record.read_text())["supervisor"]["pid"])
    stop_leftovers(find_leftovers(made.data_dir), grace=5)


def _end_supervisor(pid: int) -> None:
    """End a detached supervisor that a failed test left behind."""
    if pid == os.getpid():
        return
    try:
        process = psutil.Process(pid)
        if any("reveille_cli" in word for word in process.cmdline()):
            process.terminate()
            process.wait(20)
    except psutil.NoSuchProcess:
        return


@pytest.fixture
def two(place: Place) -> Place:
    """`front` calls `back`, and both wait for a migration."""
    done = {"condition": "service_completed_successfully"}
    place.write(
        {
            "front": stand_in(
                7001,
                environment={"BACK_TARGET": "back:7002", "URL": "http://localhost:7001/x"},
                ports=["127.0.0.1:7001:7001"],
                depends_on={"migrate": done, "back": {"condition": "service_started"}},
            ),
            "back": stand_in(7002, depends_on={"migrate": done}),
            "migrate": job("print('migrated')"),
        }
    )
    return place
