"""The same over real sockets: a server with our interceptors, a port nobody listens on, a stall."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from typer.testing import CliRunner, Result

from reveille.autopilot.v1 import autopilot_service_pb2 as pb
from reveille.autopilot.v1 import run_pb2
from reveille_cli import connection
from reveille_cli.main import app
from reveille_cli.stack.datadir import DataDir, write_json
from reveille_cli.stack.keys import TRUSTED_KEYS, make_secrets
from reveille_runtime.errors import InvalidArgument, NotFound
from reveille_runtime.interceptors.errors import to_grpc_status
from reveille_runtime.tokens import TokenVerifier, load_trusted_keys


class Autopilot:
    """Answers GetRun by the id that is asked for."""

    def __init__(self) -> None:
        self.subjects: list[str] = []
        self.verifier: TokenVerifier | None = None
        self.stalled = threading.Event()

    def get_run(self, request: pb.GetRunRequest, context: Any) -> pb.GetRunResponse:
        bearer = dict(context.invocation_metadata())["authorization"].removeprefix("Bearer ")
        assert self.verifier is not None
        actor = self.verifier.verify(bearer)
        self.subjects.append(f"{actor.subject} operator={actor.operator}")
        match request.run_id:
            case "gone":
                context.abort_with_status(to_grpc_status(NotFound("NOT_FOUND", "no such run")))
            case "bad":
                error = InvalidArgument.of("run_id", "is no id", "INVALID_FIELD")
                context.abort_with_status(to_grpc_status(error))
            case "stalls":
                self.stalled.wait(20)
            case "breaks":
                raise ValueError("a bug")
        return pb.GetRunResponse(run=run_pb2.AutopilotRun(run_id=request.run_id))


@pytest.fixture
def place(tmp_path: Path) -> DataDir:
    made = DataDir.at(tmp_path / "data")
    made.prepare()
    make_secrets(made)
    return made


@pytest.fixture
def autopilot(place: DataDir) -> Iterator[Autopilot]:
    servicer = Autopilot()
    servicer.verifier = TokenVerifier(load_trusted_keys(place.keys / TRUSTED_KEYS))
    server = grpc.server(ThreadPoolExecutor(2))
    handler = grpc.unary_unary_rpc_method_handler(
        servicer.get_run,
        request_deserializer=pb.GetRunRequest.FromString,
        response_serializer=pb.GetRunResponse.SerializeToString,
    )
    name = "reveille.autopilot.v1.AutopilotService"
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler(name, {"GetRun": handler})]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    write_json(place.endpoints, {"services": {"autopilot": [{"grpc": f"127.0.0.1:{port}"}]}})
    yield servicer
    servicer.stalled.set()
    server.stop(None).wait(10)


def reveille(place: DataDir, *words: str) -> Result:
    return CliRunner().invoke(app, [*words, "--data-dir", str(place.root), "-o", "json"])


def test_a_data_directory_is_all_it_takes(place: DataDir, autopilot: Autopilot) -> None:
    result = reveille(place, "runs", "get", "r1")

    assert result.exit_code == 0
    assert json.loads(result.stdout)["run_id"] == "r1"
    assert autopilot.subjects == ["local operator=True"]


@pytest.mark.parametrize(
    ("run_id", "exit_code", "reason"),
    [("gone", 3, "not_found"), ("bad", 2, "invalid_field"), ("breaks", 1, "unknown")],
)
def test_errors_of_the_service(
    place: DataDir, autopilot: Autopilot, run_id: str, exit_code: int, reason: str
) -> None:
    result = reveille(place, "runs", "get", run_id)

    assert result.exit_code == exit_code
    assert json.loads(result.stdout)["error"]["reason"] == reason


def test_a_call_that_stalls_ends_with_its_deadline(
    place: DataDir, autopilot: Autopilot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection.Client.call, "__kwdefaults__", {"timeout": 0.2})

    result = reveille(place, "runs", "get", "stalls")

    assert result.exit_code == 6
    assert json.loads(result.stdout)["error"]["reason"] == "deadline_exceeded"


def test_nobody_listens(place: DataDir) -> None:
    write_json(place.endpoints, {"services": {"autopilot": [{"grpc": "127.0.0.1:1"}]}})

    result = reveille(place, "runs", "get", "r1")

    assert result.exit_code == 6
    error = json.loads(result.stdout)["error"]
    assert error["reason"] == "service_unreachable"
    assert error["message"] == "autopilot does not answer at 127.0.0.1:1"


def test_the_environment_comes_first(
    place: DataDir, autopilot: Autopilot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REVEILLE_AUTOPILOT_TARGET", "127.0.0.1:1")

    assert reveille(place, "runs", "get", "r1").exit_code == 6
