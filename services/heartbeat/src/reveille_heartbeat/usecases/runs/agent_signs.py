"""Signs of agents at work, in batches: which process one is, and when it was last heard of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from reveille_heartbeat.domain.values import ProcessIdentity
from reveille_heartbeat.store.queries import Q
from reveille_runtime.batcher import Batcher
from reveille_runtime.db import Database
from reveille_runtime.lease import Lease, LeaseLost


@dataclass(frozen=True, slots=True)
class _Process:
    lease: Lease
    identity: ProcessIdentity


@dataclass(frozen=True, slots=True)
class _Heard:
    lease: Lease
    seconds_ago: float


class AgentSigns:
    """Writes of executors for the runs they hold, fenced by id and token."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._processes: Batcher[_Process, bool] = Batcher(
            "process_identity", self._record, key=lambda each: each.lease
        )
        self._heard: Batcher[_Heard, None] = Batcher(
            "sign_of_life", self._extend, key=lambda each: each.lease
        )

    async def process(self, lease: Lease, identity: ProcessIdentity) -> None:
        """Commit which process it is, before that process may start the agent.

        Raises:
            LeaseLost: the run is not ours any more, or has ended: the agent must not start.
        """
        if not await self._processes.submit(_Process(lease, identity)):
            raise LeaseLost(lease)

    async def heard(self, lease: Lease, seconds_ago: float) -> None:
        """Write when the agent was last heard of; its limit of silence counts from then on."""
        await self._heard.submit(_Heard(lease, seconds_ago))

    async def close(self) -> None:
        """Write what is queued."""
        await self._processes.close()
        await self._heard.close()

    async def _record(self, batch: Sequence[_Process]) -> list[bool | Exception]:
        async with self._db.session() as tx:
            rows = await tx.fetch(
                Q["record_processes"],
                *_fences([each.lease for each in batch]),
                [each.identity.pid for each in batch],
                [each.identity.start_ticks for each in batch],
            )
        recorded = {row["run_id"] for row in rows}
        return [each.lease.id in recorded for each in batch]

    async def _extend(self, batch: Sequence[_Heard]) -> list[Exception | None]:
        async with self._db.session() as tx:
            await tx.execute(
                Q["extend_idle"],
                *_fences([each.lease for each in batch]),
                [each.seconds_ago for each in batch],
            )
        return [None for _ in batch]


def _fences(leases: Sequence[Lease]) -> tuple[list[UUID], list[UUID]]:
    return [lease.id for lease in leases], [lease.token for lease in leases]
