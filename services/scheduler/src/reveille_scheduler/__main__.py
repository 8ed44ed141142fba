"""`python -m reveille_scheduler`: one replica of the scheduler."""

from __future__ import annotations

from reveille_runtime.app import main
from reveille_scheduler.config import Settings
from reveille_scheduler.wiring import build

main(Settings, build)
