"""Renew the leases of this process, all in one statement."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from uuid import UUID

from reveille_runtime.db import Database
from reveille_runtime.lease import Lease
from reveille_webhook.store import queue


class Renew:
    """One round of renewals."""

    def __init__(self, database: Database, lease: float) -> None:
        self._database = database
        self._lease = timedelta(seconds=lease)

    async def __call__(self, leases: Sequence[Lease]) -> Collection[UUID]:
        """Give the leases that are still ours; an empty round proves that the database answers."""
        async with self._database.session() as tx:
            return await queue.renew(tx, leases, self._lease)
