"""What reaches a handler and what comes back: credentials, deadlines, validation, errors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from structlog.testing import capture_logs

from reveille.heartbeat.v1 import agent_pb2, agent_pb2_grpc
from reveille.heartbeat.v1 import workspace_replica_service_pb2 as replica
from reveille.heartbeat.v1 import workspace_replica_service_pb2_grpc as replica_grpc
from reveille_runtime.access import Actor, CallerKind, Role, current_actor
from reveille_runtime.errors import (
    Aborted,
    AlreadyExists,
    DomainError,
    FailedPrecondition,
    FieldViolation,
    InvalidArgument,
    NotFound,
    OutOfRange,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
)
from reveille_runtime.interceptors.access import AccessTable, UndeclaredMethodsError
from reveille_runtime.interceptors.deadline import DEFAULT_TIMEOUT, MARGIN, remaining
from reveille_runtime.interceptors.errors import STATUS
from reveille_runtime.rpc_errors import as_domain_errors, from_rpc_error
from reveille_runtime.validation import Violations
from reveille_testkit.rpc import Keyring, RpcRig, serving

WORKSPACE = UUID(int=5)


class Agents(agent_pb2_grpc.AgentServiceServicer):
    """Notes what the handler sees."""

    def __init__(self) -> None:
        self.actor: Actor | None = None
        self.remaining: float | None = None
        self.raises: Callable[[], Exception] | None = None
        self.relay: Callable[[], Any] | None = None

    async def CreateAgent(self, request: Any, context: Any) -> agent_pb2.CreateAgentResponse:
        return agent_pb2.CreateAgentResponse()

    async def ListAgents(self, request: Any, context: Any) -> agent_pb2.ListAgentsResponse:
        return agent_pb2.ListAgentsResponse()

    async def CheckInvocable(self, request: Any, context: Any) -> agent_pb2.CheckInvocableResponse:
        return agent_pb2.CheckInvocableResponse()

    async def GetAgent(
        self, request: agent_pb2.GetAgentRequest, context: Any
    ) -> agent_pb2.GetAgentResponse:
        self.actor = current_actor()
        self.remaining = remaining()
        if self.raises is not None:
            raise self.raises()
        if self.relay is not None:
            await self.relay()
        return agent_pb2.GetAgentResponse()


class Replica(replica_grpc.WorkspaceReplicaServiceServicer):
    """A second hop, to see what is passed on."""

    def __init__(self) -> None:
        self.remaining: float | None = None

    async def PutWorkspace(
        self, request: replica.PutWorkspaceRequest, context: Any
    ) -> replica.PutWorkspaceResponse:
        self.remaining = remaining()
        return replica.PutWorkspaceResponse()


def check_get_agent(request: agent_pb2.GetAgentRequest, violations: Violations) -> None:
    if request.agent_id == "bad":
        violations.uuid("agent_id", request.agent_id)
        violations.add("other", "is wrong too")


class Rig(RpcRig):
    def __init__(self, keys: Keyring) -> None:
        super().__init__(keys, validators={agent_pb2.GetAgentRequest: check_get_agent})
        self.agents = Agents()  # type: ignore[abstract]  # only what is asked of it
        self.replica = Replica()
        self.server.add(agent_pb2_grpc.add_AgentServiceServicer_to_server, self.agents)
        self.server.add(replica_grpc.add_WorkspaceReplicaServiceServicer_to_server, self.replica)

    async def get(self, token: str | None, agent_id: str = "", **options: Any) -> None:
        stub = agent_pb2_grpc.AgentServiceStub(self.channel(token))
        with as_domain_errors():
            await stub.GetAgent(agent_pb2.GetAgentRequest(agent_id=agent_id), **options)

    async def put(self, token: str) -> None:
        stub = replica_grpc.WorkspaceReplicaServiceStub(self.channel(token))
        with as_domain_errors():
            await stub.PutWorkspace(replica.PutWorkspaceRequest())

    def member(self) -> str:
        return self.keys.user("u-1", {WORKSPACE: Role.MEMBER})


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with serving(Rig(Keyring(tmp_path / "keys"))) as rig:
        assert isinstance(rig, Rig)
        yield rig


async def test_the_handler_sees_its_caller(rig: Rig) -> None:
    await rig.get(rig.member())

    assert rig.agents.actor is not None
    assert (rig.agents.actor.kind, rig.agents.actor.subject) == (CallerKind.USER, "u-1")
    assert rig.agents.actor.roles == {WORKSPACE: Role.MEMBER}


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (None, "TOKEN_MISSING"),
        ("Basic dTpw", "TOKEN_INVALID"),
        ("Bearer", "TOKEN_INVALID"),
        ("Bearer ", "TOKEN_INVALID"),
        ("Bearer nonsense", "TOKEN_INVALID"),
    ],
)
async def test_missing_and_malformed_credentials(rig: Rig, header: str | None, reason: str) -> None:
    metadata = () if header is None else (("authorization", header),)

    with pytest.raises(Unauthenticated) as refused:
        await rig.get(None, metadata=metadata)

    assert refused.value.reason == reason
    assert rig.agents.actor is None


async def test_an_expired_token_is_refused_as_such(rig: Rig) -> None:
    old = rig.keys.minter("operator").mint(CallerKind.USER, "u-1", lifetime=-60)

    with pytest.raises(Unauthenticated) as refused:
        await rig.get(old)

    assert refused.value.reason == "TOKEN_EXPIRED"


async def test_the_kind_of_caller_must_be_declared(rig: Rig) -> None:
    await rig.put(rig.keys.service("autopilot"))

    for token in (
        rig.member(),
        rig.keys.user("o", operator=True),
        rig.keys.service("scheduler"),
        rig.keys.run(UUID(int=1), WORKSPACE),
        rig.keys.minter("operator").mint(CallerKind.RUNTIME, "m-1"),
    ):
        with pytest.raises(PermissionDenied) as refused:
            await rig.put(token)
        assert refused.value.reason == "CALLER_NOT_ALLOWED"


def test_a_service_with_undeclared_methods_is_refused_by_name() -> None:
    file = descriptor_pb2.FileDescriptorProto(
        name="undeclared_test.proto", package="undeclared.test", syntax="proto3"
    )
    file.message_type.add(name="Empty")
    service = file.service.add(name="OpenService")
    for name in ("Second", "First"):
        service.method.add(
            name=name, input_type=".undeclared.test.Empty", output_type=".undeclared.test.Empty"
        )
    descriptor_pool.Default().Add(file)

    with pytest.raises(UndeclaredMethodsError) as refused:
        AccessTable().add("undeclared.test.OpenService")

    assert refused.value.methods == (
        "undeclared.test.OpenService/First",
        "undeclared.test.OpenService/Second",
    )


async def test_a_bad_request_names_every_field_before_the_handler_runs(rig: Rig) -> None:
    with pytest.raises(InvalidArgument) as refused:
        await rig.get(rig.member(), agent_id="bad")

    assert [each.field for each in refused.value.violations] == ["agent_id", "other"]
    assert refused.value.reason == "INVALID_ID"
    assert rig.agents.actor is None


async def test_a_call_without_a_deadline_gets_the_default(rig: Rig) -> None:
    await rig.get(rig.member())

    assert rig.agents.remaining is not None
    # On the wire gRPC rounds a timeout up, by as much as three in a hundred.
    assert 5 < rig.agents.remaining <= DEFAULT_TIMEOUT * 1.03


async def test_what_is_left_of_the_callers_deadline_is_passed_on(rig: Rig) -> None:
    token = rig.keys.service("autopilot")
    rig.agents.relay = lambda: rig.put(token)

    # Short, so that what the wire adds stays below the margin.
    await rig.get(rig.member(), timeout=1.0)

    assert rig.replica.remaining is not None
    assert 0 < rig.replica.remaining < 1.0 - MARGIN / 2


ERRORS: list[DomainError] = [
    InvalidArgument((FieldViolation("a.b", "is bad", "BAD_FIELD"),)),
    OutOfRange("CURSOR_EXPIRED", "gone", {"head": "9"}),
    NotFound("RUN_NOT_FOUND", "no run", {"run_id": "1"}),
    AlreadyExists("NAME_TAKEN", "taken"),
    FailedPrecondition("RUN_TERMINAL", "over", {"state": "failed"}),
    Aborted("ETAG_STALE", "read again"),
    ResourceExhausted("OVERLOADED", "full", retry_after=2.5),
    Unavailable("AWAY", "away", {"peer": "x"}, retry_after=0.5),
    PermissionDenied("ROLE_TOO_WEAK", "no"),
    Unauthenticated("TOKEN_INVALID", "who?"),
]


def test_the_status_table_knows_every_class() -> None:
    def below(base: type[DomainError]) -> set[type[DomainError]]:
        return {base}.union(*(below(each) for each in base.__subclasses__()))

    named = {each for each in below(DomainError) if not each.__name__.startswith("_")}
    ours = {each for each in named if each.__module__ == "reveille_runtime.errors"}

    assert set(STATUS) == ours
    assert {type(error) for error in ERRORS} == ours - {DomainError}
    assert len(set(STATUS.values())) == len(STATUS)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_an_error_arrives_as_it_was_raised(rig: Rig, error: DomainError) -> None:
    rig.agents.raises = lambda: error

    with pytest.raises(type(error)) as received:
        await rig.get(rig.member())

    got = received.value
    assert (got.reason, got.message, dict(got.metadata)) == (
        error.reason,
        error.message,
        dict(error.metadata),
    )
    for name in ("violations", "retry_after"):
        assert getattr(got, name, None) == getattr(error, name, None)


async def test_an_error_too_large_for_the_trailers_still_arrives(rig: Rig) -> None:
    many = InvalidArgument([FieldViolation(f"items[{n}]", "é" * 900, "BAD") for n in range(200)])
    rig.agents.raises = lambda: many

    with pytest.raises(InvalidArgument) as received:
        await rig.get(rig.member())

    assert 1 <= len(received.value.violations) < 200
    assert received.value.reason == "BAD"


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.PostgresConnectionError("gone"),
        asyncpg.TooManyConnectionsError("full"),
        asyncpg.InterfaceError("closed"),
        ConnectionRefusedError("refused"),
        TimeoutError(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_database_that_is_away_is_unavailable_and_no_bug(
    rig: Rig, error: Exception
) -> None:
    rig.agents.raises = lambda: error

    with capture_logs() as logged, pytest.raises(Unavailable) as received:
        await rig.get(rig.member())

    assert received.value.reason == "DATABASE_UNAVAILABLE"
    assert received.value.retry_after == 1.0
    assert [entry["action"] for entry in logged] == ["rpc.unavailable"]


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (grpc.StatusCode.UNAVAILABLE, Unavailable),
        (grpc.StatusCode.DEADLINE_EXCEEDED, Unavailable),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, ResourceExhausted),
    ],
)
async def test_a_service_behind_that_is_away_or_full_is_no_bug(
    rig: Rig, code: grpc.StatusCode, told: type[DomainError]
) -> None:
    behind = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), "not now")
    rig.agents.raises = lambda: behind

    with capture_logs() as logged, pytest.raises(told):
        await rig.get(rig.member())

    assert [entry["action"] for entry in logged] == ["rpc.unavailable"]


@pytest.mark.parametrize(
    "bug", [RuntimeError("the secret cause"), FileNotFoundError(2, "secret", "/some/file")]
)
async def test_a_bug_is_logged_once_with_the_id_the_caller_got(rig: Rig, bug: Exception) -> None:
    rig.agents.raises = lambda: bug

    with capture_logs() as logged, pytest.raises(DomainError) as received:
        await rig.get(rig.member())

    (entry,) = logged
    assert entry["action"] == "rpc.internal_error"
    assert type(received.value) is DomainError
    assert received.value.reason == "INTERNAL"
    assert entry["request_id"] in received.value.message
    assert "secret" not in received.value.message


async def test_a_missing_method_is_told_as_such(rig: Rig) -> None:
    absent: Any = rig.channel(rig.member()).unary_unary(
        "/reveille.heartbeat.v1.AgentService/Absent"
    )

    with pytest.raises(DomainError) as received, as_domain_errors():
        await absent(b"")

    assert type(received.value) is DomainError
    assert received.value.reason == "UNIMPLEMENTED"


def test_an_error_without_details_keeps_its_status() -> None:
    bare = grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, details="refused")
    broken = grpc.aio.AioRpcError(
        grpc.StatusCode.ABORTED,
        trailing_metadata=grpc.aio.Metadata(("grpc-status-details-bin", b"\xff\xff")),
    )

    assert isinstance(from_rpc_error(bare), Unavailable)
    assert from_rpc_error(bare).reason == "UNAVAILABLE"
    assert isinstance(from_rpc_error(broken), Aborted)
