"""Executes claims concurrently, up to a bound, and drains them when the service stops."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

from reveille_runtime.lifecycle import TaskScope
from reveille_scheduler.domain.occurrence import Claim
from reveille_scheduler.usecases.hand_over import HandOver


class Executor:
    """Runs hand-overs; at most `capacity` at once, so that planning never claims in vain."""

    name = "executor"

    def __init__(self, hand_over: HandOver, capacity: int, grace: float) -> None:
        self._hand_over = hand_over
        self._capacity = capacity
        self._grace = grace
        self._scope = TaskScope("hand over")
        self._stopped = asyncio.Event()

    @property
    def free(self) -> int:
        """How many claims can be taken up now."""
        return max(0, self._capacity - len(self._scope))

    def start(self, claims: Iterable[Claim]) -> None:
        """Execute claims in the background."""
        for claim in claims:
            self._scope.spawn(self._hand_over(claim), str(claim.id))

    def run_aside(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run something else that must not hold up planning; it ends with the attempts."""
        self._scope.spawn(work, name)

    async def run(self) -> None:
        """Live until stopped."""
        await self._stopped.wait()

    async def stop(self) -> None:
        """Let the attempts end for a while, then give the others back."""
        await self._scope.close(self._grace)
        self._stopped.set()
