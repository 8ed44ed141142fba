"""What to run: a compose file, where its data lies, and how the run differs from the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

_PATHS = ("compose_file", "data_dir")


@dataclass(frozen=True, slots=True)
class StackOptions:
    """What to run, where, and how it differs from the file."""

    compose_file: Path
    data_dir: Path
    free_ports: bool = False
    scale: Mapping[str, int] = field(default_factory=dict)
    environment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Settings by service or replica name, `*` for all; they win over the file."""
    database_url: str | None = None
    """An administrator's URL of a PostgreSQL to use instead of the embedded one."""
    durable: bool = True
    """Whether the embedded server's data must outlive a power cut."""
    ready_timeout: float = 60.0

    def as_json(self) -> dict[str, Any]:
        """Return the form in which they are given to another process."""
        return {**asdict(self), **{name: str(getattr(self, name)) for name in _PATHS}}

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> StackOptions:
        """Read what `as_json` made."""
        return cls(**{**document, **{name: Path(document[name]) for name in _PATHS}})
