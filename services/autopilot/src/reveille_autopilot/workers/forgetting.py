"""Wiping what callers may not be shown any more: answers with a credential, and old request ids."""

from __future__ import annotations

from reveille_runtime.db import Database
from reveille_runtime.requests import prune

FORGET_SECONDS = 60.0
_BATCH = 1000


async def forget(database: Database) -> float | None:
    """Wipe a batch; at once again while there is more."""
    return 0.0 if await prune(database, limit=_BATCH) >= _BATCH else None
