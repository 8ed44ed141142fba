"""Where the output of runs is kept: what such a store has to be, whoever makes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from reveille_heartbeat.domain.values import LogStream
from reveille_runtime.lease import Lease

# No piece is larger: an adapter may hand over what it likes, and it is cut here.
PIECE = 64 * 1024


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
class LogPlace:
    """From where on somebody wants to read; `made_at` is when the run was made."""

    run_id: UUID
    made_at: datetime
    stream: LogStream
    offset: int


@dataclass(frozen=True, slots=True)
class LogPiece:
    """What is stored at an offset."""

    offset: int
    data: bytes


class LogStore(Protocol):
    """Pieces of output by run, stream and byte offset."""

    async def append(self, chunks: Sequence[LogChunk]) -> Sequence[bool]:
        """Store pieces, each only while its lease holds; tell which ones' did.

        The same piece again changes nothing.
        """
        ...

    async def ends(self, run_id: UUID) -> Mapping[LogStream, int]:
        """Tell how far each stream of a run is stored."""
        ...

    async def read(self, places: Sequence[LogPlace], pieces: int) -> list[list[LogPiece]]:
        """Give, for each place, up to so many pieces in order, the first one from its offset on."""
        ...
