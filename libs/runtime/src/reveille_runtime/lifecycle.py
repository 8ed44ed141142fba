"""Background work with an owner: loops, components, and scopes of tasks.

Everything here may be stopped twice and before it was started, and nothing swallows cancellation.
Tasks run in an empty context, so that work begun during an RPC carries neither that call's
deadline nor its caller nor its span.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from typing import Any, Protocol

from reveille_runtime import logs
from reveille_runtime.backoff import Backoff

_log = logs.get_logger(__name__)

# Between a failure of work in the background and its repeat.
BACKOFF = Backoff(first=0.2, longest=30.0, jitter=0.5)


class Wakeable(Protocol):
    """Something that may end a loop's wait early."""

    async def wait(self, timeout: float) -> object:
        """Return at the next hint, at the latest after `timeout` seconds."""


class Component(Protocol):
    """Something that runs until it is stopped."""

    name: str

    async def run(self) -> None:
        """Work until `stop` is called; returning earlier is a failure."""

    async def stop(self) -> None:
        """Make `run` return soon; safe at any time, more than once."""


class Loop:
    """Repeats a step, whose answer says when the next one is due.

    It returns seconds: None means the interval, 0 means at once. A hint, or `wake()`, ends the
    wait early. A step that raises is logged and repeated after a growing pause: that never ends
    the loop.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], Awaitable[float | None]],
        interval: float,
        hint: Wakeable | None = None,
    ) -> None:
        self.name = name
        self.failures = 0
        self._step = step
        self._interval = interval
        self._hint = hint
        self._stopping = False
        self._wake = asyncio.Event()
        self._ticks = 0
        self._working = False
        self._tick = asyncio.Condition()

    def wake(self) -> None:
        """Run the next step now."""
        self._wake.set()

    async def stop(self) -> None:
        """Finish the step at work and start no other."""
        self._stopping = True
        self._wake.set()

    async def ticked(self, count: int = 1) -> None:
        """Wait until `count` more steps have begun and ended after this call."""
        # A step already at work may have read its data before whatever the caller just did.
        target = self._ticks + count + (1 if self._working else 0)
        async with self._tick:
            await self._tick.wait_for(lambda: self._ticks >= target)

    async def run(self) -> None:
        """Repeat the step until stopped."""
        while not self._stopping:
            self._wake.clear()
            pause = await self._once()
            async with self._tick:
                self._tick.notify_all()
            if pause > 0:
                await self._wait(pause)
            else:
                # A step that always has more to do must not starve the other tasks.
                await asyncio.sleep(0)

    async def _once(self) -> float:
        self._working = True
        try:
            pause = await self._step()
        except Exception:  # noqa: BLE001 (a loop outlives every failure of its step)
            self.failures += 1
            pause = BACKOFF.delay(self.failures, seed_of(self.name))
            _log.exception(
                "A loop's step failed; it will be repeated.",
                action="loop.step_failed",
                loop=self.name,
                failures=self.failures,
                pause=round(pause, 3),
            )
            return pause
        finally:
            # Together: in between, whoever waits for the next step would take this one for it.
            self._working = False
            self._ticks += 1
        self.failures = 0
        return self._interval if pause is None else pause

    async def _wait(self, pause: float) -> None:
        if self._stopping:
            return
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._wake.wait())]
        # After a failure only time helps: a hint would turn the backoff into a busy loop.
        if self._hint is not None and self.failures == 0:
            waits.append(asyncio.ensure_future(_hinted(self._hint, pause)))
        try:
            await asyncio.wait(waits, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)


async def _hinted(hint: Wakeable, timeout: float) -> bool:
    await hint.wait(timeout)
    return True


def seed_of(name: str) -> str:
    """Keep equal replicas that failed together from trying again together."""
    return f"{name}/{os.getpid()}"


class TaskScope:
    """Tasks that belong to one object and end with it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, Any], name: str = "") -> asyncio.Task[Any]:
        """Start a task; a failure nobody awaits is logged."""
        task = asyncio.get_running_loop().create_task(
            work, name=f"{self.name}:{name}" if name else self.name, context=Context()
        )
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def close(self, grace: float = 0.0) -> None:
        """Wait up to `grace` for the tasks, then cancel them and wait for their end.

        That wait is as long as their clean-up takes, which a silent database may hold up: whoever
        has no time for that cancels this call, and leaves them behind.
        """
        if self._tasks and grace > 0:
            await asyncio.wait(set(self._tasks), timeout=grace)
        while self._tasks:
            tasks = set(self._tasks)
            for task in tasks:
                task.cancel()
            # Not gathered: that would not end by a cancellation before they do.
            await asyncio.wait(tasks)
            self._tasks -= tasks

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            _log.error(
                "A background task failed.",
                action="task.failed",
                task=task.get_name(),
                exc_info=error,
            )


class Background:
    """A component made of a coroutine function: it is cancelled to stop it."""

    def __init__(self, name: str, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self.name = name
        self._work = work
        self._task: asyncio.Task[Any] | None = None
        self._stopped = False

    async def run(self) -> None:
        """Run the coroutine; a cancellation by `stop` is a normal end."""
        if self._stopped:
            return
        self._task = asyncio.ensure_future(self._work())
        try:
            await asyncio.wait({self._task})
        finally:
            if not self._task.done():
                self._task.cancel()
                await asyncio.gather(self._task, return_exceptions=True)
        if not self._task.cancelled():
            self._task.result()

    async def stop(self) -> None:
        """Cancel the coroutine."""
        self._stopped = True
        if self._task is not None:
            self._task.cancel()
