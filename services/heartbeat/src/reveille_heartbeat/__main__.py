"""`python -m reveille_heartbeat`: one replica of the heartbeat service."""

from __future__ import annotations

from reveille_heartbeat.config import Settings
from reveille_heartbeat.wiring import build
from reveille_runtime.app import main

main(Settings, build)
