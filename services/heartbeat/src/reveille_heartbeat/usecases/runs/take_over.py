"""Runs change hands: an executor that stops leaves them, and one that is gone loses them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from reveille_heartbeat.crash_points import TAKE_OVER_AFTER_COMMIT
from reveille_heartbeat.domain.places import Executor
from reveille_heartbeat.domain.values import Run
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_run
from reveille_heartbeat.usecases import channels
from reveille_heartbeat.usecases.pages import pages
from reveille_heartbeat.usecases.runs import run_events
from reveille_heartbeat.usecases.runs.run_events import RunEvent
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx, retrying_transaction
from reveille_runtime.hints import Notifier
from reveille_runtime.lease import Lease


@dataclass(frozen=True, slots=True)
class HeldHere:
    """A run whose process lives in our place, and who holds it."""

    lease: Lease
    executor_id: str


class TakeOver:
    """Finds and takes runs; the fence is the old token."""

    def __init__(
        self,
        db: Database,
        executor: Executor,
        lease: timedelta,
        new_token: Callable[[], UUID],
    ) -> None:
        self._db = db
        self._executor = executor
        self._lease = lease
        self._new_token = new_token

    async def held_here(self) -> list[HeldHere]:
        """List the runs of our place."""
        return [
            HeldHere(Lease(row["run_id"], row["lease_token"]), row["executor_id"])
            async for page in pages(
                self._db, Q["held_in_place"], "run_id", str(self._executor.place)
            )
            for row in page
        ]

    async def expired(self) -> list[Lease]:
        """List the leases that have run out, wherever."""
        return [
            Lease(row["run_id"], row["lease_token"])
            async for page in pages(self._db, Q["expired_leases"], "run_id")
            for row in page
        ]

    async def stopped(self) -> list[UUID]:
        """List our runs that somebody else has ended."""
        async with self._db.session() as tx:
            rows = await tx.fetch(Q["stopped_runs"], self._executor.executor_id)
        return [row["run_id"] for row in rows]

    async def over(self, run_ids: list[UUID]) -> set[UUID]:
        """Tell which of these runs are over for good."""
        async with self._db.session() as tx:
            rows = await tx.fetch(Q["finished_of"], run_ids)
        return {row["run_id"] for row in rows}

    async def take(self, lease: Lease, *, only_expired: bool, why: str) -> Run | None:
        """Become a run's holder; None when its token has changed, or it was renewed after all."""
        token = self._new_token()
        executor_id = self._executor.executor_id

        async def take(tx: Tx) -> Run | None:
            row = await tx.fetchrow(
                Q["take_over"],
                lease.id,
                lease.token,
                token,
                executor_id,
                self._lease,
                only_expired,
            )
            if row is None:
                return None
            event = RunEvent(
                lease.id, row["event_seq"], "run.taken_over", f"{executor_id} took over: {why}"
            )
            await run_events.write(tx, [event])
            return to_run(row)

        run = await retrying_transaction(self._db, take)
        if run is not None:
            crash_point(TAKE_OVER_AFTER_COMMIT)
        return run


class HandOver:
    """What a stopping executor does with a run whose agent goes on."""

    def __init__(self, db: Database, notifier: Notifier) -> None:
        self._db = db
        self._notifier = notifier

    async def __call__(self, lease: Lease) -> None:
        """Leave the run to the next executor of this place; one that is not ours any more stays."""

        async def hand_over(tx: Tx) -> None:
            seq = await tx.fetchval(Q["hand_over"], lease.id, lease.token)
            if seq is not None:
                message = "its executor stops, and leaves the agent at work"
                await run_events.write(tx, [RunEvent(lease.id, seq, "run.handed_over", message)])

        await retrying_transaction(self._db, hand_over)
        self._notifier.notify(channels.HANDED_OVER)
