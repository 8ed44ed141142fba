"""The output of runs: stored in chunks by its executor, read by byte offset from any replica."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from reveille_heartbeat.domain.values import LogStream
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_run
from reveille_heartbeat.usecases.visible import require_visible
from reveille_runtime.access import Actor
from reveille_runtime.batcher import Batcher
from reveille_runtime.db import Database
from reveille_runtime.lease import Lease, LeaseLost

_CHUNKS = 64


@dataclass(frozen=True, slots=True)
class LogChunk:
    """A piece of output, secrets blanked out already."""

    lease: Lease
    stream: LogStream
    start: int
    data: bytes

    @property
    def key(self) -> tuple[UUID, str, int]:
        """Where it belongs."""
        return (self.lease.id, self.stream.value, self.start)


@dataclass(frozen=True, slots=True)
class LogPart:
    """What a reader gets."""

    data: bytes
    next_offset: int
    complete: bool


class RunLog:
    """Writes through a batcher: many runs' output costs one statement."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._batcher: Batcher[LogChunk, bool] = Batcher(
            "run_log",
            self._write,
            size=lambda chunk: len(chunk.data),
            key=lambda chunk: chunk.key,
        )

    async def append(self, chunk: LogChunk) -> None:
        """Store a chunk.

        Raises:
            LeaseLost: the run is not the writer's any more.
        """
        if not await self._batcher.submit(chunk):
            raise LeaseLost(chunk.lease)

    async def close(self) -> None:
        """Write what is queued."""
        await self._batcher.close()

    async def ends(self, run_id: UUID) -> dict[LogStream, int]:
        """Tell how far each stream is stored: where its next executor goes on."""
        async with self._db.session() as tx:
            rows = await tx.fetch(Q["log_ends"], run_id)
        return {LogStream(row["stream"]): row["end_offset"] for row in rows}

    async def read(
        self, actor: Actor, run_id: UUID, stream: LogStream, offset: int, limit: int
    ) -> LogPart:
        """Read from a byte offset on. Raises NotFound."""
        async with self._db.session() as tx:
            # First the run: output stored after this look is found by the next read.
            rows = await tx.fetch(Q["find_runs"], [run_id])
            run = require_visible(actor, to_run(rows[0]) if rows else None, "run", run_id)
            chunks = await tx.fetch(Q["read_log"], run_id, stream.value, offset, _CHUNKS)
        data, position = bytearray(), offset
        for chunk in chunks:
            if chunk["start_offset"] > position or len(data) >= limit:
                break
            data += chunk["data"][position - chunk["start_offset"] :]
            position = chunk["end_offset"]
        full = len(data) > limit
        kept = bytes(data[:limit])
        more = full or position < max((each["end_offset"] for each in chunks), default=position)
        more = more or len(chunks) == _CHUNKS
        return LogPart(
            kept, offset + len(kept), complete=run.follow_up_done_at is not None and not more
        )

    async def _write(self, chunks: Sequence[LogChunk]) -> list[bool | Exception]:
        async with self._db.session() as tx:
            rows = await tx.fetch(
                Q["append_log"],
                [chunk.lease.id for chunk in chunks],
                [chunk.lease.token for chunk in chunks],
                [chunk.stream.value for chunk in chunks],
                [chunk.start for chunk in chunks],
                [chunk.data for chunk in chunks],
            )
        held = {row["run_id"] for row in rows}
        return [chunk.lease.id in held for chunk in chunks]
