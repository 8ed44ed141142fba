"""What this service asks of the others: their stubs, and errors in our own words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import grpc

from reveille.events.v1.event_service_pb2_grpc import EventServiceStub
from reveille.heartbeat.v1.agent_pb2_grpc import AgentServiceStub
from reveille.heartbeat.v1.issue_pb2_grpc import IssueServiceStub
from reveille.heartbeat.v1.run_pb2_grpc import RunServiceStub
from reveille.heartbeat.v1.wakeup_pb2_grpc import WakeupServiceStub
from reveille.heartbeat.v1.workspace_replica_service_pb2_grpc import WorkspaceReplicaServiceStub
from reveille.scheduler.v1.scheduler_service_pb2_grpc import SchedulerServiceStub
from reveille.webhook.v1.endpoint_service_pb2_grpc import EndpointServiceStub
from reveille_runtime.errors import (
    Aborted,
    AlreadyExists,
    DomainError,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    OutOfRange,
    Unavailable,
)

if TYPE_CHECKING:
    from reveille.events.v1.event_service_pb2_grpc import EventServiceAsyncStub
    from reveille.heartbeat.v1.agent_pb2_grpc import AgentServiceAsyncStub
    from reveille.heartbeat.v1.issue_pb2_grpc import IssueServiceAsyncStub
    from reveille.heartbeat.v1.run_pb2_grpc import RunServiceAsyncStub
    from reveille.heartbeat.v1.wakeup_pb2_grpc import WakeupServiceAsyncStub
    from reveille.heartbeat.v1.workspace_replica_service_pb2_grpc import (
        WorkspaceReplicaServiceAsyncStub,
    )
    from reveille.scheduler.v1.scheduler_service_pb2_grpc import SchedulerServiceAsyncStub
    from reveille.webhook.v1.endpoint_service_pb2_grpc import EndpointServiceAsyncStub

# The call did nothing and repeating it cannot help.
_REFUSALS = (
    InvalidArgument,
    NotFound,
    AlreadyExists,
    FailedPrecondition,
    Aborted,
    OutOfRange,
)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The parts of heartbeat that this service uses."""

    agents: AgentServiceAsyncStub
    issues: IssueServiceAsyncStub
    wakeups: WakeupServiceAsyncStub
    agent_runs: RunServiceAsyncStub
    workspaces: WorkspaceReplicaServiceAsyncStub
    events: EventServiceAsyncStub

    @classmethod
    def on(cls, channel: grpc.aio.Channel) -> Self:
        """Make the stubs on a channel."""
        return cls(
            AgentServiceStub(channel),
            IssueServiceStub(channel),
            WakeupServiceStub(channel),
            RunServiceStub(channel),
            WorkspaceReplicaServiceStub(channel),
            EventServiceStub(channel),
        )


def scheduler_on(channel: grpc.aio.Channel) -> SchedulerServiceAsyncStub:
    """Make the scheduler's stub."""
    return SchedulerServiceStub(channel)


def endpoints_on(channel: grpc.aio.Channel) -> EndpointServiceAsyncStub:
    """Make the stub of the gateway's endpoints."""
    return EndpointServiceStub(channel)


def is_refusal(error: DomainError) -> bool:
    """Tell a refused business rule, which is final, from everything that may pass."""
    return isinstance(error, _REFUSALS)


def dependency_away(name: str, error: DomainError) -> Unavailable:
    """Make the answer to a caller who needs a service that cannot be reached just now."""
    return Unavailable(
        "DEPENDENCY_UNAVAILABLE",
        f"{name} cannot be asked just now: {error.message}",
        {"service": name},
        retry_after=1.0,
    )
