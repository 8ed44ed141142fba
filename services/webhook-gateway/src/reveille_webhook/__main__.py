"""`python -m reveille_webhook`: one replica of the gateway."""

from __future__ import annotations

from reveille_runtime.app import main
from reveille_webhook.config import Settings
from reveille_webhook.wiring import build

main(Settings, build)
