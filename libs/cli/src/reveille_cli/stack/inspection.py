"""How a stack is doing, seen from outside: its record, processes, services and database."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

import asyncpg

from reveille_cli.stack.datadir import DataDir
from reveille_cli.stack.health import Health, probe
from reveille_cli.stack.leftovers import count_agents, find_leftovers
from reveille_cli.stack.localize import DatabaseAddress
from reveille_cli.stack.lock import is_locked
from reveille_cli.stack.process import RUNNING, ProcessState, ProcessStatus
from reveille_cli.stack.record import Phase, Record, read_record
from reveille_runtime.queries import load_queries

_QUERIES = load_queries("reveille_cli.stack", "inspection.sql")
_HELD_TRANSACTIONS = 100_000
_CONNECT_TIMEOUT = 3.0


@dataclass(frozen=True, slots=True)
class ProcessView:
    """A process, and what it answers now."""

    status: ProcessStatus
    alive: bool
    health: Health | None
    uptime: float | None

    @property
    def is_good(self) -> bool:
        """Whether nothing is to be done about it."""
        if self.status.state is ProcessState.DONE:
            return True
        return self.alive and self.health in {None, Health.SERVING}


@dataclass(frozen=True, slots=True)
class DatabaseView:
    """The database, and what it warns about."""

    address: DatabaseAddress
    problem: str
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StackView:
    """A whole stack at one moment."""

    record: Record
    running: bool
    processes: tuple[ProcessView, ...]
    database: DatabaseView | None
    leftovers: int
    agents: int

    @property
    def died(self) -> bool:
        """Whether its supervisor ended without stopping it."""
        return not self.running and self.record.phase is not Phase.STOPPED

    @property
    def is_good(self) -> bool:
        """Whether it runs and nothing is wrong."""
        database_good = self.database is None or not self.database.problem
        return (
            self.running
            and self.record.phase is Phase.RUNNING
            and database_good
            and all(process.is_good for process in self.processes)
        )


def inspect(data_dir: DataDir) -> StackView | None:
    """Look at the stack of a data directory; None when there never was one."""
    running = is_locked(data_dir)
    record = read_record(data_dir)
    if record is None:
        return None
    database = record.database if running else None
    return StackView(
        record=record,
        running=running,
        processes=tuple(_process(status) for status in record.processes),
        database=_database(database) if database else None,
        leftovers=0 if running else len(find_leftovers(data_dir)),
        agents=count_agents(data_dir),
    )


def _process(status: ProcessStatus) -> ProcessView:
    alive = status.state in RUNNING and status.identity is not None and status.identity.is_alive()
    address = status.addresses.get("grpc")
    return ProcessView(
        status=status,
        alive=alive,
        health=probe(address) if alive and address else None,
        uptime=time.time() - status.started_at if alive and status.started_at else None,
    )


def _database(address: DatabaseAddress) -> DatabaseView:
    try:
        warnings = asyncio.run(_warnings(address))
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        return DatabaseView(address=address, problem=str(error) or repr(error), warnings=())
    return DatabaseView(address=address, problem="", warnings=tuple(warnings))


async def _warnings(address: DatabaseAddress) -> Sequence[str]:
    connection = await asyncpg.connect(
        address.url(address.user),
        password=address.password_file.read_text(encoding="utf-8").strip() or None,
        timeout=_CONNECT_TIMEOUT,
        server_settings={"application_name": "reveille-status"},
    )
    try:
        rows = await connection.fetch(_QUERIES["held_horizon"].sql, _HELD_TRANSACTIONS)
        found = [
            f"{row['application']} (pid {row['pid']}) reads a snapshot that is {row['behind']}"
            " transactions old and holds back the clean-up of dead rows"
            for row in rows
        ]
        usage = await connection.fetchrow(_QUERIES["connection_usage"].sql)
        if usage is not None and usage["used"] * 10 >= usage["allowed"] * 9:
            found.append(f"{usage['used']} of {usage['allowed']} connections are in use")
        return found
    finally:
        await connection.close()
