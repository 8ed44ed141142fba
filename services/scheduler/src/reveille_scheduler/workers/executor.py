"""Executes claims concurrently, up to a bound, and drains them when the service stops."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias

from reveille_runtime.lifecycle import TaskScope
from reveille_scheduler.domain.occurrence import Claim
from reveille_scheduler.usecases.hand_over import HandOver

# Work that is given the way to begin the claims that come of it.
Aside: TypeAlias = Callable[[Callable[[Sequence[Claim]], None]], Coroutine[Any, Any, None]]


class Executor:
    """Runs hand-overs; at most `capacity` at once, so that planning never claims in vain."""

    name = "executor"

    def __init__(self, hand_over: HandOver, capacity: int, grace: float) -> None:
        self._hand_over = hand_over
        self._capacity = capacity
        self._grace = grace
        self._scope = TaskScope("hand over")
        # What each job takes up now; a job without any has no entry.
        self._held: Counter[str] = Counter()
        # Jobs that found no room, and whether something can go on by now.
        self._short: set[str] = set()
        self._eased = asyncio.Event()
        self._stopped = asyncio.Event()

    @property
    def free(self) -> int:
        """How many claims can be taken up now."""
        return max(0, self._capacity - self._held.total())

    def room(self, job_name: str) -> int:
        """How many more claims of a job can be taken up now; without any, `wait` ends with some.

        A job holds at most half of what the others leave it, so that one whose handler hangs
        never keeps the others from their turn; the last place goes to a job that holds none.
        """
        found = self._room(job_name)
        if not found:
            self._short.add(job_name)
        return found

    async def wait(self, timeout: float) -> None:
        """Return when a place comes free that something waits for; the planner's hint.

        That is one of a job that found no room, or one of a scope that has something due.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._eased.wait()
                self._short.clear()
                self._eased.clear()

    def start(self, claims: Iterable[Claim]) -> None:
        """Execute claims in the background."""
        for claim in claims:
            self._spawn(self._hand_over(claim), str(claim.id), claim.job_name, lambda: 1)

    def run_aside(self, work: Aside, name: str, job_name: str, places: int) -> None:
        """Run something else that must not hold up planning; it ends with the attempts.

        It keeps as many of the job's places as claims may come of it. Those that it begins before
        it ends take these places over: beside them they would take other jobs' as well.
        """
        kept = places

        def begin(claims: Sequence[Claim]) -> None:
            nonlocal kept
            taken_over = min(kept, len(claims))
            kept -= taken_over
            self._held[job_name] -= taken_over
            self.start(claims)

        self._spawn(work(begin), name, job_name, lambda: kept)

    def _spawn(
        self, work: Coroutine[Any, Any, object], name: str, job_name: str, kept: Callable[[], int]
    ) -> None:
        self._held[job_name] += kept()
        # By a callback: a task that is cancelled before it begins runs no line of its own.
        self._scope.spawn(work, name).add_done_callback(partial(self._leave, job_name, kept))

    def _leave(self, job_name: str, kept: Callable[[], int], work: asyncio.Task[Any]) -> None:
        self._held[job_name] -= kept()
        if not self._held[job_name]:
            del self._held[job_name]
        if self._eased.is_set():
            return
        if _is_awaited(work) or any(self._room(short) for short in self._short):
            self._eased.set()

    def _room(self, job_name: str) -> int:
        own, free = self._held[job_name], self.free
        least = min(1, free) if own == 0 else 0
        return max(least, (free + own) // 2 - own)

    async def run(self) -> None:
        """Live until stopped."""
        await self._stopped.wait()

    async def stop(self) -> None:
        """Let the attempts end for a while, then give the others back."""
        await self._scope.close(self._grace)
        self._stopped.set()


def _is_awaited(work: asyncio.Task[Any]) -> bool:
    """Tell whether an attempt ended whose scope has something due."""
    return not work.cancelled() and work.exception() is None and work.result() is True
