"""Runs a compose file as processes of this machine: starts, watches, reports, stops.

Restarts nothing. Synchronous and thread-safe; every wait ends early once `request_stop` was called,
also from a signal handler. Use it as a context manager, so that nothing stays behind.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType

import psutil

from reveille_cli.stack import longlogs
from reveille_cli.stack.compose import Compose, Condition, Service, read_compose
from reveille_cli.stack.database import EmbeddedDatabase, NamedDatabase
from reveille_cli.stack.datadir import DataDir
from reveille_cli.stack.errors import StackError, StartFailed
from reveille_cli.stack.identity import ProcessIdentity
from reveille_cli.stack.keys import make_secrets
from reveille_cli.stack.leftovers import find_leftovers, stop_leftovers
from reveille_cli.stack.listener import Listener
from reveille_cli.stack.localize import Localizer
from reveille_cli.stack.lock import StackLock
from reveille_cli.stack.options import StackOptions
from reveille_cli.stack.plan import check_scale, hooks_url, make_launches, process_name
from reveille_cli.stack.portbook import read_ports, remember_ports
from reveille_cli.stack.ports import PortHolder, PortMap, assign_ports
from reveille_cli.stack.process import ManagedProcess, ProcessState, ProcessStatus
from reveille_cli.stack.record import Phase, Record, write_endpoints, write_record
from reveille_cli.stack.spawner import Spawner
from reveille_cli.stack.waits import WaitWatch
from reveille_cli.stack.wish import Wish

__all__ = ["Listener", "StackOptions", "Supervisor"]

SECRETS_VARIABLE = "SECRETS_DIR"


class Supervisor:
    """The stack of one data directory."""

    def __init__(self, options: StackOptions, listener: Listener | None = None) -> None:
        self.options = options
        self.data_dir = DataDir.at(options.data_dir)
        self._listener = listener or Listener()
        self._lock = StackLock(self.data_dir)
        self._ports = PortHolder()
        self._spawner = Spawner()
        self._stop_wish = Wish()
        self._impatient = Wish()
        self._recording = threading.Lock()
        self._phase = Phase.STARTING
        self._started_at = time.time()
        self._compose: Compose | None = None
        self._database: EmbeddedDatabase | NamedDatabase | None = None
        self._me = ProcessIdentity(os.getpid(), psutil.Process().create_time())
        self._processes: dict[str, ManagedProcess] = {}
        self._hooks_url = ""
        self._running = False

    def __enter__(self) -> Supervisor:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def database_url(self) -> str:
        """Where the database is, without a password."""
        return (
            self._database.address.public_url if self._database and self._database.address else ""
        )

    def start(self) -> None:
        """Start everything and wait until each service is ready or has ended.

        A service that ends does not stop the others: see `not_ready`. What the stack cannot do
        without (ports, database, a one-shot job, one service at least) raises, and leaves nothing
        running.
        """
        self.data_dir.prepare()
        self._lock.acquire()
        self._running = True
        try:
            # First of all, so that who holds the lock is known.
            self._write_down()
            self._launch_all(self._prepare())
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop everything, dependents first, the database last; harmless when nothing runs."""
        if not self._running:
            return
        self._stop_wish.utter()
        self._phase = Phase.STOPPING
        # Whatever fails on the way, every later step still happens.
        with ExitStack() as steps:
            steps.callback(self._lock.release)
            steps.callback(self._ports.close)
            steps.callback(self._spawner.close)
            steps.callback(self._write_last)
            if self._database is not None:
                steps.callback(self._stop_database, self._database)
            for level in reversed(self._compose.stop_levels() if self._compose else []):
                steps.callback(self._stop_level, level)
            self._running = False

    def request_stop(self) -> None:
        """End every wait; asked a second time, also end the patience with slow processes."""
        if self._stop_wish.uttered:
            self._impatient.utter()
        self._stop_wish.utter()

    def wait_for_stop(self) -> None:
        """Wait until somebody asks for the end; the logs are kept from growing for ever."""
        while not self._stop_wish.wait(longlogs.PAUSE):
            longlogs.cut_long_logs(self.data_dir)

    @property
    def stop_requested(self) -> bool:
        """Whether the end was asked for."""
        return self._stop_wish.uttered

    def statuses(self) -> list[ProcessStatus]:
        """Return every process as it is now, in starting order."""
        return [process.status() for process in self._processes.values()]

    def not_ready(self) -> list[ProcessStatus]:
        """Return the processes that are neither ready nor rightly done."""
        good = {ProcessState.READY, ProcessState.DONE}
        return [status for status in self.statuses() if status.state not in good]

    def any_failed(self) -> bool:
        """Tell whether any process has ended although nobody asked it to."""
        return any(process.failed for process in self._processes.values())

    def process(self, name: str) -> ManagedProcess:
        """Return one process by its name: `scheduler`, and `scheduler-2` for a second replica."""
        try:
            return self._processes[name]
        except KeyError:
            known = ", ".join(self._processes) or "none yet"
            raise StackError(f"the stack has no process {name} (it has: {known})") from None

    def address(self, service: str, kind: str = "grpc", replica: int = 1) -> str:
        """Return host:port where a replica listens for `grpc` or `http`."""
        return self.process(process_name(service, replica)).launch.addresses[kind]

    def start_process(
        self, name: str, environment: Mapping[str, str] | None = None, *, wait: bool = True
    ) -> None:
        """Start one that does not run, with settings that hold for this life of it only."""
        process = self.process(name)
        process.start(environment)
        if wait:
            self._await(process)

    def kill(
        self, name: str, number: signal.Signals = signal.SIGKILL, timeout: float = 30.0
    ) -> int:
        """Send a signal that ends one process, wait for its end, and return its exit code."""
        process = self.process(name)
        process.signal(number, expect_end=True)
        return process.wait_exit(timeout)

    def restart(self, name: str, environment: Mapping[str, str] | None = None) -> None:
        """Stop one process in the orderly way, if it runs, and start it again."""
        process = self.process(name)
        process.begin_stop()
        process.finish_stop(self._impatient)
        self.start_process(name, environment)

    def _prepare(self) -> Compose:
        leftovers = find_leftovers(self.data_dir)
        if leftovers:
            names = ", ".join(f"{item.command} (pid {item.pid})" for item in leftovers)
            self._listener.note(
                f"an earlier supervisor was killed; stopping what it left behind: {names}"
            )
            stop_leftovers(leftovers)
        make_secrets(self.data_dir)
        compose = read_compose(
            self.options.compose_file, {SECRETS_VARIABLE: str(self.data_dir.keys)}
        )
        check_scale(compose, self.options.scale)
        for service in compose.runnable():
            for source in service.volumes.values():
                if not source.startswith((".", "/", "~")):
                    self.data_dir.volume(source).mkdir(mode=0o700, exist_ok=True)
        ports = self._assign_ports(compose)
        self._compose = compose
        if compose.database is not None:
            self._database = self._choose_database(compose.database)
            self._listener.note(self._database.intention)
            self._database.start()
        launches = make_launches(
            compose,
            ports,
            self.data_dir,
            Localizer(
                compose, ports, self.data_dir, self._database.address if self._database else None
            ),
            scale=self.options.scale,
            overrides=self.options.environment,
        )
        self._hooks_url = hooks_url(launches)
        for launch in launches:
            self.data_dir.begin_log(launch.name)
            self._processes[launch.name] = ManagedProcess(launch, self._spawner, self._on_change)
        return compose

    def _assign_ports(self, compose: Compose) -> PortMap:
        known = read_ports(self.data_dir)
        free, scale = self.options.free_ports, self.options.scale
        ports = assign_ports(compose, scale, self._ports, free=free, remembered=known)
        if free:
            remember_ports(self.data_dir, known, ports)
        return ports

    def _choose_database(self, service: Service) -> EmbeddedDatabase | NamedDatabase:
        if self.options.database_url is not None:
            return NamedDatabase(self.options.database_url, self.data_dir)
        return EmbeddedDatabase(
            service, self.data_dir, durable=self.options.durable, owner_pid=os.getpid()
        )

    def _stop_database(self, database: EmbeddedDatabase | NamedDatabase) -> None:
        if database.farewell:
            self._listener.note(database.farewell)
        database.stop()

    def _launch_all(self, compose: Compose) -> None:
        with WaitWatch(lambda: list(self._processes.values()), self._listener.waiting):
            self._launch_each(compose)
        if self.stop_requested:
            return
        self._require_one()
        self._phase = Phase.RUNNING
        self._write_down()

    def _launch_each(self, compose: Compose) -> None:
        for process in self._processes.values():
            needed = compose.services[process.launch.service].depends_on
            for other, condition in needed.items():
                self._await_condition(other, condition)
            if self.stop_requested:
                return
            process.start()
        for process in self._processes.values():
            self._await(process)

    def _require_one(self) -> None:
        """Refuse to stay up for nothing: at least one service must not have ended."""
        services = [item for item in self._processes.values() if not item.launch.one_shot]
        if any(item.state is not ProcessState.EXITED for item in services) or not services:
            return
        ends: dict[str, list[str]] = {}
        for item in services:
            ends.setdefault(item.how_it_ended(), []).append(item.name)
        said = dict.fromkeys(tuple(item.tail()) for item in services)
        raise StartFailed(
            "no service could start: "
            + "; ".join(f"{_in_words(names)} {how}" for how, names in ends.items()),
            hint=f"their logs are in {self.data_dir.logs}",
            details=[line for tail in said for line in tail],
        )

    def _await_condition(self, service: str, condition: Condition) -> None:
        if condition is Condition.STARTED:
            return
        for process in self._processes.values():
            if process.launch.service != service:
                continue
            state = self._await(process)
            wanted = ProcessState.DONE if condition is Condition.COMPLETED else ProcessState.READY
            if state is not wanted and not self.stop_requested:
                raise StartFailed(
                    f"{process.name} {process.how_it_ended()}",
                    hint=f"its whole log is {process.launch.log}",
                    details=process.tail(),
                )

    def _await(self, process: ManagedProcess) -> ProcessState:
        return process.wait_settled(self.options.ready_timeout, lambda: self._stop_wish.uttered)

    def _stop_level(self, services: list[str]) -> None:
        here = [item for item in self._processes.values() if item.launch.service in services]
        for process in here:
            process.begin_stop()
        for process in here:
            if not process.finish_stop(self._impatient):
                self._listener.note(f"{process.name} did not end in time and was killed")

    def _write_last(self) -> None:
        self._phase = Phase.STOPPED
        self._try_to_write_down()
        self.data_dir.endpoints.unlink(missing_ok=True)

    def _on_change(self, status: ProcessStatus) -> None:
        self._try_to_write_down()
        self._listener.changed(status)
        process = self._processes[status.name]
        if status.state is ProcessState.EXITED and process.failed:
            self._listener.failed(status, process.tail())

    def _try_to_write_down(self) -> None:
        """Write it down, or say why not: a full disk must not end the watch over a process."""
        try:
            self._write_down()
        except OSError as error:
            self._listener.note(f"cannot write {self.data_dir.record}: {error.strerror}")

    def _write_down(self) -> None:
        # Always the newest state of all, so it does not matter in which order threads come here.
        with self._recording:
            statuses = self.statuses()
            write_record(
                self.data_dir,
                Record(
                    supervisor=self._me,
                    phase=self._phase,
                    compose_file=str(self.options.compose_file),
                    started_at=self._started_at,
                    database=self._database.address if self._database else None,
                    hooks_url=self._hooks_url,
                    processes=tuple(statuses),
                ),
            )
            if self._phase is not Phase.STOPPED:
                write_endpoints(self.data_dir, self.database_url, statuses)


def _in_words(names: list[str]) -> str:
    """Join names as a sentence does."""
    return " and ".join([*([", ".join(names[:-1])] if names[1:] else []), names[-1]])
