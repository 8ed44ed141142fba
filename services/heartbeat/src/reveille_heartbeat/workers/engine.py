"""The engine: claims runs, executes them side by side, and knows which ones it executes.

When the service stops it claims no more, lets what is quick finish, interrupts what runs inside it
and cannot outlive it, and leaves agents' processes alone: they go on, and the next start finds
them. Nothing is released, so nobody else takes them before they are known to be without an
executor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from opentelemetry.metrics import CallbackOptions, Observation

from reveille_heartbeat.domain.values import Run
from reveille_heartbeat.pipeline.interrupts import Interrupts
from reveille_heartbeat.pipeline.runner import Left, Runner
from reveille_heartbeat.usecases.runs.claim_runs import ClaimRuns
from reveille_heartbeat.usecases.runs.loaded import Loaded
from reveille_heartbeat.usecases.runs.take_over import TakeOver
from reveille_runtime import logs, semconv
from reveille_runtime.lease import LeaseKeeper
from reveille_runtime.lifecycle import Loop, TaskScope, Wakeable
from reveille_runtime.telemetry import Telemetry

_log = logs.get_logger(__name__)
# At most this many runs are claimed in one go.
_BATCH = 200


@dataclass(slots=True)
class Active:
    """A run at work here."""

    stop: asyncio.Event = field(default_factory=asyncio.Event)


class Engine:
    """A component: its `run` waits for `stop`, its loops do the claiming."""

    def __init__(
        self,
        claim: ClaimRuns,
        take_over: TakeOver,
        runner: Runner,
        keeper: LeaseKeeper,
        telemetry: Telemetry,
        interrupts: Interrupts,
        *,
        concurrency: int,
        interval: float,
        grace: float,
        queue_hint: Wakeable | None = None,
        stop_hint: Wakeable | None = None,
    ) -> None:
        self.name = "engine"
        self.active: dict[UUID, Active] = {}
        self.claiming = Loop("engine.claim", self._claim_step, interval, queue_hint)
        self.stopping = Loop("engine.stops", self._stop_step, interval, stop_hint)
        # Set by whoever wants to know at once of runs that were left to recovery.
        self.on_left = asyncio.Event()
        # Between a claim's commit and its launch a run is ours and yet not at work.
        self.claim_lock = asyncio.Lock()
        self._claim = claim
        self._take_over = take_over
        self._runner = runner
        self._keeper = keeper
        self._interrupts = interrupts
        self._concurrency = concurrency
        self._grace = grace
        self._detach = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._tasks = TaskScope("run")
        telemetry.meter.create_observable_gauge(
            semconv.METRIC_RUN_ACTIVE,
            callbacks=[self._observe],
            description="Runs at work in this process",
        )

    @property
    def free(self) -> int:
        """How many more runs this process takes."""
        return max(0, self._concurrency - len(self.active))

    async def run(self) -> None:
        """Wait for the end; runs are tasks of their own."""
        await self._detach.wait()
        # What runs in this very process gets half of the time to finish, and the other half to tell
        # that it was interrupted.
        asyncio.get_running_loop().call_later(self._grace / 2, self._interrupts.stop)
        await self._tasks.close(self._grace)

    async def stop(self) -> None:
        """Leave agents to themselves and let everything else finish."""
        self._detach.set()

    def launch(self, run: Run, *, since: float, claimed: Loaded | None = None) -> None:
        """Take a run that this executor holds through its stages; without `claimed`, resume it."""
        if run.run_id in self.active:
            raise AssertionError(f"run {run.run_id} is at work here already")
        self.active[run.run_id] = Active()
        self._idle.clear()
        self._tasks.spawn(self._work(run, claimed, since), str(run.run_id))

    async def idle(self) -> None:
        """Wait until nothing is at work here."""
        await self._idle.wait()

    async def _work(self, run: Run, claimed: Loaded | None, since: float) -> None:
        active = self.active[run.run_id]
        try:
            left = await self._runner.run(
                run, claimed=claimed, since=since, stop=active.stop, detach=self._detach
            )
        finally:
            del self.active[run.run_id]
            if not self.active:
                self._idle.set()
        if left is Left.LOST:
            self.on_left.set()
        self.claiming.wake()

    async def _claim_step(self) -> float | None:
        free = self.free
        if free == 0 or self._detach.is_set():
            return None
        async with self.claim_lock:
            # Of each batch the moment before its leases were written.
            since = self._keeper.now()

            def launch(batch: Sequence[Loaded]) -> None:
                nonlocal since
                for each in batch:
                    self.launch(each.run, since=since, claimed=each)
                since = self._keeper.now()

            claimed = await self._claim(min(free, _BATCH), launch)
        again = self._claim.more or len(claimed) == min(free, _BATCH)
        return 0 if again else None

    async def _stop_step(self) -> None:
        """Tell runs of ours that somebody else has ended."""
        if not self.active:
            return
        for run_id in await self._take_over.stopped():
            active = self.active.get(run_id)
            if active is not None and not active.stop.is_set():
                _log.info(
                    "A run was ended from outside; stopping its agent.",
                    action="run.stopping",
                    run_id=str(run_id),
                )
                active.stop.set()

    def _observe(self, _options: CallbackOptions) -> list[Observation]:
        return [Observation(len(self.active))]
