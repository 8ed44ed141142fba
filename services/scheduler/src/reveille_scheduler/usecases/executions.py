"""Read the ledger of occurrences, and ask for another attempt of one that failed for good."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from reveille_runtime.db import Database, Tx
from reveille_runtime.errors import FailedPrecondition, NotFound
from reveille_scheduler.domain.occurrence import Execution
from reveille_scheduler.domain.states import ExecutionState
from reveille_scheduler.store import jobs, ledger, scopes
from reveille_scheduler.store.ledger import Filter

__all__ = ["Executions", "Filter"]


class Executions:
    """The ledger, for operators and owners."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, execution_id: UUID) -> Execution:
        """Read one occurrence.

        Raises:
            NotFound: there is none with this id.
        """
        async with self._database.session() as tx:
            return await _get(tx, execution_id)

    async def page(
        self, wanted: Filter, after: tuple[datetime, UUID] | None, limit: int
    ) -> list[Execution]:
        """List occurrences, newest planned first."""
        async with self._database.session() as tx:
            return await ledger.page(tx, wanted, after, limit)

    async def retry(self, tx: Tx, execution_id: UUID) -> Execution:
        """Give a final failure as many attempts as its job allows, from now on.

        Raises:
            NotFound: there is none with this id.
            FailedPrecondition: it did not fail for good, or its scope is gone.
        """
        found = await _get(tx, execution_id)
        known = await jobs.by_name(tx, [found.job_name])
        key = (found.job_name, found.scope_kind, found.scope_id)
        scope = (await scopes.by_key(tx, [key])).get(key)
        if scope is None or scope.deleted:
            raise FailedPrecondition(
                "WRONG_STATE", "its scope was deleted, so nobody would handle it"
            )
        job = known[found.job_name]
        asked = await ledger.ask_for_retry(tx, execution_id, job.max_attempts, job.retry_deadline)
        if asked is None:
            raise FailedPrecondition("WRONG_STATE", _why_not(await _get(tx, execution_id)))
        return asked


async def _get(tx: Tx, execution_id: UUID) -> Execution:
    found = await ledger.get(tx, execution_id)
    if found is None:
        raise NotFound(
            "NOT_FOUND",
            f"there is no execution {execution_id}",
            {"execution_id": str(execution_id)},
        )
    return found


def _why_not(found: Execution) -> str:
    match found.state:
        case ExecutionState.RUNNING:
            return "an attempt of it runs"
        case ExecutionState.SUCCESS:
            return "it succeeded"
        case ExecutionState.SKIPPED:
            return "it was skipped; BackfillScope executes what was too late"
        case ExecutionState.FAILED:
            return "it is tried again by itself"
