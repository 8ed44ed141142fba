"""The tick: for each job with something due, claim retries, plan scopes, and ask its owner."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from reveille_runtime import logs
from reveille_runtime.backoff import Backoff
from reveille_runtime.sqlstate import is_transient
from reveille_scheduler.usecases.claim_retries import ClaimRetries
from reveille_scheduler.usecases.due_jobs import DueJob, DueJobs
from reveille_scheduler.usecases.plan_due import PlanDue
from reveille_scheduler.usecases.plan_hooks import PlanHooks
from reveille_scheduler.workers.executor import Executor

# Batches of one job in a row, before the other jobs have their turn.
ROUNDS = 5
# For how long a job that cannot be planned is left out, ever longer: the others go on meanwhile.
_LEFT_OUT = Backoff(first=0.2, longest=30.0, jitter=0.5)
_log = logs.get_logger(__name__)


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
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._due_jobs = due_jobs
        self._lanes = tuple(lanes)
        self._claim_retries = claim_retries
        self._plan_hooks = plan_hooks
        self._executor = executor
        self._batch = batch
        self._monotonic = monotonic
        # Looks that found room: of all jobs together, and of each.
        self._turn = 0
        self._turns: Counter[str] = Counter()
        # How often each job failed in a row, and until when it is left out.
        self._failed: dict[str, tuple[int, float]] = {}

    async def step(self) -> float | None:
        """Plan one batch of each job; 0 means that there may be more right now."""
        due = await self._due_jobs()
        if not due:
            return None
        # Each job is first in turn, so that none has the first choice of places every time. A look
        # without room is nobody's turn: there is one after each that claimed retries.
        self._turn += any(self._executor.room(job.name) for job in due)
        first = self._turn % len(due)
        pauses = [await self._by_itself(job) for job in due[first:] + due[:first]]
        return min((each for each in pauses if each is not None), default=None)

    async def _by_itself(self, job: DueJob) -> float | None:
        """Plan a job so that its failure is no other's; that of the database is everybody's."""
        failures, until = self._failed.get(job.name, (0, 0.0))
        if failures and self._monotonic() < until:
            return None
        try:
            pause = await self._one(job)
        except Exception as error:
            if is_transient(error):
                raise
            failures += 1
            left_out = _LEFT_OUT.delay(failures, job.name)
            self._failed[job.name] = (failures, self._monotonic() + left_out)
            _log.error(
                "A job could not be planned; the others go on, and it is tried again.",
                action="planner.job_failed",
                job=job.name,
                failures=failures,
                pause=round(left_out, 3),
                exc_info=error,
            )
            return None
        self._failed.pop(job.name, None)
        return pause

    async def _one(self, job: DueJob) -> float | None:
        """Plan a job; gives the pause until more of it can be claimed, None without more.

        What finds no room is not asked for again: the executor hints when there is some.
        """
        if not self._executor.room(job.name):
            return None
        self._turns[job.name] += 1
        kinds = [(job.retries, self._retry), (job.plans, self._plan), (job.hooks, self._take_hooks)]
        due = [take for is_due, take in kinds if is_due]
        # Each is first in turn as well: a large backfill must not take every place that comes free.
        first = self._turns[job.name] % len(due)
        pauses = [await take(job.name) for take in due[first:] + due[:first]]
        return min((each for each in pauses if each is not None), default=None)

    async def _retry(self, job_name: str) -> float | None:
        limit = self._limit(job_name)
        if limit == 0:
            return None
        retries = await self._claim_retries(job_name, limit)
        self._executor.start(retries.claims)
        return 0 if retries.more else None

    async def _plan(self, job_name: str) -> float | None:
        lanes = self._lanes[:1]
        for _ in range(ROUNDS):
            room = self._executor.room(job_name)
            if room == 0:
                return None
            lanes = lanes[:room]
            limit = min(self._batch, room // len(lanes))
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
                return None
            lanes = self._lanes
        return 0

    async def _take_hooks(self, job_name: str) -> float | None:
        limit = self._limit(job_name)
        if limit == 0:
            return None
        asked = await self._plan_hooks.take(job_name, limit)
        if asked is not None:
            work = partial(self._plan_hooks.ask, asked)
            self._executor.run_aside(work, f"plans of {job_name}", job_name, len(asked.asked))
        return None

    def _limit(self, job_name: str) -> int:
        return min(self._batch, self._executor.room(job_name))
