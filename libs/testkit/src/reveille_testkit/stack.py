"""A whole stack for end-to-end tests: the real docker-compose.yml, on free ports.

    with running_stack(tmp_path / "stack", environment={"*": {...}}) as stack:
        channel = grpc.insecure_channel(stack.address("autopilot"))
        stack.kill("heartbeat"); stack.start("heartbeat", {"REVEILLE_CRASH_POINT": "..."})

Everything blocks; from a coroutine, call it through `asyncio.to_thread`.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import asyncpg

from reveille_cli.stack.compose import find_compose_file
from reveille_cli.stack.datadir import DataDir
from reveille_cli.stack.keys import key_file, local_operator_token
from reveille_cli.stack.process import ProcessState, ProcessStatus
from reveille_cli.stack.record import Record, read_record
from reveille_cli.stack.supervisor import Listener, StackOptions, Supervisor

CRASH_CODE = 137
"""How a process ends at the crash point that its environment names."""


class StackNotReady(AssertionError):
    """A service did not come up; the message holds the end of its log."""


class TestStack:
    """A running stack, with what tests do to it."""

    __test__ = False

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        self.data_dir: DataDir = supervisor.data_dir

    def address(self, service: str, kind: str = "grpc", replica: int = 1) -> str:
        """Return host:port of `grpc`, or of the gateway's `http`."""
        return self.supervisor.address(service, kind, replica)

    @property
    def hooks_url(self) -> str:
        """Where senders post."""
        return f"http://{self.address('webhook-gateway', 'http')}"

    def operator_token(self) -> str:
        """Mint a token for the user `local`, who is an operator."""
        return local_operator_token(self.data_dir.root)

    def key_file(self, issuer: str) -> Path:
        """Name the private key of an issuer: `operator`, or a service."""
        return key_file(self.data_dir, issuer)

    def log(self, process: str) -> str:
        """Return what a process has written, over all its lives in this stack."""
        return self.data_dir.log(process).read_text(encoding="utf-8", errors="replace")

    def status(self, process: str) -> ProcessStatus:
        """Return a process as it is now."""
        return self.supervisor.process(process).status()

    def start(
        self, process: str, environment: Mapping[str, str] | None = None, *, wait: bool = True
    ) -> None:
        """Start a process that has ended; the settings hold for this life only.

        With `wait=False` it need not become ready: it may die on the way, as the test wants it to.
        """
        self.supervisor.start_process(process, environment, wait=wait)
        if wait:
            self._require_ready(process)

    def restart(self, process: str, environment: Mapping[str, str] | None = None) -> None:
        """Drain a process and start it again; the settings hold for the new life only."""
        self.supervisor.restart(process, environment)
        self._require_ready(process)

    def kill(self, process: str, number: signal.Signals = signal.SIGKILL) -> int:
        """End a process at once, and return its exit code."""
        return self.supervisor.kill(process, number)

    def pause(self, process: str) -> None:
        """Freeze a process, as a long stall would."""
        self.supervisor.process(process).signal(signal.SIGSTOP, expect_end=False)

    def resume(self, process: str) -> None:
        """Let a frozen process go on."""
        self.supervisor.process(process).signal(signal.SIGCONT, expect_end=False)

    def wait_exit(self, process: str, timeout: float = 30.0) -> int:
        """Wait until a process has ended by itself, and return its exit code."""
        return self.supervisor.process(process).wait_exit(timeout)

    def wait_crash(self, process: str, timeout: float = 30.0) -> None:
        """Wait until a process has met the crash point it was started with."""
        code = self.wait_exit(process, timeout)
        if code != CRASH_CODE:
            raise AssertionError(f"{process} ended with {code}:\n{self._tail(process)}")

    async def connect_database(self) -> asyncpg.Connection[asyncpg.Record]:
        """Connect as the server's administrator, to look at any schema."""
        record = self._record()
        if record.database is None:
            raise AssertionError("this stack has no database")
        return await asyncpg.connect(
            record.database.url(record.database.user),
            password=record.database.password_file.read_text(encoding="utf-8").strip(),
        )

    def _record(self) -> Record:
        record = read_record(self.data_dir)
        if record is None:
            raise AssertionError("the supervisor wrote nothing down")
        return record

    def _require_ready(self, process: str) -> None:
        status = self.status(process)
        if status.state is not ProcessState.READY:
            raise StackNotReady(f"{process} is {status.state}:\n{self._tail(process)}")

    def _tail(self, process: str) -> str:
        return "\n".join(self.supervisor.process(process).tail(60))


@contextmanager
def running_stack(
    data_dir: Path,
    *,
    environment: Mapping[str, Mapping[str, str]] | None = None,
    scale: Mapping[str, int] | None = None,
    otlp_endpoint: str | None = None,
    compose_file: Path | None = None,
    listener: Listener | None = None,
    expect_ready: Callable[[str], bool] = lambda _: True,
    durable: bool = False,
) -> Iterator[TestStack]:
    """Run the stack in `data_dir` while the block lasts; `durable` as production is, or quick.

    `environment` is by service or replica name, `*` for all. `otlp_endpoint` is where the processes
    send their telemetry. Processes for which `expect_ready` is false may end while starting.
    """
    settings = {name: dict(values) for name, values in (environment or {}).items()}
    if otlp_endpoint is not None:
        settings["*"] = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": otlp_endpoint,
            "OTEL_EXPORTER_OTLP_INSECURE": "true",
            # A test waits for spans, and a killed process takes with it what it has not sent.
            "OTEL_BSP_SCHEDULE_DELAY": "50",
            "OTEL_METRIC_EXPORT_INTERVAL": "1000",
            **settings.get("*", {}),
        }
    supervisor = Supervisor(
        StackOptions(
            compose_file=compose_file or find_compose_file(Path(__file__).parent),
            data_dir=data_dir,
            free_ports=True,
            scale=scale or {},
            environment=settings,
            durable=durable,
        ),
        listener,
    )
    with supervisor:
        stack = TestStack(supervisor)
        for status in supervisor.not_ready():
            if expect_ready(status.name):
                stack._require_ready(status.name)  # noqa: SLF001 (the same module)
        yield stack
