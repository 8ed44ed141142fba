"""Recovery: runs whose executor is gone are found again, and brought to their end.

Three ways to be sure that nobody executes a run: its executor was a process of this very place and
has ended; it is ours, and no task of ours works on it; or its lease was seen expired twice, one
renewal apart, while our own renewals succeeded.
"""

from __future__ import annotations

import asyncio
from uuid import UUID

from reveille_heartbeat.adapters.process.identity import is_alive
from reveille_heartbeat.adapters.spool import SpoolRoot
from reveille_heartbeat.domain.places import Executor, process_of
from reveille_heartbeat.usecases.take_over import TakeOver
from reveille_heartbeat.workers.engine import Engine
from reveille_runtime import logs, semconv
from reveille_runtime.lease import ExpiryWitness, Lease, LeaseKeeper
from reveille_runtime.lifecycle import Loop
from reveille_runtime.telemetry import Telemetry

_log = logs.get_logger(__name__)


class Recovery:
    """Looks at start, at intervals, and whenever the engine has left a run."""

    def __init__(
        self,
        take_over: TakeOver,
        engine: Engine,
        executor: Executor,
        keeper: LeaseKeeper,
        witness: ExpiryWitness,
        spools: SpoolRoot,
        telemetry: Telemetry,
        *,
        interval: float,
    ) -> None:
        self.loop = Loop("recovery", self.step, interval)
        self._take_over = take_over
        self._engine = engine
        self._executor = executor
        self._keeper = keeper
        self._witness = witness
        self._spools = spools
        self._steals = telemetry.meter.create_counter(
            semconv.METRIC_LEASE_STEALS, description="Runs taken over from a lost executor"
        )

    async def follow_engine(self) -> None:
        """Look at once when the engine has left a run."""
        while True:
            await self._engine.on_left.wait()
            self._engine.on_left.clear()
            self.loop.wake()

    async def step(self) -> None:
        """Make one round; each part by itself, so that one failure leaves the others."""
        async with self._engine.claim_lock:
            await self._abandoned_here()
        await self._expired()
        await self._sweep_spools()

    async def _abandoned_here(self) -> None:
        for held in await self._take_over.held_here():
            if held.lease.id in self._engine.active:
                continue
            if held.executor_id == self._executor.executor_id:
                await self._recover(held.lease, only_expired=False, why="its work was interrupted")
                continue
            process = process_of(held.executor_id)
            if process is None or not is_alive(process):
                await self._recover(held.lease, only_expired=False, why="its executor has ended")

    async def _expired(self) -> None:
        expired = [
            lease
            for lease in await self._take_over.expired()
            if lease.id not in self._engine.active
        ]
        ok = self._keeper.ok_for(self._witness.interval)
        for lease in self._witness.observe(expired, ok):
            await self._recover(lease, only_expired=True, why="its lease has run out")

    async def _recover(self, lease: Lease, *, only_expired: bool, why: str) -> None:
        since = self._keeper.now()
        run = await self._take_over.take(lease, only_expired=only_expired, why=why)
        if run is None:
            return
        self._steals.add(1)
        _log.warning(
            "A run was taken over.",
            action="run.taken_over",
            run_id=str(run.run_id),
            cause=why,
        )
        # Finishing is not new work: the limit on runs at once does not hold it back.
        self._engine.launch(run, resumed=True, since=since)

    async def _sweep_spools(self) -> None:
        """Remove the folders of runs that are over; a crash may have come before."""
        candidates: list[UUID] = [
            run_id for run_id in self._spools.run_ids() if run_id not in self._engine.active
        ]
        for run_id in await self._take_over.over(candidates) if candidates else ():
            await asyncio.to_thread(self._spools.of(run_id).remove)
