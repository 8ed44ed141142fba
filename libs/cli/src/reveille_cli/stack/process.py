"""One process of the stack, from its start to the exit code it leaves.

Restarts nothing by itself. A thread of its own watches each life of the process, so that states
change when things happen and not when somebody asks.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from reveille_cli.stack.errors import StackError
from reveille_cli.stack.health import Health, probe
from reveille_cli.stack.identity import ProcessIdentity
from reveille_cli.stack.plan import Launch
from reveille_cli.stack.spawner import Spawner
from reveille_cli.stack.wish import Wish

_PROBE_PAUSE = 0.1
_TAIL_BYTES = 16_384


class ProcessState(StrEnum):
    """Where a process is in its life."""

    WAITING = "waiting"
    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    STOPPED = "stopped"
    DONE = "done"
    EXITED = "exited"


TRANSITIONS: Mapping[ProcessState, frozenset[ProcessState]] = {
    ProcessState.WAITING: frozenset({ProcessState.STARTING}),
    ProcessState.STARTING: frozenset(
        {ProcessState.READY, ProcessState.DONE, ProcessState.EXITED, ProcessState.STOPPING}
    ),
    ProcessState.READY: frozenset({ProcessState.EXITED, ProcessState.STOPPING}),
    ProcessState.STOPPING: frozenset({ProcessState.STOPPED, ProcessState.EXITED}),
    ProcessState.STOPPED: frozenset({ProcessState.STARTING}),
    ProcessState.DONE: frozenset({ProcessState.STARTING}),
    ProcessState.EXITED: frozenset({ProcessState.STARTING}),
}
# Before it has a handler, SIGTERM itself ends a process; a shell turns that into 143.
_ENDED_AS_ASKED = frozenset({0, -signal.SIGTERM, 128 + signal.SIGTERM})
RUNNING = frozenset({ProcessState.STARTING, ProcessState.READY, ProcessState.STOPPING})
SETTLED = frozenset(
    {ProcessState.READY, ProcessState.DONE, ProcessState.EXITED, ProcessState.STOPPED}
)


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """A process as it was at one moment."""

    name: str
    service: str
    replica: int
    state: ProcessState
    identity: ProcessIdentity | None
    exit_code: int | None
    started_at: float | None
    addresses: Mapping[str, str]
    log: str

    @property
    def pid(self) -> int | None:
        """Return the pid while there is a process."""
        return self.identity.pid if self.identity and self.state in RUNNING else None

    def exit_text(self) -> str:
        """Say how it ended, as a person reads it."""
        return describe_exit(self.exit_code)


def describe_exit(code: int | None) -> str:
    """Say what an exit code means: subprocess gives a signal as its negative number."""
    if code is None:
        return "has not exited"
    return f"exited with code {code}" if code >= 0 else f"was killed by {signal_name(-code)}"


def signal_name(number: int) -> str:
    """Name a signal as people do."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class ManagedProcess:
    """Starts, watches and stops what a launch describes.

    `on_change` is called while the process is locked: it must not wait for this process.
    """

    def __init__(
        self, launch: Launch, spawner: Spawner, on_change: Callable[[ProcessStatus], None]
    ) -> None:
        self.launch = launch
        self._spawner = spawner
        self._on_change = on_change
        self._changed = threading.Condition()
        self._child: subprocess.Popen[bytes] | None = None
        self._asked_to_end = False
        self._lost_patience = False
        self._status = ProcessStatus(
            name=launch.name,
            service=launch.service,
            replica=launch.replica,
            state=ProcessState.WAITING,
            identity=None,
            exit_code=None,
            started_at=None,
            addresses=launch.addresses,
            log=str(launch.log),
        )
        self.failed = False

    @property
    def name(self) -> str:
        """Name of the process."""
        return self.launch.name

    @property
    def state(self) -> ProcessState:
        """State now."""
        return self._status.state

    def status(self) -> ProcessStatus:
        """Return the process as it is now; never waits."""
        return self._status

    def start(self, environment: Mapping[str, str] | None = None) -> None:
        """Start it, with settings that hold for this life only."""
        with self._changed:
            if self.state in RUNNING:
                raise StackError(f"{self.name} is running already")
            try:
                child = self._spawner.start(
                    self.launch.argv,
                    {**self.launch.environment, **(environment or {})},
                    self.launch.folder,
                    self.launch.log,
                )
            except OSError as error:
                raise StackError(f"cannot start {self.name}: {error}") from error
            self._child = child
            self._asked_to_end = self._lost_patience = False
            self._move(
                ProcessState.STARTING,
                identity=ProcessIdentity.of(child.pid),
                exit_code=None,
                started_at=time.time(),
            )
        threading.Thread(
            target=self._watch, args=(child,), name=f"watch-{self.name}", daemon=True
        ).start()

    def wait_settled(self, timeout: float, give_up: Callable[[], bool]) -> ProcessState:
        """Wait until it is ready or over, the time is up, or `give_up` says so.

        A job takes as long as it takes: only it knows how much there is to do.
        """
        deadline = math.inf if self.launch.one_shot else time.monotonic() + timeout
        with self._changed:
            while self.state not in SETTLED and not give_up():
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(min(left, 0.1))
            return self.state

    def wait_exit(self, timeout: float) -> int:
        """Wait until it has ended and return its exit code; TimeoutError when it has not."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.state not in RUNNING, timeout):
                raise TimeoutError(f"{self.name} still runs after {timeout:g} s")
            if self._status.exit_code is None:
                raise StackError(f"{self.name} never ran")
            return self._status.exit_code

    def signal(self, number: signal.Signals, *, expect_end: bool) -> None:
        """Send it a signal; with `expect_end` the exit that follows is no failure."""
        with self._changed:
            child = self._living()
            self._asked_to_end = self._asked_to_end or expect_end
            child.send_signal(number)

    def begin_stop(self) -> None:
        """Ask it to end; harmless when it does not run."""
        with self._changed:
            if self.state not in {ProcessState.STARTING, ProcessState.READY}:
                return
            self._asked_to_end = True
            self._living().send_signal(signal.SIGTERM)
            self._move(ProcessState.STOPPING)

    def finish_stop(self, impatient: Wish) -> bool:
        """Wait out its grace, then kill it with its group; False when it had to be killed."""
        deadline = time.monotonic() + self.launch.stop_grace
        with self._changed:
            while self.state in RUNNING and time.monotonic() < deadline:
                if impatient.uttered:
                    break
                self._changed.wait(0.1)
            if self.state not in RUNNING:
                return True
            self._lost_patience = True
            with suppress(ProcessLookupError):
                os.killpg(self._living().pid, signal.SIGKILL)
            self._changed.wait_for(lambda: self.state not in RUNNING)
        return False

    def tail(self, lines: int = 15) -> list[str]:
        """Return the last lines of its log."""
        try:
            with self.launch.log.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _TAIL_BYTES))
                text = file.read().decode("utf-8", errors="replace")
        except FileNotFoundError:
            return []
        return text.splitlines()[-lines:]

    def how_it_ended(self) -> str:
        """Say how it ended, or that it has not."""
        status = self._status
        return f"is still {status.state}" if status.exit_code is None else status.exit_text()

    def _living(self) -> subprocess.Popen[bytes]:
        if self._child is None or self.state not in RUNNING:
            raise StackError(f"{self.name} is not running")
        return self._child

    def _watch(self, child: subprocess.Popen[bytes]) -> None:
        if not self.launch.one_shot:
            self._await_ready(child)
        code = child.wait()
        with self._changed:
            stopping = self.state is ProcessState.STOPPING
            if stopping and (self._lost_patience or code in _ENDED_AS_ASKED):
                end = ProcessState.STOPPED
            elif self.launch.one_shot and code == 0:
                end = ProcessState.DONE
            else:
                end = ProcessState.EXITED
                # Asked to end in order, it broke on the way.
                self.failed = self.failed or stopping or not self._asked_to_end
            self._move(end, exit_code=code)

    def _await_ready(self, child: subprocess.Popen[bytes]) -> None:
        address = self.launch.health_address
        while address is not None and probe(address) is not Health.SERVING:
            try:
                child.wait(_PROBE_PAUSE)
            except subprocess.TimeoutExpired:
                continue
            return
        with self._changed:
            if self.state is ProcessState.STARTING:
                self._move(ProcessState.READY)

    def _move(self, state: ProcessState, **facts: Any) -> None:
        """Change the state and tell it, under the lock: who waits for a state finds it told."""
        if state not in TRANSITIONS[self.state]:
            raise AssertionError(f"{self.name} cannot go from {self.state} to {state}")
        self._status = replace(self._status, state=state, **facts)
        self._changed.notify_all()
        self._on_change(self._status)
