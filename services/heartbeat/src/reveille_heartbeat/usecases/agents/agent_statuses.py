"""What agents do now, told in the feed when it changes; derived from their runs, stored nowhere."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import replace
from uuid import UUID

from reveille_heartbeat.domain.agents import AgentStatus
from reveille_heartbeat.domain.states import AgentState
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_agent
from reveille_heartbeat.usecases import channels, events
from reveille_runtime import feed, logs
from reveille_runtime.db import Database, Tx, retrying_transaction
from reveille_runtime.hints import Notifier
from reveille_runtime.lifecycle import TaskScope
from reveille_runtime.lockorder import Level, LockOrder
from reveille_runtime.sqlstate import is_transient

_log = logs.get_logger(__name__)
_BATCH = 200
_PAUSE = 0.05


async def begun(tx: Tx, agent_ids: Collection[UUID]) -> list[feed.FeedEvent]:
    """Tell of agents that were at rest and begin to work; their locks are held."""
    if not agent_ids:
        return []
    rows = await tx.fetch(Q["show_agents"], sorted(agent_ids))
    resting = [replace(to_agent(row), busy=False) for row in rows]
    return [
        events.agent_status(replace(agent, busy=True), AgentStatus.of(agent)) for agent in resting
    ]


class AgentStatuses:
    """Looks at agents whose runs have ended, after the commit and never in its way.

    Agents that end many runs at once are looked at once. What a crash keeps from being told is told
    by the next run.
    """

    def __init__(self, db: Database, notifier: Notifier) -> None:
        self._db = db
        self._notifier = notifier
        self._due: set[UUID] = set()
        self._looking = False
        self._tasks = TaskScope("agent statuses")

    def ended(self, agent_ids: Iterable[UUID]) -> None:
        """Note agents that have ended a run; returns at once and never fails."""
        self._due.update(agent_ids)
        if self._due and not self._looking:
            self._looking = True
            self._tasks.spawn(self._look())

    async def close(self) -> None:
        """Tell what is due, for a moment."""
        await self._tasks.close(grace=1.0)

    async def _look(self) -> None:
        try:
            while self._due:
                batch = sorted(self._due)[:_BATCH]
                self._due.difference_update(batch)
                await self._tell(batch)
                # Agents that go on at once were not at rest.
                await asyncio.sleep(_PAUSE)
        finally:
            self._looking = False

    async def _at_rest(self, agent_ids: list[UUID]) -> list[UUID]:
        """Leave out who works on, before any lock: they are looked at again when that ends."""
        async with self._db.session() as tx:
            rows = await tx.fetch(Q["occupied_per_agent"], agent_ids)
        busy = {row["agent_id"] for row in rows}
        return [agent_id for agent_id in agent_ids if agent_id not in busy]

    async def _tell(self, agent_ids: list[UUID]) -> None:
        at_rest: list[UUID] = []

        async def tell(tx: Tx) -> int:
            # Under the lock that claims take: nobody begins a run while we look.
            await LockOrder().take(tx, Level.AGENT, Q["lock_agents"], at_rest)
            rows = await tx.fetch(Q["show_agents"], at_rest)
            # Whoever paused it has told what it does since.
            resting = [
                agent
                for agent in map(to_agent, rows)
                if not agent.busy and agent.state is AgentState.ACTIVE
            ]
            told = [events.agent_status(agent, AgentStatus.RUNNING) for agent in resting]
            await feed.append(tx, told)
            return len(told)

        try:
            at_rest = await self._at_rest(agent_ids)
            told = await retrying_transaction(self._db, tell, repeatable=True) if at_rest else 0
            if told:
                self._notifier.notify(channels.FEED)
        except Exception as error:
            if not is_transient(error):
                raise
            _log.warning("Agents' states were not told.", action="agent.status_not_told")
