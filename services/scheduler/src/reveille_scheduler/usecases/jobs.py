"""Register, read, pause and resume jobs."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from reveille_runtime.db import Database
from reveille_runtime.errors import FieldViolation, InvalidArgument, NotFound
from reveille_scheduler.domain.job import Job, Problem, StoredJob, problems
from reveille_scheduler.store import jobs


class Jobs:
    """The registry of jobs.

    `handlers` are the targets this scheduler may call, `renewal` is how often it renews leases.
    """

    def __init__(self, database: Database, handlers: Collection[str], renewal: timedelta) -> None:
        self._database = database
        self._handlers = frozenset(handlers)
        self._renewal = renewal

    def problems(self, job: Job) -> list[Problem]:
        """Name everything that is wrong with a job."""
        return problems(job, self._handlers, self._renewal)

    async def register(self, job: Job) -> StoredJob:
        """Store a job.

        Raises:
            InvalidArgument: it breaks an invariant; all violations are named.
        """
        if found := self.problems(job):
            raise InvalidArgument(
                [FieldViolation(f"job.{each.field}", each.description) for each in found],
                reason="INVALID_FIELD",
            )
        async with self._database.transaction() as tx:
            return await jobs.upsert(tx, job)

    async def get(self, name: str) -> StoredJob:
        """Read one job.

        Raises:
            NotFound: there is none of this name.
        """
        async with self._database.session() as tx:
            return _found(await jobs.get(tx, name), name)

    async def pause(self, name: str, note: str) -> StoredJob:
        """Stop planning and retries; what runs goes on. Raises NotFound."""
        async with self._database.session() as tx:
            return _found(await jobs.pause(tx, name, note), name)

    async def resume(self, name: str) -> StoredJob:
        """End a pause; what was missed is caught up by the job's rules. Raises NotFound."""
        async with self._database.session() as tx:
            return _found(await jobs.resume(tx, name), name)

    async def page(self, after: str | None, limit: int) -> list[StoredJob]:
        """List jobs by name."""
        async with self._database.session() as tx:
            return await jobs.page(tx, after, limit)


def _found(stored: StoredJob | None, name: str) -> StoredJob:
    if stored is None:
        raise unknown_job(name)
    return stored


def unknown_job(name: str) -> NotFound:
    """Make the error for a job that is not registered."""
    return NotFound("NOT_FOUND", f"no job called {name} is registered", {"job_name": name})
