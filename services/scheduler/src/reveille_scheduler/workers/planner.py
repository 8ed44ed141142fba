"""The tick: plan what is due, claim what is to be tried again, pass both to the executor."""

from __future__ import annotations

from reveille_scheduler.usecases.claim_retries import ClaimRetries
from reveille_scheduler.usecases.plan_due import PlanDue
from reveille_scheduler.workers.executor import Executor


class Planner:
    """One step of the planning loop; it costs what is due, not what exists."""

    def __init__(
        self, plan_due: PlanDue, claim_retries: ClaimRetries, executor: Executor, batch: int
    ) -> None:
        self._plan_due = plan_due
        self._claim_retries = claim_retries
        self._executor = executor
        self._batch = batch

    async def step(self) -> float | None:
        """Plan one batch; 0 means that there may be more right now."""
        # Older promises first: a retry is due longer than anything new.
        limit = min(self._batch, self._executor.free)
        if limit == 0:
            return None
        retries = await self._claim_retries(limit)
        self._executor.start(retries.claims)
        limit = min(self._batch, self._executor.free)
        if limit == 0:
            return None
        planned = await self._plan_due(limit)
        self._executor.start(planned.claims)
        return 0 if planned.looked_at == limit or retries.claims else None
