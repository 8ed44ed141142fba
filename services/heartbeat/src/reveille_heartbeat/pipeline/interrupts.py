"""What runs inside this process ends with it: at a stop it is interrupted, and not lost."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from reveille_heartbeat.adapters.contract import AdapterResult
from reveille_heartbeat.domain.outcome import End, EndKind

_INTERRUPTED = AdapterResult(End(EndKind.INTERRUPTED))


class Interrupts:
    """Knows the work in progress that cannot outlive this process, and ends it in time."""

    def __init__(self) -> None:
        self._working: set[asyncio.Task[Any]] = set()
        self._ended: set[asyncio.Task[Any]] = set()
        self._stopped = False

    async def run(self, work: Coroutine[Any, Any, AdapterResult]) -> AdapterResult:
        """Do the work in the caller's own task; it is interrupted when `stop` comes first."""
        task = asyncio.current_task()
        if self._stopped or task is None:
            work.close()
            return _INTERRUPTED
        self._working.add(task)
        try:
            return await work
        except asyncio.CancelledError:
            # Somebody else may want the caller to end, and be heard.
            if task in self._ended and task.uncancel() == 0:
                return _INTERRUPTED
            raise
        finally:
            self._working.discard(task)
            self._ended.discard(task)

    def stop(self) -> None:
        """Interrupt what is at work, and begin nothing else."""
        self._stopped = True
        for task in self._working:
            self._ended.add(task)
            task.cancel()
