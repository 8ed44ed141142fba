"""`python -m reveille_heartbeat`: one replica of the heartbeat service."""

from __future__ import annotations

from reveille_heartbeat.adapters.process import become_guardian
from reveille_heartbeat.config import Settings
from reveille_heartbeat.wiring import build
from reveille_runtime.app import main

# All its children are agents: whatever one of them leaves behind is seen, and reaped, here.
become_guardian()
main(Settings, build)
