"""What a supervisor writes down: supervisor.json for people, endpoints.json for clients."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from reveille_cli.stack.datadir import DataDir, read_json, write_json
from reveille_cli.stack.errors import DataDirUnusable, RecordDamaged
from reveille_cli.stack.identity import ProcessIdentity
from reveille_cli.stack.localize import DatabaseAddress
from reveille_cli.stack.process import ProcessState, ProcessStatus


class Phase(StrEnum):
    """What a supervisor is doing."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Record:
    """The last thing a supervisor wrote down."""

    supervisor: ProcessIdentity
    phase: Phase
    compose_file: str
    started_at: float
    database: DatabaseAddress | None
    hooks_url: str
    processes: tuple[ProcessStatus, ...]


def own_version() -> str:
    """Return the version of this command."""
    try:
        return version("reveille-cli")
    except PackageNotFoundError:
        return "unknown"


def write_record(data_dir: DataDir, record: Record) -> None:
    """Replace supervisor.json."""
    write_json(
        data_dir.record,
        {
            "reveille": own_version(),
            "supervisor": record.supervisor.as_json(),
            "phase": record.phase,
            "compose_file": record.compose_file,
            "started_at": record.started_at,
            "database": _database_json(record.database),
            "hooks_url": record.hooks_url,
            "processes": [process_json(status) for status in record.processes],
        },
    )


def read_record(data_dir: DataDir) -> Record | None:
    """Read supervisor.json; None when there never was a supervisor here."""
    try:
        document = json.loads(data_dir.record.read_text(encoding="utf-8"))
        return _record(document)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataDirUnusable(f"cannot read {data_dir.record}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RecordDamaged(
            f"{data_dir.record} is damaged: nothing in it can be relied on",
            hint="`reveille down` stops what runs here and removes it; `up` writes it anew",
        ) from error


def _record(document: Mapping[str, Any]) -> Record:
    return Record(
        supervisor=ProcessIdentity.read(document["supervisor"]),
        phase=Phase(document["phase"]),
        compose_file=str(document["compose_file"]),
        started_at=float(document["started_at"]),
        database=_database(document["database"]),
        hooks_url=str(document["hooks_url"]),
        processes=tuple(read_process(entry) for entry in document["processes"]),
    )


def write_endpoints(data_dir: DataDir, database: str, processes: Sequence[ProcessStatus]) -> None:
    """Replace endpoints.json: each service's replicas, in order, with their addresses."""
    services: dict[str, list[dict[str, object]]] = {}
    for status in processes:
        if status.addresses:
            entry: dict[str, object] = {
                **status.addresses,
                "process": status.name,
                "pid": status.pid,
            }
            services.setdefault(status.service, []).append(entry)
    write_json(
        data_dir.endpoints,
        {
            "reveille": own_version(),
            "supervisor": os.getpid(),
            "written_at": time.time(),
            "database": database,
            "services": services,
        },
    )


def read_endpoints(data_dir: DataDir) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """Return where each service listens: its replicas, each with `grpc`, perhaps `http`, and `pid`.

    Empty when no stack runs here.
    """
    document = read_json(data_dir.endpoints)
    return document["services"] if document else {}


def _database_json(address: DatabaseAddress | None) -> dict[str, object] | None:
    if address is None:
        return None
    return {**asdict(address), "password_file": str(address.password_file)}


def _database(entry: Mapping[str, Any] | None) -> DatabaseAddress | None:
    if entry is None:
        return None
    return DatabaseAddress(**{**entry, "password_file": Path(entry["password_file"])})


def process_json(status: ProcessStatus) -> dict[str, object]:
    """Return a status as JSON."""
    return {
        "name": status.name,
        "service": status.service,
        "replica": status.replica,
        "state": status.state,
        "identity": status.identity.as_json() if status.identity else None,
        "exit_code": status.exit_code,
        "started_at": status.started_at,
        "addresses": dict(status.addresses),
        "log": status.log,
    }


def read_process(entry: Mapping[str, Any]) -> ProcessStatus:
    """Read what `process_json` made."""
    return ProcessStatus(
        name=entry["name"],
        service=entry["service"],
        replica=entry["replica"],
        state=ProcessState(entry["state"]),
        identity=ProcessIdentity.read(entry["identity"]) if entry["identity"] else None,
        exit_code=entry["exit_code"],
        started_at=entry["started_at"],
        addresses=entry["addresses"],
        log=entry["log"],
    )
