"""Finishing: attempts get their outcome and what follows it, a batch per transaction.

Where nothing of an attempt runs after its end, for certain, both are one write; where something
may, it is cleared away between the two. Each is done again from the rows alone when its executor
was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from reveille_heartbeat.crash_points import (
    FOLLOW_UP_AFTER_COMMIT,
    FOLLOW_UP_BEFORE_COMMIT,
    SETTLE_AFTER_COMMIT,
    SETTLE_BEFORE_COMMIT,
)
from reveille_heartbeat.domain.outcome import Outcome
from reveille_heartbeat.usecases import channels
from reveille_heartbeat.usecases.agents.agent_statuses import AgentStatuses
from reveille_heartbeat.usecases.issues.consequences import Consequences
from reveille_heartbeat.usecases.runs.ending_batch import Ending, EndingBatch, Finish, lock_batch
from reveille_heartbeat.usecases.runs.follow_up import FollowUp
from reveille_heartbeat.usecases.runs.loaded import Loaded
from reveille_heartbeat.usecases.runs.run_spans import RunSpans
from reveille_heartbeat.usecases.runs.settle_run import settle
from reveille_heartbeat.usecases.wakeups.cancel_wakeups import tell_of_ends
from reveille_heartbeat.usecases.wakeups.deciding import Decider
from reveille_heartbeat.usecases.wakeups.promote_deferred import Promotion
from reveille_runtime.batcher import Batcher
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx, retrying_transaction
from reveille_runtime.hints import Notifier
from reveille_runtime.lease import Lease, LeaseLost
from reveille_runtime.sqlstate import is_transient


@dataclass(frozen=True, slots=True)
class Finished:
    """Whether the outcome that was brought is the one that counts."""

    won: bool


class Finisher:
    """Groups what attempts write at their end. A run that poisons a batch is found and left out."""

    def __init__(
        self,
        db: Database,
        notifier: Notifier,
        spans: RunSpans,
        decider: Decider,
        promotion: Promotion,
        consequences: Consequences,
        statuses: AgentStatuses,
        jitter: Callable[[], float],
    ) -> None:
        self._db = db
        self._statuses = statuses
        self._notifier = notifier
        self._spans = spans
        self._consequences = consequences
        self._follow_up = FollowUp(decider, promotion, jitter)
        self._batcher: Batcher[Finish, Finished] = Batcher(
            "finish",
            self._write,
            key=lambda item: item.key,
            size=_size,
            poisoned=lambda error: not is_transient(error),
        )

    async def settle(
        self, lease: Lease, loaded: Loaded, outcome: Outcome, silence: float | None = None
    ) -> Finished:
        """Write the outcome; an earlier end stays, and this is noted.

        `silence`: seconds since its agent was last heard of, if that is not written yet.

        Raises:
            LeaseLost: the run is somebody else's.
        """
        return await self._batcher.submit(Finish(lease, loaded, outcome, silence, follows=False))

    async def follow_up(self, lease: Lease, loaded: Loaded) -> None:
        """Write what follows an attempt that has ended; one that was done is left as it is.

        Raises:
            LeaseLost: the run is somebody else's.
        """
        await self._batcher.submit(Finish(lease, loaded, None, None, follows=True))

    async def finish(
        self, lease: Lease, loaded: Loaded, outcome: Outcome, silence: float | None = None
    ) -> Finished:
        """Do both at once, for an attempt of which nothing runs any more.

        Raises:
            LeaseLost: the run is somebody else's.
        """
        return await self._batcher.submit(Finish(lease, loaded, outcome, silence, follows=True))

    async def close(self) -> None:
        """Write what is queued."""
        await self._batcher.close()

    async def _write(self, items: Sequence[Finish]) -> list[Finished | Exception]:
        settles = any(item.outcome is not None for item in items)
        follows = any(item.follows for item in items)

        async def finish(tx: Tx) -> EndingBatch:
            batch = await self._in(tx, items)
            if settles:
                crash_point(SETTLE_BEFORE_COMMIT)
            if follows:
                crash_point(FOLLOW_UP_BEFORE_COMMIT)
            return batch

        batch = await retrying_transaction(self._db, finish, repeatable=True)
        if settles:
            crash_point(SETTLE_AFTER_COMMIT)
        if follows:
            crash_point(FOLLOW_UP_AFTER_COMMIT)
        self._notifier.notify(channels.FEED, *([channels.QUEUE] if follows else []))
        self._statuses.ended(
            ending.item.loaded.run.agent_id for ending in batch.endings if ending.follows
        )
        self._emit_spans(batch)
        if batch.others.runs:
            await tell_of_ends(self._db, self._notifier, self._spans, batch.others)
        return [_answer(each) for each in batch.endings]

    async def _in(self, tx: Tx, items: Sequence[Finish]) -> EndingBatch:
        batch = await lock_batch(tx, items)
        await settle(batch, self._consequences)
        followed = await self._follow_up.decide(batch)
        await batch.write_runs()
        await self._follow_up.carry_out(batch, followed)
        await batch.write()
        return batch

    def _emit_spans(self, batch: EndingBatch) -> None:
        if not self._spans.enabled:
            return
        for ending, _ in batch.ended:
            loaded = ending.item.loaded
            run = replace(
                loaded.run,
                state=ending.state,
                reason=ending.reason,
                finished_at=ending.finished_at,
            )
            self._spans.ended(run, loaded.agent)


def _size(item: Finish) -> int:
    document = item.outcome.document if item.outcome is not None else None
    return 0 if document is None else len(document)


def _answer(ending: Ending) -> Finished | Exception:
    if ending.held or ending.won or (ending.item.outcome is None and ending.follow_up_done):
        return Finished(ending.won)
    return LeaseLost(ending.item.lease)
