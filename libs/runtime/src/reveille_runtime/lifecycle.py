"""Background work with an owner: loops, supervised components, and scopes of tasks.

Everything here may be stopped twice and before it was started, and nothing swallows cancellation.
Tasks run in an empty context, so that work begun during an RPC carries neither that call's
deadline nor its caller nor its span.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from typing import Any, Protocol

from reveille_runtime import logs
from reveille_runtime.backoff import Backoff

_log = logs.get_logger(__name__)

_BACKOFF = Backoff(first=0.2, longest=30.0, jitter=0.5)
# A restarted component counts as well again after this long.
STABLE_AFTER = 5.0
_MOMENT = 0.5


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
            pause = _BACKOFF.delay(self.failures, _seed(self.name))
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


def _seed(name: str) -> str:
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
        """Wait up to `grace` for the tasks, then cancel them and wait for their end."""
        if self._tasks and grace > 0:
            await asyncio.wait(set(self._tasks), timeout=grace)
        while self._tasks:
            tasks = set(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
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


class Supervisor:
    """Runs components: started in order, stopped in reverse, restarted when they die.

    `on_health` hears False when a component died, and True once all have been up for a while.
    """

    def __init__(
        self,
        on_health: Callable[[bool], Awaitable[None]] | None = None,
        *,
        stable_after: float = STABLE_AFTER,
    ) -> None:
        self._on_health = on_health
        self._stable_after = stable_after
        self._components: list[Component] = []
        self._running: dict[str, asyncio.Task[None]] = {}
        self._sick: set[str] = set()
        self._noting: set[asyncio.Task[None]] = set()
        self._started = False
        self._stopping = asyncio.Event()

    @property
    def sick(self) -> frozenset[str]:
        """The components that died and are not yet known to be well again."""
        return frozenset(self._sick)

    def add(self, component: Component) -> None:
        """Supervise a component; it starts at once when the others already run."""
        if any(each.name == component.name for each in self._components):
            raise ValueError(f"two components are called {component.name}")
        self._components.append(component)
        if self._started and not self._stopping.is_set():
            self._launch(component)

    async def start(self) -> None:
        """Start every component."""
        if self._started or self._stopping.is_set():
            return
        self._started = True
        for component in self._components:
            self._launch(component)

    async def stop(self, grace: float = 10.0) -> None:
        """Stop in reverse order, all within `grace`; what still runs by then is cancelled."""
        self._stopping.set()
        loop = asyncio.get_running_loop()
        over = loop.time() + grace
        late: set[asyncio.Task[None]] = set()
        for component in reversed(self._components):
            task = self._running.pop(component.name, None)
            await component.stop()
            if task is not None:
                _, running = await asyncio.wait({task}, timeout=max(0.0, over - loop.time()))
                late |= running
        if late:
            # Those that were asked when the time was up already need but a moment.
            _, late = await asyncio.wait(late, timeout=_MOMENT)
        for task in late:
            _log.warning(
                "A component did not stop in time; cancelling it.",
                action="component.stop_timeout",
                component=task.get_name(),
            )
            task.cancel()
        if late:
            # Not for ever: who waits for a database that is silent ends when its pool is closed.
            await asyncio.wait(late, timeout=_MOMENT)

    def _launch(self, component: Component) -> None:
        self._running[component.name] = asyncio.get_running_loop().create_task(
            self._keep(component), name=component.name, context=Context()
        )

    async def _keep(self, component: Component) -> None:
        failures = 0
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            began = loop.time()
            well = loop.call_later(self._stable_after, self._recovered, component.name)
            try:
                await component.run()
                error: BaseException | None = None
            except asyncio.CancelledError as raised:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                # Not ours: something that it waited for was cancelled by somebody else.
                error = raised
            except Exception as raised:  # noqa: BLE001 (whatever it was, it is restarted)
                error = raised
            finally:
                well.cancel()
            if self._stopping.is_set():
                return
            failures = 1 if loop.time() - began > self._stable_after else failures + 1
            pause = _BACKOFF.delay(failures, _seed(component.name))
            _log.error(
                "A component ended unexpectedly; restarting it.",
                action="component.crashed",
                component=component.name,
                failures=failures,
                pause=round(pause, 3),
                exc_info=error,
            )
            await self._note(component.name, sick=True)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stopping.wait()

    def _recovered(self, name: str) -> None:
        if name in self._sick:
            task = asyncio.ensure_future(self._note(name, sick=False))
            self._noting.add(task)
            task.add_done_callback(self._noting.discard)

    async def _note(self, name: str, *, sick: bool) -> None:
        before = bool(self._sick)
        (self._sick.add if sick else self._sick.discard)(name)
        if bool(self._sick) != before and self._on_health is not None:
            await self._on_health(not self._sick)


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
