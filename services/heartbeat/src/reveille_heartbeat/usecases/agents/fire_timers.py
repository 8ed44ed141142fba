"""Timers: agents that want to be woken now and then, each by a clock of its own.

A tick asks for a wake first, under a key made of the slot, and then marks the slot as used. So a
tick that dies between the two loses nothing, and of two ticks at once one makes the wake: the
other's finds it made, and its mark finds the slot used. However many intervals were missed, there
is one wake; wakes for other reasons do not move the clock.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from reveille_heartbeat.crash_points import TIMERS_AFTER_ENQUEUE
from reveille_heartbeat.domain.states import WakeupState
from reveille_heartbeat.domain.values import (
    Origin,
    Payload,
    Requester,
    RequesterKind,
    WakeupSource,
    Wish,
)
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.usecases.wakeups.known_wishes import Enqueued
from reveille_runtime import logs
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx, is_transient, retrying_transaction
from reveille_runtime.errors import ResourceExhausted, Unavailable
from reveille_runtime.lockorder import Level, LockOrder
from reveille_runtime.validation import NIL

REASON = "heartbeat_timer"
# Whose idempotency keys those of the slots are.
CALLER = "service:heartbeat"
_BATCH = 200
_log = logs.get_logger(__name__)

Enqueue = Callable[[Sequence[Wish]], Awaitable[Sequence[Enqueued]]]


@dataclass(frozen=True, slots=True)
class Due:
    """An agent whose timer is due, and since when."""

    agent_id: UUID
    workspace_id: UUID
    base: datetime
    due: timedelta


@dataclass(slots=True)
class Tick:
    """What a tick did, as the ledger is told."""

    woken: int = 0
    skipped: int = 0
    failed: list[UUID] = field(default_factory=list)
    # Found made by another tick, or by this one's forerunner that died.
    known: int = 0

    @property
    def facts(self) -> dict[str, int]:
        """Count it."""
        return {
            "woken": self.woken,
            "skipped": self.skipped,
            "failed": len(self.failed),
            "known": self.known,
        }


class FireTimers:
    """One tick over every agent that is due; none of them can stop it for the others."""

    def __init__(self, db: Database, enqueue: Enqueue, new_id: Callable[[], UUID]) -> None:
        self._db = db
        self._enqueue = enqueue
        self._new_id = new_id

    async def __call__(self) -> Mapping[str, int]:
        """Wake who is due.

        Raises whatever says that the database, or this service, has no room now.
        """
        tick = Tick()
        after = (timedelta(0), NIL)
        while True:
            async with self._db.session() as tx:
                rows = await tx.fetch(Q["due_timers"], *after, _BATCH)
            due = [
                Due(row["agent_id"], row["workspace_id"], row["base"], row["due"]) for row in rows
            ]
            await self._fire(due, tick)
            if len(due) < _BATCH:
                return tick.facts
            after = (due[-1].due, due[-1].agent_id)

    async def _fire(self, due: Sequence[Due], tick: Tick) -> None:
        """Ask for their wakes and mark their slots; a batch that cannot be had is halved."""
        if not due:
            return
        try:
            answers = await self._enqueue([self._wish(each) for each in due])
        except Exception as error:
            if is_transient(error) or isinstance(error, Unavailable | ResourceExhausted):
                raise
            if len(due) == 1:
                tick.failed.append(due[0].agent_id)
                _log.error(
                    "An agent's timer could not wake it; it is tried again at the next tick.",
                    action="timer.failed",
                    agent_id=due[0].agent_id,
                    exc_info=error,
                )
                return
            middle = len(due) // 2
            await self._fire(due[:middle], tick)
            await self._fire(due[middle:], tick)
            return
        crash_point(TIMERS_AFTER_ENQUEUE)
        await self._use(due)
        for answer in answers:
            if answer.existed:
                tick.known += 1
            elif answer.state is WakeupState.SKIPPED:
                tick.skipped += 1
            else:
                tick.woken += 1

    async def _use(self, due: Sequence[Due]) -> None:
        """Mark the slots; one that is marked already was by another tick, or by the wish itself."""

        async def use(tx: Tx) -> None:
            ids = [each.agent_id for each in due]
            await LockOrder().take(tx, Level.AGENT, Q["lock_agents"], ids)
            await tx.execute(Q["timers_fired"], ids, [each.base for each in due])

        await retrying_transaction(self._db, use, repeatable=True)

    def _wish(self, due: Due) -> Wish:
        return Wish(
            wakeup_id=self._new_id(),
            workspace_id=due.workspace_id,
            agent_id=due.agent_id,
            source=WakeupSource.TIMER,
            wake_reason=REASON,
            title="Heartbeat",
            prompt="",
            issue_id=None,
            caller=CALLER,
            idempotency_key=f"{REASON}:{due.agent_id}:{due.base.isoformat()}",
            origin=Origin(),
            payload=Payload(),
            requester=Requester(RequesterKind.SYSTEM, REASON),
        )
