"""Renew the leases of this process, all in one statement."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

from reveille_runtime.db import Database
from reveille_runtime.lease import Lease
from reveille_scheduler.store import executions


class Renew:
    """One round of renewals."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def __call__(self, leases: Sequence[Lease]) -> Collection[UUID]:
        """Give the leases that are still ours; an empty round proves that the database answers."""
        async with self._database.session() as tx:
            return await executions.renew(tx, leases)
