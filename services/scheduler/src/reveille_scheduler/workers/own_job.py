"""Keeps the scheduler's own job registered: once is enough, unless the database was set back."""

from __future__ import annotations

from reveille_scheduler.usecases.jobs import Jobs
from reveille_scheduler.usecases.retention import JOB, SCOPE
from reveille_scheduler.usecases.scopes import Scopes

AGAIN_SECONDS = 300.0


class OwnJob:
    """Registers the retention job and its scope, as any owner would."""

    def __init__(self, jobs: Jobs, scopes: Scopes) -> None:
        self._jobs = jobs
        self._scopes = scopes

    async def __call__(self) -> float:
        """Register; the same again changes nothing."""
        await self._jobs.register(JOB)
        await self._scopes.put([SCOPE])
        return AGAIN_SECONDS
