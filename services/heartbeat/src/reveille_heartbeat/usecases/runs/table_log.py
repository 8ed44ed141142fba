"""The store of output that is tables: pieces by day, each day a partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from reveille_heartbeat.domain.values import LogStream
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.usecases.runs.log_store import LogChunk, LogPiece, LogPlace
from reveille_runtime.db import Database


class TableLog:
    """A `LogStore` in the service's own schema."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def append(self, chunks: Sequence[LogChunk]) -> Sequence[bool]:
        """Store pieces under the leases of their runs."""
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

    async def ends(self, run_id: UUID) -> Mapping[LogStream, int]:
        """Tell how far each stream is stored."""
        async with self._db.session() as tx:
            rows = await tx.fetch(Q["log_ends"], run_id)
        return {LogStream(row["stream"]): row["end_offset"] for row in rows}

    async def read(self, places: Sequence[LogPlace], pieces: int) -> list[list[LogPiece]]:
        """Read from each place on, as far as there is no gap."""
        async with self._db.session() as tx:
            rows = await tx.fetch(
                Q["read_log"],
                [place.run_id for place in places],
                [place.made_at for place in places],
                [place.stream.value for place in places],
                [place.offset for place in places],
                pieces,
            )
        found: list[list[LogPiece]] = [[] for _ in places]
        at = [place.offset for place in places]
        for row in rows:
            index = row["place"] - 1
            start: int = row["start_offset"]
            if start > at[index]:
                continue
            piece = LogPiece(at[index], row["data"][at[index] - start :])
            found[index].append(piece)
            at[index] += len(piece.data)
        return found
