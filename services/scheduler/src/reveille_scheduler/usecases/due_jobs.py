"""Find the jobs that have something to do now."""

from __future__ import annotations

from reveille_runtime.db import Database
from reveille_scheduler.store import jobs
from reveille_scheduler.store.jobs import DueJob

__all__ = ["DueJob", "DueJobs"]


class DueJobs:
    """The first look of a tick; a paused job has nothing to do."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def __call__(self) -> list[DueJob]:
        """Give the jobs by name."""
        async with self._database.session() as tx:
            return await jobs.due(tx)
