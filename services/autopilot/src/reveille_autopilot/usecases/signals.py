"""News of runs inside this process, for those who wait for an outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from uuid import UUID


class RunSignals:
    """Wakes whoever waits for a run. Losing news costs latency only: waiters look anyway."""

    def __init__(self) -> None:
        self._waiting: dict[UUID, set[asyncio.Event]] = {}
        self._closed = False

    @property
    def closed(self) -> bool:
        """Tell whether the service is about to stop: then nobody waits any longer."""
        return self._closed

    @contextmanager
    def listening(self, run_id: UUID) -> Iterator[asyncio.Event]:
        """Hear of one run; clear the event before reading the row."""
        news = asyncio.Event()
        self._waiting.setdefault(run_id, set()).add(news)
        try:
            yield news
        finally:
            waiting = self._waiting[run_id]
            waiting.discard(news)
            if not waiting:
                del self._waiting[run_id]

    def tell(self, run_ids: Iterable[UUID]) -> None:
        """Say that something happened to these runs."""
        for run_id in run_ids:
            for news in self._waiting.get(run_id, ()):
                news.set()

    def tell_all(self) -> None:
        """Say that something happened to some run, in another replica perhaps."""
        self.tell(tuple(self._waiting))

    def close(self) -> None:
        """Send everybody home."""
        self._closed = True
        self.tell_all()
