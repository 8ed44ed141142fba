"""`python -m reveille_autopilot`: one replica of the autopilot service."""

from __future__ import annotations

from reveille_autopilot.config import Settings
from reveille_autopilot.wiring import build
from reveille_runtime.app import main

main(Settings, build)
