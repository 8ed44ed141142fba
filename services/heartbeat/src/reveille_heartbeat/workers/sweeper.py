"""The sweep: deadlines from the rows, repeats whose time has come, and wakes nobody promotes."""

from __future__ import annotations

from reveille_heartbeat.usecases.runs.enforce_deadlines import EnforceDeadlines
from reveille_heartbeat.usecases.runs.promote_retries import PromoteRetries
from reveille_heartbeat.usecases.wakeups.promote_deferred import PromoteStranded
from reveille_runtime.isolation import isolated
from reveille_runtime.lease import LeaseKeeper
from reveille_runtime.lifecycle import Loop


class Sweeper:
    """Every replica sweeps; each write is a compare-and-set."""

    def __init__(
        self,
        deadlines: EnforceDeadlines,
        promote: PromoteStranded,
        retries: PromoteRetries,
        keeper: LeaseKeeper,
        witness_interval: float,
        *,
        interval: float,
    ) -> None:
        self.loop = Loop("sweep", self.step, interval)
        self._deadlines = deadlines
        self._promote = promote
        self._retries = retries
        self._keeper = keeper
        self._witness_interval = witness_interval

    async def step(self) -> None:
        """Make one round; each part by itself."""
        with isolated("sweep.deadlines"):
            await self._deadlines(renewals_ok=self._keeper.ok_for(self._witness_interval))
        with isolated("sweep.retries"):
            await self._retries()
        with isolated("sweep.deferred"):
            await self._promote()
