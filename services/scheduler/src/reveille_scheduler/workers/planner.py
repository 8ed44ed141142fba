"""The tick: for each job with something due, claim retries, plan scopes, and ask its owner."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from reveille_scheduler.domain.occurrence import Claim
from reveille_scheduler.usecases.claim_retries import ClaimRetries
from reveille_scheduler.usecases.due_jobs import DueJob, DueJobs
from reveille_scheduler.usecases.plan_due import PlanDue
from reveille_scheduler.usecases.plan_hooks import AskedBatch, PlanHooks
from reveille_scheduler.workers.executor import Executor

# Batches of one job in a row, before the other jobs have their turn.
ROUNDS = 5


class Planner:
    """One step of the planning loop; it costs what is due, not what exists.

    `lanes` plan side by side while there is more than one batch of work.
    """

    def __init__(
        self,
        due_jobs: DueJobs,
        lanes: Sequence[PlanDue],
        claim_retries: ClaimRetries,
        plan_hooks: PlanHooks,
        executor: Executor,
        batch: int,
    ) -> None:
        self._due_jobs = due_jobs
        self._lanes = tuple(lanes)
        self._claim_retries = claim_retries
        self._plan_hooks = plan_hooks
        self._executor = executor
        self._batch = batch
        self._turn = 0

    async def step(self) -> float | None:
        """Plan one batch of each job; 0 means that there may be more right now."""
        due = await self._due_jobs()
        if not due:
            return None
        # Each job is first in turn, so that none takes the whole capacity for itself.
        self._turn += 1
        first = self._turn % len(due)
        more = False
        for job in due[first:] + due[:first]:
            more = await self._one(job) or more
        return 0 if more and self._executor.free else None

    async def _one(self, job: DueJob) -> bool:
        more = False
        # Older promises first: a retry is due longer than anything new.
        if job.retries and (limit := self._limit):
            retries = await self._claim_retries(job.name, limit)
            self._executor.start(retries.claims)
            more = retries.more
        if job.plans:
            more = await self._plan(job.name) or more
        if job.hooks and (limit := self._limit):
            asked = await self._plan_hooks.take(job.name, limit)
            if asked is not None:
                self._executor.run_aside(self._ask(asked), f"plans of {job.name}")
        return more

    async def _plan(self, job_name: str) -> bool:
        lanes = self._lanes[:1]
        for _ in range(ROUNDS):
            limit = min(self._batch, self._executor.free // len(lanes))
            if limit == 0:
                return True
            batches = await asyncio.gather(
                *(lane(job_name, limit) for lane in lanes), return_exceptions=True
            )
            planned = [batch for batch in batches if not isinstance(batch, BaseException)]
            for batch in planned:
                # What one lane claimed is executed although another failed.
                self._executor.start(batch.claims)
            for failure in batches:
                if isinstance(failure, BaseException):
                    raise failure
            if not any(batch.more for batch in planned):
                return False
            lanes = self._lanes
        return True

    async def _ask(self, asked: AskedBatch) -> None:
        claims: list[Claim] = await self._plan_hooks.ask(asked)
        self._executor.start(claims)

    @property
    def _limit(self) -> int:
        return min(self._batch, self._executor.free)
