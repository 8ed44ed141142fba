"""The data directory of a local stack: what lies where, and with which mode.

keys/             private keys, sealing keys, database passwords (0700, files 0600)
postgres/         the embedded server's files
volumes/<name>/   what the compose file mounts as a named volume
logs/<name>.log   output of one process
otlp/             telemetry as OTLP JSON lines
endpoints.json    where the services listen; holds no secret
supervisor.json   who runs this stack and what became of its processes
supervisor.lock   held for as long as a supervisor lives; says which
ports.json        the free ports that were given out, for the next time
"""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reveille_cli.stack.errors import DataDirUnusable

DATA_DIR_VARIABLE = "REVEILLE_DATA_DIR"
DEFAULT_DATA_DIR = Path(".reveille")
_PRIVATE_DIRECTORY = 0o700


def default_data_dir() -> Path:
    """Return the directory that REVEILLE_DATA_DIR names, else `.reveille` in the current one."""
    return Path(os.environ.get(DATA_DIR_VARIABLE) or DEFAULT_DATA_DIR)


@dataclass(frozen=True, slots=True)
class DataDir:
    """The paths of one data directory."""

    root: Path

    @classmethod
    def at(cls, path: Path) -> DataDir:
        """Name a data directory without touching it."""
        return cls(root=path.expanduser().resolve())

    @property
    def keys(self) -> Path:
        """Folder of every secret."""
        return self.root / "keys"

    @property
    def postgres(self) -> Path:
        """Folder of the embedded server."""
        return self.root / "postgres"

    @property
    def logs(self) -> Path:
        """Folder of the processes' output."""
        return self.root / "logs"

    @property
    def otlp(self) -> Path:
        """Folder of the telemetry files."""
        return self.root / "otlp"

    @property
    def volumes(self) -> Path:
        """Folder of the named volumes."""
        return self.root / "volumes"

    @property
    def endpoints(self) -> Path:
        """File that says where the services listen."""
        return self.root / "endpoints.json"

    @property
    def record(self) -> Path:
        """File that says who runs the stack."""
        return self.root / "supervisor.json"

    @property
    def lock(self) -> Path:
        """File whose lock a supervisor holds."""
        return self.root / "supervisor.lock"

    @property
    def ports(self) -> Path:
        """File that remembers free ports."""
        return self.root / "ports.json"

    @property
    def postgres_log(self) -> Path:
        """File of what the embedded server says."""
        return self.postgres / "postgres.log"

    def log(self, process: str) -> Path:
        """Name the output file of one process."""
        return self.logs / f"{process}.log"

    def begin_log(self, process: str) -> Path:
        """Make room for a new log, keeping the one of the run before."""
        log = self.log(process)
        if log.exists():
            log.replace(log.with_suffix(".log.1"))
        return log

    def volume(self, name: str) -> Path:
        """Name the folder that stands for a named volume."""
        return self.volumes / name

    def prepare(self) -> None:
        """Create what is missing and close what is too open; refuse what is not usable."""
        try:
            for folder in (self.root, self.keys, self.logs, self.otlp, self.volumes):
                _private_folder(folder)
        except FileExistsError as error:
            raise DataDirUnusable(
                f"{error.filename} is in the way: it is not a directory",
                hint="name another data directory with --data-dir",
            ) from error
        except OSError as error:
            raise DataDirUnusable(
                f"cannot use the data directory {self.root}: {error.strerror} ({error.filename})",
                hint="name another one with --data-dir, or correct its owner and mode",
            ) from error
        if not os.access(self.root, os.R_OK | os.W_OK | os.X_OK):
            raise DataDirUnusable(
                f"the data directory {self.root} cannot be read and written by this user",
                hint="name another one with --data-dir, or correct its owner and mode",
            )


def _private_folder(folder: Path) -> None:
    folder.mkdir(mode=_PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    if stat.S_IMODE(folder.stat().st_mode) & 0o077:
        folder.chmod(_PRIVATE_DIRECTORY)


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner reads, whole or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with suppress(FileNotFoundError):
        draft.unlink()
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def write_json(path: Path, document: object) -> None:
    """Write a JSON file whole or not at all."""
    write_private(path, json.dumps(document, indent=2).encode() + b"\n")


def read_json(path: Path) -> Any | None:
    """Read a JSON file; None when it is not there or was never finished."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        return None
    except OSError as error:
        raise DataDirUnusable(f"cannot read {path}: {error.strerror}") from error
