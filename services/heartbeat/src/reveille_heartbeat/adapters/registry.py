"""The adapters installed here, found by the entry point group `reveille.adapters`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from reveille_heartbeat.adapters.contract import Adapter, Problem

GROUP = "reveille.adapters"


class Registry:
    """Adapters by name; each is made once."""

    def __init__(self, adapters: Mapping[str, Adapter]) -> None:
        self._adapters = dict(adapters)

    @classmethod
    def installed(cls) -> Registry:
        """Load every adapter that any installed package offers."""
        return cls({entry.name: entry.load()() for entry in entry_points(group=GROUP)})

    @property
    def names(self) -> list[str]:
        """The names known, for messages."""
        return sorted(self._adapters)

    def find(self, name: str) -> Adapter | None:
        """Give an adapter; None when this replica does not have it."""
        return self._adapters.get(name)

    def check(self, name: str, config: Mapping[str, Any]) -> list[Problem]:
        """Judge an agent's adapter and its settings; paths are those of the request."""
        adapter = self.find(name)
        if adapter is None:
            known = ", ".join(self.names)
            return [Problem("adapter", f"is not one of: {known}")]
        return [
            Problem(f"adapter_config.{problem.field}", problem.description)
            for problem in adapter.check(config)
        ]
