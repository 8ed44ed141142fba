"""What the benches share: a durable server of their own, databases at head, medians, the last line.

Nothing here measures; nothing here needs preparation.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from reveille_cli.stack.postgres import EmbeddedPostgres, PostgresSettings
from reveille_testkit.cluster import SessionCluster, TestCluster
from reveille_testkit.database import TestDatabase, temporary_database

ROOT = Path(__file__).resolve().parents[1]


@contextmanager
def durable_cluster() -> Iterator[TestCluster]:
    """Run a server as production would, fsync included, for as long as the bench takes."""
    with tempfile.TemporaryDirectory(prefix="reveille-bench-") as text:
        folder = Path(text)
        settings = PostgresSettings(owner_pid=os.getpid(), shared_buffers="512MB")
        server = EmbeddedPostgres(folder / "postgres", settings=settings)
        server.start()
        try:
            host = server.url().partition("@")[2]
            password = quote(server.superuser_password, safe="")
            session = SessionCluster(
                folder, os.getpid(), f"postgresql://postgres:{password}@{host}"
            )
            yield session.get()
        finally:
            server.stop()


@asynccontextmanager
async def fresh_database(cluster: TestCluster) -> AsyncIterator[TestDatabase]:
    """Make a database at head for one run."""
    async with temporary_database(cluster, cluster.template) as database:
        yield database


@contextmanager
def process(arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> Iterator[None]:
    """Run a process of this interpreter; end it and wait for it."""
    with log.open("wb") as out:
        child = subprocess.Popen(
            [sys.executable, *arguments],
            env={**os.environ, **environment},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        try:
            yield
        finally:
            child.terminate()
            try:
                child.wait(15)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def free_port() -> int:
    """Give a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def percentile(values: Sequence[float], share: float) -> float:
    """Give the value below which that share of all lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@dataclass
class Report:
    """The figures of a bench, its floors, and its one last line."""

    name: str
    figures: dict[str, float] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    missed: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def figure(self, name: str, values: Sequence[float], unit: str) -> float:
        """Note the median of interleaved runs."""
        median = statistics.median(values)
        self.figures[name] = round(median, 4)
        runs = ", ".join(f"{value:.4g}" for value in values)
        print(f"{name}: {median:.4g} {unit}   (runs: {runs})", flush=True)
        return median

    def ratio(self, name: str, value: float) -> None:
        """Note a ratio of two figures of this run."""
        self.ratios[name] = round(value, 3)
        print(f"{name}: {value:.3f}", flush=True)

    def require(self, holds: bool, floor: str) -> None:
        """Judge a floor."""
        print(f"{'holds' if holds else 'MISSED'}: {floor}", flush=True)
        if not holds:
            self.missed.append(floor)

    def end(self, **conditions: object) -> int:
        """Print the last line; the exit code says whether every floor was held."""
        machine = {
            "cpus": os.cpu_count(),
            "load_1m": round(os.getloadavg()[0], 2),
            "python": platform.python_version(),
            "seconds": round(time.monotonic() - self.started, 1),
        }
        line = {
            "name": self.name,
            "figures": self.figures,
            "ratios": self.ratios,
            "missed": self.missed,
            "conditions": {**machine, **conditions},
        }
        print(json.dumps(line), flush=True)
        return 1 if self.missed else 0
