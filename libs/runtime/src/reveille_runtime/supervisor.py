"""Components under one owner, who restarts those that die and stops them all in time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from contextvars import Context

from reveille_runtime import logs
from reveille_runtime.lifecycle import BACKOFF, Component, seed_of

_log = logs.get_logger(__name__)
# A restarted component counts as well again after this long.
STABLE_AFTER = 5.0
# How long what is ready to end, or was just cancelled, may take to do so.
MOMENT = 0.5


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
        """Stop in reverse order, all within `grace`; what still runs by then is cancelled.

        Ends two moments later at the latest, and raises nothing: a component that does not stop, or
        cannot, keeps no other from its own end.
        """
        self._stopping.set()
        loop = asyncio.get_running_loop()
        over = loop.time() + grace
        late: set[asyncio.Task[None]] = set()
        for component in reversed(self._components):
            running = self._running.pop(component.name, None)
            asking = loop.create_task(self._ask(component, running), name=component.name)
            ending = {asking} if running is None else {asking, running}
            _, still = await asyncio.wait(ending, timeout=max(0.0, over - loop.time()))
            late |= still
        if late:
            # Those that were asked when the time was up already need but a moment.
            _, late = await asyncio.wait(late, timeout=MOMENT)
        for name in sorted({task.get_name() for task in late}):
            _log.warning(
                "A component did not stop in time; cancelling it.",
                action="component.stop_timeout",
                component=name,
            )
        for task in late:
            task.cancel()
        if late:
            # Not for ever: who waits for a database that is silent ends when its pool is closed.
            await asyncio.wait(late, timeout=MOMENT)

    @staticmethod
    async def _ask(component: Component, running: asyncio.Task[None] | None) -> None:
        try:
            await component.stop()
        except Exception:  # noqa: BLE001 (the others have to be stopped all the same)
            _log.exception(
                "A component failed to stop; cancelling it.",
                action="component.stop_failed",
                component=component.name,
            )
            if running is not None:
                running.cancel()

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
            pause = BACKOFF.delay(failures, seed_of(component.name))
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
