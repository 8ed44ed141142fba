"""A desk at which the test plays all four services for one command: grpcio-testing's channel."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc_testing
import pytest
from google.protobuf.message import Message
from typer.testing import CliRunner, Result

from reveille.autopilot.v1 import autopilot_service_pb2, workspace_service_pb2
from reveille.explain.v1 import explain_service_pb2
from reveille.heartbeat.v1 import agent_pb2, issue_pb2, wakeup_pb2
from reveille.heartbeat.v1 import run_pb2 as heartbeat_run_pb2
from reveille.scheduler.v1 import scheduler_service_pb2
from reveille.webhook.v1 import delivery_service_pb2, endpoint_service_pb2
from reveille_cli import connection
from reveille_cli.apis import Api, Service
from reveille_cli.connection import TARGET_VARIABLES, TOKEN_VARIABLE
from reveille_cli.main import app
from reveille_runtime.errors import DomainError
from reveille_runtime.interceptors.errors import to_grpc_status

T = TypeVar("T")
TOKEN = "token-of-the-test"
_FILES: tuple[Any, ...] = (
    autopilot_service_pb2,
    workspace_service_pb2,
    explain_service_pb2,
    agent_pb2,
    issue_pb2,
    wakeup_pb2,
    heartbeat_run_pb2,
    scheduler_service_pb2,
    delivery_service_pb2,
    endpoint_service_pb2,
)


@dataclass(frozen=True)
class Answer:
    """One call that the command is expected to make, and what it gets."""

    api: Api
    rpc: str
    reply: Message | DomainError | grpc.StatusCode | Sequence[Message]


@dataclass
class Outcome:
    """How a command ended, and what it had asked."""

    exit_code: int
    out: str
    err: str
    raw: bytes = b""
    requests: list[Any] = field(default_factory=list)
    metadata: list[dict[str, str]] = field(default_factory=list)

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def request(self) -> Any:
        (only,) = self.requests
        return only


class Desk:
    """Runs commands in a thread of their own, and answers their calls in this one."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.clock = grpc_testing.strict_fake_time(0)
        services = [each for file in _FILES for each in file.DESCRIPTOR.services_by_name.values()]
        self.channels = {
            target: grpc_testing.channel(services, self.clock) for target in map(str, Service)
        }
        self.environment = {
            **{variable: str(service) for service, variable in TARGET_VARIABLES.items()},
            TOKEN_VARIABLE: TOKEN,
        }

    def run(self, *words: str, answers: Sequence[Answer] = (), stdin: bytes = b"") -> Outcome:
        """Run one command to its end."""
        running = self.start(*words, stdin=stdin)
        outcome = Outcome(0, "", "")
        for answer in answers:
            self._answer(running, answer, outcome)
        result = running.result(timeout=30)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        outcome.exit_code, outcome.raw = result.exit_code, result.stdout_bytes
        outcome.out, outcome.err = result.stdout, result.stderr
        return outcome

    def start(self, *words: str, stdin: bytes = b"") -> Future[Result]:
        """Run one command, and leave its calls to the test."""
        environment = {**self.environment, "REVEILLE_DATA_DIR": str(self.data_dir)}
        return _in_thread(
            lambda: CliRunner().invoke(app, list(words), input=stdin, env=environment)
        )

    def take(self, running: Future[Result], api: Api, rpc: str, *, stream: bool = False) -> Any:
        """Wait for a call of a running command; fail once it has ended without one."""
        channel, method = self.channels[api.service], api.method(rpc)
        take = channel.take_unary_stream if stream else channel.take_unary_unary
        taken: Future[Any] = _in_thread(lambda: take(method))
        wait([running, taken], timeout=30, return_when=FIRST_COMPLETED)
        if not taken.done():
            said = running.result(timeout=0)
            raise AssertionError(f"no call of {rpc}: {said.output}", said.exception)
        return taken.result()

    def _answer(self, running: Future[Result], answer: Answer, outcome: Outcome) -> None:
        stream = isinstance(answer.reply, Sequence)
        metadata, asked, call = self.take(running, answer.api, answer.rpc, stream=stream)
        # It comes as the command's own object, which goes on being used.
        request = type(asked).FromString(asked.SerializeToString())
        call.send_initial_metadata(())
        match answer.reply:
            case DomainError():
                status = to_grpc_status(answer.reply)
                call.terminate(None, status.trailing_metadata, status.code, status.details)
            case grpc.StatusCode():
                call.terminate(None, (), answer.reply, "the transport says so")
            case Message():
                call.terminate(answer.reply, (), grpc.StatusCode.OK, "")
            case _:
                for piece in answer.reply:
                    call.send_response(piece)
                call.terminate((), grpc.StatusCode.OK, "")
        outcome.requests.append(request)
        outcome.metadata.append(dict(metadata))


def _in_thread(work: Callable[[], T]) -> Future[T]:
    """Run something in a thread that no failure has to wait for."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 (handed to whoever waits)
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.delenv("REVEILLE_WORKSPACE", raising=False)
    made = Desk(tmp_path / "data")
    monkeypatch.setattr(connection, "open_channel", made.channels.__getitem__)
    return made
