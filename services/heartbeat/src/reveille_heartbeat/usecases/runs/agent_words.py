"""What agents tell beside their output, in batches: things that happened, and what they are doing.

An event is kept and told of in the feed; progress is one value per run, and each overwrites the
one before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.usecases import channels, events
from reveille_heartbeat.usecases.runs import run_events
from reveille_heartbeat.usecases.runs.run_events import RunEvent
from reveille_runtime import feed
from reveille_runtime.batcher import Batcher
from reveille_runtime.db import Database
from reveille_runtime.hints import Notifier
from reveille_runtime.lease import Lease, LeaseLost


@dataclass(frozen=True, slots=True)
class _Event:
    lease: Lease
    type: str
    message: str
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Progress:
    lease: Lease
    parts: Mapping[str, str]


class AgentWords:
    """Writes of executors for the runs they hold, fenced by id and token, bounded by the caller."""

    def __init__(self, db: Database, notifier: Notifier) -> None:
        self._db = db
        self._notifier = notifier
        self._events: Batcher[_Event, bool] = Batcher(
            "agent_events", self._write_events, key=lambda each: each.lease
        )
        self._progress: Batcher[_Progress, None] = Batcher(
            "agent_progress", self._write_progress, key=lambda each: each.lease
        )

    async def event(self, lease: Lease, kind: str, message: str, facts: Mapping[str, Any]) -> None:
        """Keep what happened, and tell of it.

        Raises:
            LeaseLost: the run is not ours any more.
        """
        if not await self._events.submit(_Event(lease, kind, message, facts)):
            raise LeaseLost(lease)

    async def progress(self, lease: Lease, parts: Mapping[str, str]) -> None:
        """Overwrite what the agent is doing."""
        await self._progress.submit(_Progress(lease, parts))

    async def close(self) -> None:
        """Write what is queued."""
        await self._events.close()
        await self._progress.close()

    async def _write_events(self, batch: Sequence[_Event]) -> list[bool | Exception]:
        async with self._db.transaction() as tx:
            rows = await tx.fetch(Q["note_events"], *_fences([each.lease for each in batch]))
            noted = {row["run_id"]: row for row in rows}
            kept = [each for each in batch if each.lease.id in noted]
            facts = [
                RunEvent(
                    each.lease.id,
                    noted[each.lease.id]["event_seq"],
                    each.type,
                    each.message,
                    each.facts,
                )
                for each in kept
            ]
            await run_events.write(tx, facts)
            await feed.append(tx, [events.run_event(noted[each.run_id], each) for each in facts])
        self._notifier.notify(channels.FEED)
        return [each.lease.id in noted for each in batch]

    async def _write_progress(self, batch: Sequence[_Progress]) -> list[Exception | None]:
        async with self._db.session() as tx:
            await tx.execute(
                Q["set_progress"],
                *_fences([each.lease for each in batch]),
                [dict(each.parts) for each in batch],
            )
        self._notifier.notify(channels.OUTPUT)
        return [None for _ in batch]


def _fences(leases: Sequence[Lease]) -> tuple[list[UUID], list[UUID]]:
    return [lease.id for lease in leases], [lease.token for lease in leases]
