"""Reading runs, and waiting for their outcome without holding a connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from reveille_autopilot.domain.models import Run
from reveille_autopilot.domain.states import RunState
from reveille_autopilot.store import runs
from reveille_autopilot.usecases.signals import RunSignals
from reveille_autopilot.usecases.standing import in_workspace, not_found, standing_of
from reveille_runtime.access import Actor
from reveille_runtime.db import Database

# News may be lost; then this is how late an outcome is seen.
POLL_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs to list."""

    workspace_id: UUID
    autopilot_id: UUID | None = None
    trigger_id: UUID | None = None
    states: tuple[RunState, ...] = ()


class RunReader:
    """Reads runs for callers who may see them."""

    def __init__(self, db: Database, signals: RunSignals) -> None:
        self._db = db
        self._signals = signals

    async def get(self, actor: Actor, run_id: UUID) -> Run:
        """Read one run."""
        async with self._db.session() as tx:
            run = (await runs.get(tx, [run_id])).get(run_id)
            if run is not None:
                standing = await standing_of(tx, actor, run.workspace_id)
                if standing.belongs:
                    return run
        raise not_found("run", run_id)

    async def page(
        self, actor: Actor, wanted: RunFilter, before: UUID | None, limit: int
    ) -> Sequence[Run]:
        """List runs, newest first."""
        async with self._db.session() as tx:
            await in_workspace(tx, actor, wanted.workspace_id)
            return await runs.page(
                tx,
                wanted.workspace_id,
                wanted.autopilot_id,
                wanted.trigger_id,
                wanted.states,
                before,
                limit,
            )

    async def wait(self, actor: Actor, run_id: UUID, timeout: float) -> Run:
        """Wait for a run's outcome, at most so long; gives the run as it then stands."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        with self._signals.listening(run_id) as news:
            while True:
                news.clear()
                run = await self.get(actor, run_id)
                left = until - loop.time()
                if run.terminal or left <= 0 or self._signals.closed:
                    return run
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(left, POLL_SECONDS)):
                        await news.wait()
