"""The output of runs: stored in pieces by its executor, read by byte offset from any replica."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from reveille_heartbeat.domain.values import LogStream
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_run
from reveille_heartbeat.usecases import channels
from reveille_heartbeat.usecases.runs.log_store import PIECE, LogChunk, LogPlace, LogStore
from reveille_heartbeat.usecases.visible import require_visible
from reveille_runtime.access import Actor
from reveille_runtime.batcher import Batcher
from reveille_runtime.db import Database
from reveille_runtime.hints import Notifier
from reveille_runtime.lease import LeaseLost

_PIECES = 64


@dataclass(frozen=True, slots=True)
class LogPart:
    """What a reader gets."""

    data: bytes
    next_offset: int
    complete: bool


class RunLog:
    """Writes through a batcher: many runs' output costs one statement."""

    def __init__(self, db: Database, store: LogStore, notifier: Notifier) -> None:
        self._db = db
        self._store = store
        self._notifier = notifier
        self._batcher: Batcher[LogChunk, bool] = Batcher(
            "run_log",
            self._write,
            size=lambda chunk: len(chunk.data),
            key=lambda chunk: chunk.key,
        )

    async def append(self, chunk: LogChunk) -> None:
        """Store a chunk of any size, in pieces.

        Raises:
            LeaseLost: the run is not the writer's any more.
        """
        for at in range(0, len(chunk.data), PIECE):
            piece = chunk.data[at : at + PIECE]
            kept = LogChunk(chunk.lease, chunk.stream, chunk.start + at, piece)
            if not await self._batcher.submit(kept):
                raise LeaseLost(chunk.lease)

    async def close(self) -> None:
        """Write what is queued."""
        await self._batcher.close()

    async def ends(self, run_id: UUID) -> Mapping[LogStream, int]:
        """Tell how far each stream is stored: where its next executor goes on."""
        return await self._store.ends(run_id)

    async def read(
        self, actor: Actor, run_id: UUID, stream: LogStream, offset: int, limit: int
    ) -> LogPart:
        """Read from a byte offset on. Raises NotFound."""
        async with self._db.session() as tx:
            # First the run: output stored after this look is found by the next read.
            rows = await tx.fetch(Q["find_runs"], [run_id])
        run = require_visible(actor, to_run(rows[0]) if rows else None, "run", run_id)
        place = LogPlace(run_id, run.created_at, stream, offset)
        (pieces,) = await self._store.read([place], _PIECES)
        data = b"".join(piece.data for piece in pieces)
        more = len(data) > limit or len(pieces) == _PIECES
        kept = data[:limit]
        return LogPart(
            kept, offset + len(kept), complete=run.follow_up_done_at is not None and not more
        )

    async def _write(self, chunks: Sequence[LogChunk]) -> list[bool | Exception]:
        held = await self._store.append(chunks)
        self._notifier.notify(channels.OUTPUT)
        return list(held)
