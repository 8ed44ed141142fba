"""Recovery: runs whose executor is gone are found again, and brought to their end.

Three ways to be sure that nobody executes a run: its executor was a process of this very place and
has ended, or has handed it over; it is ours, and no task of ours works on it; or its lease was seen
expired twice, one renewal apart, while our own renewals succeeded.
"""

from __future__ import annotations

import asyncio
from uuid import UUID

from reveille_heartbeat.adapters.process.identity import is_alive
from reveille_heartbeat.adapters.process.tree import Family, ProcessTrees, marked_runs
from reveille_heartbeat.adapters.spool import SpoolRoot
from reveille_heartbeat.domain.places import Executor, process_of
from reveille_heartbeat.usecases.issues.stale_locks import ClearStaleLocks
from reveille_heartbeat.usecases.runs.take_over import HeldHere, TakeOver
from reveille_heartbeat.workers.engine import Engine
from reveille_runtime import logs, semconv
from reveille_runtime.isolation import isolated
from reveille_runtime.lease import ExpiryWitness, Lease, LeaseKeeper
from reveille_runtime.lifecycle import Loop, Wakeable
from reveille_runtime.telemetry import Telemetry

_log = logs.get_logger(__name__)
# What should not be there at all is looked for less often.
_RARELY = 6


class Recovery:
    """Looks at start, at intervals, and whenever an engine has left a run.

    Every step may be made again at any time, and fails alone: so does every run in it.
    """

    def __init__(
        self,
        take_over: TakeOver,
        stale_locks: ClearStaleLocks,
        engine: Engine,
        executor: Executor,
        keeper: LeaseKeeper,
        witness: ExpiryWitness,
        spools: SpoolRoot,
        telemetry: Telemetry,
        *,
        interval: float,
        grace: float,
        handed_over: Wakeable | None = None,
    ) -> None:
        self.loop = Loop("recovery", self.step, interval, handed_over)
        self.cleaning = Loop("recovery.cleaning", self.clean, interval * _RARELY)
        self._take_over = take_over
        self._stale_locks = stale_locks
        self._engine = engine
        self._executor = executor
        self._keeper = keeper
        self._witness = witness
        self._spools = spools
        self._trees = ProcessTrees()
        self._grace = grace
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
        """Find runs that nobody executes."""
        with isolated("recovery.abandoned"):
            async with self._engine.claim_lock:
                await self._abandoned_here()
        with isolated("recovery.expired"):
            await self._expired()

    async def clean(self) -> None:
        """Remove what runs that are over have left behind; a crash may have come before."""
        with isolated("recovery.stale_locks"):
            await self._stale_locks()
        with isolated("recovery.orphans"):
            await self._end_orphans()
        with isolated("recovery.spools"):
            await self._sweep_spools()

    async def _abandoned_here(self) -> None:
        # What is at work now may have ended when its row is looked at.
        at_work = frozenset(self._engine.active)
        for held in await self._take_over.held_here():
            why = None if held.lease.id in at_work else self._abandoned(held)
            if why is not None:
                await self._recover(held.lease, only_expired=False, why=why)

    def _abandoned(self, held: HeldHere) -> str | None:
        """Say why nobody can be at work on a run of this place; None when somebody may be."""
        if held.lease.id in self._engine.active:
            return None
        if held.executor_id == self._executor.executor_id:
            return "its work was interrupted"
        if not held.executor_id:
            return "its executor has handed it over"
        process = process_of(held.executor_id)
        return None if process is not None and is_alive(process) else "its executor has ended"

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
        with isolated("recovery.take_over", run_id=str(lease.id)):
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
            self._engine.launch(run, since=since)

    async def _end_orphans(self) -> None:
        """End processes whose run is over: its outcome was written where they could not be seen."""
        found = [
            run_id
            for run_id in await asyncio.to_thread(marked_runs)
            if run_id not in self._engine.active
        ]
        for run_id in await self._take_over.over(found) if found else ():
            with isolated("recovery.orphan", run_id=str(run_id)):
                ended = await self._trees.end(Family(run_id, None), self._grace)
                if ended.found:
                    _log.warning(
                        "Processes of a run that is over were ended.",
                        action="run.orphans_ended",
                        run_id=str(run_id),
                        processes=ended.found,
                        unreachable=len(ended.unreachable),
                    )

    async def _sweep_spools(self) -> None:
        candidates: list[UUID] = [
            run_id for run_id in self._spools.run_ids() if run_id not in self._engine.active
        ]
        for run_id in await self._take_over.over(candidates) if candidates else ():
            # What one agent has left keeps nobody else's folder.
            with isolated("recovery.spool", run_id=str(run_id)):
                refusal = await asyncio.to_thread(self._spools.of(run_id).remove)
                if refusal is not None:
                    _log.warning(
                        "A folder of a run that is over could not be removed.",
                        action="run.folder_left",
                        run_id=str(run_id),
                        cause=refusal.strerror or str(refusal),
                    )
