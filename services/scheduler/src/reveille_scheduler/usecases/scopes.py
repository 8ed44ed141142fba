"""Store what owners want planned."""

from __future__ import annotations

from collections.abc import Sequence

from reveille_cron import CronError
from reveille_runtime.db import Database, Tx
from reveille_runtime.errors import FieldViolation, InvalidArgument, NotFound
from reveille_runtime.validation import EPOCH
from reveille_scheduler.domain.planning import first_plan
from reveille_scheduler.domain.scope import Scope, ScopeDeletion, ScopeWish
from reveille_scheduler.store import jobs, scopes


class Scopes:
    """The registry of scopes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, wishes: Sequence[ScopeWish]) -> list[Scope]:
        """Store wishes; one at or below the stored revision changes nothing.

        Raises:
            InvalidArgument: a rule cannot be evaluated; nothing of the batch is stored.
            NotFound: a job is not registered.
        """
        _evaluate(wishes)
        # Sorted, so that two batches over the same scopes cannot deadlock.
        ordered = sorted(wishes, key=lambda each: (each.job_name, each.kind, each.id))
        async with self._database.transaction() as tx:
            await self._require_jobs(tx, [each.job_name for each in wishes])
            now = await scopes.now(tx)
            for wish in ordered:
                start = wish.effective_from or now
                following = first_plan(wish.cron, wish.time_zone, start) if wish.enabled else None
                await scopes.put(tx, wish, start, following)
            stored = await scopes.by_key(
                tx, [(each.job_name, each.kind, each.id) for each in ordered]
            )
        return [stored[each.job_name, each.kind, each.id] for each in wishes]

    async def delete(self, deletions: Sequence[ScopeDeletion]) -> None:
        """Leave tombstones.

        Raises:
            NotFound: a job is not registered.
        """
        ordered = sorted(deletions, key=lambda each: (each.job_name, each.kind, each.id))
        async with self._database.transaction() as tx:
            await self._require_jobs(tx, [each.job_name for each in deletions])
            for deletion in ordered:
                await scopes.delete(tx, deletion)

    async def page(self, job_name: str, after: tuple[str, str] | None, limit: int) -> list[Scope]:
        """List a job's scopes by kind and id."""
        async with self._database.session() as tx:
            return await scopes.page(tx, job_name, after, limit)

    @staticmethod
    async def _require_jobs(tx: Tx, names: Sequence[str]) -> None:
        known = await jobs.by_name(tx, names)
        for name in names:
            if name not in known:
                raise NotFound(
                    "NOT_FOUND", f"no job called {name} is registered", {"job_name": name}
                )


def _evaluate(wishes: Sequence[ScopeWish]) -> None:
    """Refuse rules that cannot be evaluated, naming each."""
    violations = []
    for index, wish in enumerate(wishes):
        try:
            first_plan(wish.cron, wish.time_zone, EPOCH)
        except CronError as error:
            field = "time_zone" if error.field == "time_zone" else "cron"
            violations.append(
                FieldViolation(f"scopes[{index}].{field}", str(error), error.reason.upper())
            )
    if violations:
        raise InvalidArgument(violations)
