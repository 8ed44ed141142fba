"""Facts of runs, written in the transaction that made them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from reveille_heartbeat.store.queries import Q
from reveille_runtime.db import Tx


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One fact; `seq` comes from the run's own counter, in the same transaction."""

    run_id: UUID
    seq: int
    type: str
    message: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


async def write(tx: Tx, events: Sequence[RunEvent]) -> None:
    """Append facts."""
    if not events:
        return
    await tx.execute(
        Q["insert_run_events"],
        [event.run_id for event in events],
        [event.seq for event in events],
        [event.type for event in events],
        [event.message for event in events],
        [dict(event.facts) for event in events],
    )
