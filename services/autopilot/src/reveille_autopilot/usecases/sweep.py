"""The sweep: whatever is due and open is dispatched, called off, given up or compared."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

from reveille_autopilot.domain.models import Run
from reveille_autopilot.domain.states import RunState
from reveille_autopilot.store import runs
from reveille_autopilot.usecases.call_off import CallOff
from reveille_autopilot.usecases.check import Checker
from reveille_autopilot.usecases.dispatch import Dispatcher
from reveille_autopilot.usecases.settle import Settler
from reveille_runtime.db import Database

BATCH = 200
# How long a claimed run is this replica's business; longer than any call that it makes for it.
HOLD_SECONDS = 30.0
LONGEST_PAUSE = 2.0
SHORTEST_PAUSE = 0.05


class Sweep:
    """Ends what callers, crashes and outages left open."""

    def __init__(
        self,
        db: Database,
        dispatcher: Dispatcher,
        call_off: CallOff,
        checker: Checker,
        settler: Settler,
    ) -> None:
        self._db = db
        self._dispatcher = dispatcher
        self._call_off = call_off
        self._checker = checker
        self._settler = settler

    async def step(self) -> float:
        """Take a batch of due runs and carry each on; gives the pause until the next are due."""
        async with self._db.session() as tx:
            due, now = await runs.claim_due(tx, BATCH, HOLD_SECONDS)
        if now is not None:
            cancelled: list[Run] = []
            late: list[Run] = []
            pending: list[Run] = []
            linked: list[Run] = []
            waiting: set[UUID] = set()
            for run in due:
                if run.cancel_requested_at is not None:
                    cancelled.append(run)
                elif run.state is RunState.BUFFERED:
                    waiting.add(run.autopilot_id)
                elif run.state is not RunState.PENDING:
                    linked.append(run)
                elif run.dispatch_deadline_at <= now:
                    late.append(run)
                else:
                    pending.append(run)
            await asyncio.gather(
                self._cancel(cancelled),
                self._call_off.give_up(late),
                self._checker.check(linked),
                self._settler.release(sorted(waiting)),
                *(self._dispatcher.dispatch(run) for run in pending),
            )
        return await self._pause()

    async def _cancel(self, batch: Sequence[Run]) -> None:
        """Call runs off; one that had made its outcome before takes that, event or no event."""
        await self._checker.check(await self._call_off.cancel(batch))

    async def reconcile(self) -> None:
        """Have every open run compared: the feed cannot tell what was missed."""
        async with self._db.session() as tx:
            await runs.check_all_open(tx)

    async def _pause(self) -> float:
        async with self._db.session() as tx:
            due_in = await runs.next_due_in(tx)
        if due_in is None:
            return LONGEST_PAUSE
        return min(max(due_in, SHORTEST_PAUSE), LONGEST_PAUSE)
