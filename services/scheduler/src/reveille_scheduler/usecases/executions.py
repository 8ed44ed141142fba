"""Read the ledger of occurrences."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from reveille_runtime.db import Database
from reveille_runtime.errors import NotFound
from reveille_scheduler.domain.occurrence import Execution
from reveille_scheduler.domain.states import ExecutionState
from reveille_scheduler.store import executions


class Executions:
    """The ledger, for reading."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, execution_id: UUID) -> Execution:
        """Read one occurrence.

        Raises:
            NotFound: there is none with this id.
        """
        async with self._database.session() as tx:
            found = await executions.get(tx, execution_id)
        if found is None:
            raise NotFound(
                "NOT_FOUND",
                f"there is no execution {execution_id}",
                {"execution_id": str(execution_id)},
            )
        return found

    async def page(
        self,
        job_name: str | None,
        scope_id: str | None,
        states: Sequence[ExecutionState],
        before: tuple[datetime, UUID] | None,
        limit: int,
    ) -> list[Execution]:
        """List occurrences, newest planned first."""
        async with self._database.session() as tx:
            return await executions.page(tx, job_name, scope_id, states, before, limit)
