"""Loops, supervised components and task scopes: they run, they end, they are never lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar

import pytest
from structlog.testing import capture_logs

from reveille_runtime.backoff import Backoff
from reveille_runtime.lifecycle import Background, Loop, TaskScope
from reveille_runtime.supervisor import Supervisor

FAR = 3600.0
CALLER: ContextVar[str] = ContextVar("caller", default="nobody")


@pytest.fixture(autouse=True)
async def limit() -> AsyncIterator[None]:
    async with asyncio.timeout(20):
        yield


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("lifecycle", "supervisor"):
        quick = Backoff(first=0.001, longest=0.002)
        monkeypatch.setattr(f"reveille_runtime.{module}.BACKOFF", quick)


class Counter:
    """A step that counts, and answers or fails as the test says."""

    def __init__(self, *answers: float | Exception | None) -> None:
        self.calls = 0
        self.answers = list(answers)

    async def __call__(self) -> float | None:
        self.calls += 1
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer


class Hint:
    """A hint that the test gives."""

    def __init__(self) -> None:
        self.given = asyncio.Event()

    async def wait(self, timeout: float) -> bool:
        await self.given.wait()
        self.given.clear()
        return True


async def test_a_step_that_has_more_to_do_runs_again_at_once() -> None:
    step = Counter(0, 0, 0, FAR)
    loop = Loop("l", step, interval=FAR)
    running = asyncio.ensure_future(loop.run())

    await loop.ticked(4)
    await loop.stop()
    await running

    assert step.calls == 4


async def test_a_hint_ends_the_wait() -> None:
    step, hint = Counter(), Hint()
    loop = Loop("l", step, interval=FAR, hint=hint)
    running = asyncio.ensure_future(loop.run())
    await loop.ticked()

    hint.given.set()
    await loop.ticked()
    loop.wake()
    await loop.ticked()
    await loop.stop()
    await running

    assert step.calls == 3


async def test_a_wake_during_the_step_is_not_lost() -> None:
    entered, release = asyncio.Event(), asyncio.Event()
    calls = 0

    async def step() -> None:
        nonlocal calls
        calls += 1
        entered.set()
        await release.wait()

    loop = Loop("l", step, interval=FAR)
    running = asyncio.ensure_future(loop.run())
    await entered.wait()
    waiting = asyncio.ensure_future(loop.ticked())
    await asyncio.sleep(0)

    loop.wake()
    release.set()
    # The step at work had begun before: only the next one counts.
    await waiting
    await loop.stop()
    await running

    assert calls == 2


@pytest.mark.usefixtures("impatient")
async def test_a_failing_step_is_logged_and_repeated_and_forgiven() -> None:
    step = Counter(ValueError("one"), ValueError("two"), FAR)
    loop = Loop("sweep", step, interval=FAR)

    with capture_logs() as logged:
        running = asyncio.ensure_future(loop.run())
        await loop.ticked(2)
        assert loop.failures == 2
        await loop.ticked()
        await loop.stop()
        await running

    assert [(entry["action"], entry["failures"]) for entry in logged] == [
        ("loop.step_failed", 1),
        ("loop.step_failed", 2),
    ]
    assert loop.failures == 0


async def test_hints_do_not_turn_a_failing_step_into_a_busy_loop() -> None:
    step, hint = Counter(ValueError("once")), Hint()
    loop = Loop("l", step, interval=FAR, hint=hint)
    hint.given.set()

    with capture_logs():
        running = asyncio.ensure_future(loop.run())
        await loop.ticked()
        await asyncio.sleep(0)
        calls = step.calls
        await loop.stop()
        await running

    assert calls == 1
    assert hint.given.is_set()


async def test_a_loop_stops_twice_and_before_its_start() -> None:
    step = Counter()
    loop = Loop("l", step, interval=FAR)

    await loop.stop()
    await loop.stop()
    await loop.run()

    assert step.calls == 0


async def test_stopping_finishes_the_step_at_work() -> None:
    entered, release = asyncio.Event(), asyncio.Event()
    finished = False

    async def step() -> None:
        nonlocal finished
        entered.set()
        await release.wait()
        finished = True

    supervisor = Supervisor()
    supervisor.add(Loop("l", step, interval=FAR))
    await supervisor.start()
    await entered.wait()
    stopping = asyncio.ensure_future(supervisor.stop())
    await asyncio.sleep(0)
    release.set()
    await stopping

    assert finished


async def test_a_component_that_ignores_the_stop_is_cancelled() -> None:
    entered = asyncio.Event()
    cancelled = False

    async def step() -> None:
        nonlocal cancelled
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled = True
            raise

    supervisor = Supervisor()
    supervisor.add(Loop("stuck", step, interval=FAR))
    await supervisor.start()
    await entered.wait()

    with capture_logs() as logged:
        await supervisor.stop(grace=0.01)

    assert cancelled
    assert [entry["action"] for entry in logged] == ["component.stop_timeout"]


class Noted:
    """A component that notes when it starts and stops."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self.name = name
        self.notes = notes
        self.over = asyncio.Event()

    async def run(self) -> None:
        self.notes.append(f"+{self.name}")
        await self.over.wait()
        self.notes.append(f"-{self.name}")

    async def stop(self) -> None:
        self.over.set()


async def test_components_start_in_order_and_stop_in_reverse() -> None:
    notes: list[str] = []
    supervisor = Supervisor()
    for name in ("a", "b", "c"):
        supervisor.add(Noted(name, notes))

    await supervisor.start()
    await supervisor.start()
    await asyncio.sleep(0)
    await supervisor.stop()
    await supervisor.stop()

    assert notes == ["+a", "+b", "+c", "-c", "-b", "-a"]


class Deaf:
    """A component that hears no stop, and of cancellations only what it is told to."""

    def __init__(self, name: str, *, cancellable: bool) -> None:
        self.name = name
        self.over = asyncio.Event()
        self.at_work = asyncio.Event()
        self._cancellable = cancellable

    async def run(self) -> None:
        self.at_work.set()
        while not self.over.is_set():
            try:
                await self.over.wait()
            except asyncio.CancelledError:
                if self._cancellable:
                    raise

    async def stop(self) -> None:
        pass


async def test_all_components_share_the_time_of_their_stop() -> None:
    """A stop is given so much time in all; whoever takes more is killed, with all that follows."""
    supervisor = Supervisor()
    components = [Deaf(name, cancellable=True) for name in ("a", "b", "c", "d")]
    for component in components:
        supervisor.add(component)
    await supervisor.start()
    for component in components:
        await component.at_work.wait()
    clock = asyncio.get_running_loop()
    began = clock.time()

    with capture_logs() as logged:
        await supervisor.stop(grace=1.0)

    assert clock.time() - began < 3.0
    assert sorted(entry["component"] for entry in logged) == ["a", "b", "c", "d"]


async def test_one_that_does_not_even_hear_its_cancellation_is_left_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("reveille_runtime.supervisor.MOMENT", 0.01)
    notes: list[str] = []
    deaf = Deaf("deaf", cancellable=False)
    supervisor = Supervisor()
    supervisor.add(Noted("first", notes))
    supervisor.add(deaf)
    await supervisor.start()
    await deaf.at_work.wait()

    with capture_logs():
        stopping = asyncio.create_task(supervisor.stop(grace=0.01))
        await asyncio.wait({stopping}, timeout=5)
    deaf.over.set()

    assert stopping.done()
    assert notes == ["+first", "-first"]


class Trouble(Noted):
    """A component whose stop does not end as it should."""

    def __init__(self, name: str, notes: list[str], stop: Callable[[], Awaitable[None]]) -> None:
        super().__init__(name, notes)
        self._stop = stop

    async def stop(self) -> None:
        await self._stop()


async def fail() -> None:
    raise ConnectionResetError("the database is gone")


async def hang() -> None:
    """Wait as for a silent database: not even a cancellation ends the work at once."""
    scope = TaskScope("work")
    stubborn = Deaf("stubborn", cancellable=False)
    scope.spawn(stubborn.run())
    await stubborn.at_work.wait()
    try:
        await scope.close()
    finally:
        stubborn.over.set()


@pytest.mark.parametrize(
    ("stop", "told"), [(fail, "component.stop_failed"), (hang, "component.stop_timeout")]
)
async def test_a_component_that_cannot_stop_keeps_no_other_from_its_end(
    monkeypatch: pytest.MonkeyPatch, stop: Callable[[], Awaitable[None]], told: str
) -> None:
    monkeypatch.setattr("reveille_runtime.supervisor.MOMENT", 0.01)
    notes: list[str] = []
    supervisor = Supervisor()
    supervisor.add(Noted("first", notes))
    supervisor.add(Trouble("trouble", notes, stop))
    await supervisor.start()
    await asyncio.sleep(0)

    with capture_logs() as logged:
        stopping = asyncio.create_task(supervisor.stop(grace=0.01))
        await asyncio.wait({stopping}, timeout=5)

    assert stopping.done()
    assert notes == ["+first", "+trouble", "-first"]
    assert [(entry["action"], entry["component"]) for entry in logged] == [(told, "trouble")]


async def test_a_supervisor_stops_before_its_start_and_stays_stopped() -> None:
    notes: list[str] = []
    supervisor = Supervisor()
    supervisor.add(Noted("a", notes))

    await supervisor.stop()
    await supervisor.start()

    assert notes == []


async def test_two_components_may_not_share_a_name() -> None:
    supervisor = Supervisor()
    supervisor.add(Noted("a", []))

    with pytest.raises(ValueError, match="two components are called a"):
        supervisor.add(Noted("a", []))


@pytest.mark.usefixtures("impatient")
async def test_a_dead_component_is_restarted_and_shows_in_health() -> None:
    health: asyncio.Queue[bool] = asyncio.Queue()
    runs = 0

    async def work() -> None:
        nonlocal runs
        runs += 1
        if runs <= 2:
            raise RuntimeError("dead")
        await asyncio.Event().wait()

    supervisor = Supervisor(health.put, stable_after=0.02)
    supervisor.add(Background("consumer", work))

    with capture_logs() as logged:
        await supervisor.start()
        assert await health.get() is False
        assert supervisor.sick == {"consumer"}
        assert await health.get() is True
        await supervisor.stop()

    assert runs == 3
    assert supervisor.sick == set()
    assert [entry["action"] for entry in logged] == ["component.crashed"] * 2


@pytest.mark.usefixtures("impatient")
async def test_a_component_that_just_returns_counts_as_dead() -> None:
    health: asyncio.Queue[bool] = asyncio.Queue()

    async def work() -> None:
        return

    supervisor = Supervisor(health.put)
    supervisor.add(Background("consumer", work))

    with capture_logs():
        await supervisor.start()
        assert await health.get() is False
        await supervisor.stop()


@pytest.mark.usefixtures("impatient")
async def test_a_cancellation_that_nobody_asked_for_counts_as_death() -> None:
    health: asyncio.Queue[bool] = asyncio.Queue()
    foreign: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    foreign.cancel()

    async def step() -> None:
        await foreign

    supervisor = Supervisor(health.put)
    supervisor.add(Loop("claims", step, interval=FAR))

    with capture_logs() as logged:
        await supervisor.start()
        assert await health.get() is False
        await supervisor.stop()

    assert logged[0]["action"] == "component.crashed"


async def test_a_component_runs_in_nobodys_name() -> None:
    seen: asyncio.Queue[str] = asyncio.Queue()

    async def work() -> None:
        await seen.put(CALLER.get())
        await asyncio.Event().wait()

    token = CALLER.set("user:1")
    supervisor = Supervisor()
    supervisor.add(Background("b", work))
    scope = TaskScope("scope")
    await supervisor.start()
    assert await seen.get() == "nobody"
    scope.spawn(work())
    assert await seen.get() == "nobody"
    await scope.close()
    await supervisor.stop()
    CALLER.reset(token)


async def test_a_scope_ends_its_tasks() -> None:
    scope = TaskScope("agents")
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("x")

    async def brief() -> None:
        ended.append("brief")

    scope.spawn(work(), "one")
    scope.spawn(work(), "two")
    await scope.spawn(brief())
    await scope.close()
    await scope.close()

    assert ended.count("x") == 2
    assert len(scope) == 0


async def test_a_task_nobody_awaits_reports_its_failure() -> None:
    scope = TaskScope("agents")

    async def work() -> None:
        raise RuntimeError("lost")

    with capture_logs() as logged:
        task = scope.spawn(work(), "one")
        await asyncio.wait({task})
        await scope.close()

    assert [(entry["action"], entry["task"]) for entry in logged] == [("task.failed", "agents:one")]
