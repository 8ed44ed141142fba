"""The adapter `process`: an agent is a command, started in a session of its own."""

from __future__ import annotations

from reveille_heartbeat.adapters.process.adapter import ProcessAdapter
from reveille_heartbeat.adapters.process.orphans import become_guardian

__all__ = ["ProcessAdapter", "become_guardian"]
