"""The services' APIs by name, imported only when one is used."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass


class Service(StrEnum):
    """A service, as docker-compose.yml calls it."""

    SCHEDULER = "scheduler"
    AUTOPILOT = "autopilot"
    WEBHOOK = "webhook-gateway"
    HEARTBEAT = "heartbeat"


@dataclass(frozen=True, slots=True)
class Api:
    """One gRPC service and where it is served."""

    service: Service
    package: str
    name: str

    def stub(self, channel: Any) -> Any:
        """Make the generated, blocking stub."""
        return getattr(importlib.import_module(f"{self._module}_pb2_grpc"), f"{self.name}Stub")(
            channel
        )

    def method(self, rpc: str) -> MethodDescriptor:
        """Describe one RPC."""
        file = importlib.import_module(f"{self._module}_pb2").DESCRIPTOR
        method: MethodDescriptor = file.services_by_name[self.name].methods_by_name[rpc]
        return method

    def request(self, rpc: str, **fields: Any) -> Any:
        """Make the request of an RPC."""
        made: type[Message] = GetMessageClass(self.method(rpc).input_type)
        return made(**fields)

    @property
    def _module(self) -> str:
        words = "".join(f"_{char.lower()}" if char.isupper() else char for char in self.name)
        return f"{self.package}.{_MODULES.get(self.name, words.removeprefix('_'))}"


# Where an API does not have a file of its own.
_MODULES = {
    "AgentService": "agent",
    "IssueService": "issue",
    "RunService": "run",
    "WakeupService": "wakeup",
}

WORKSPACES = Api(Service.AUTOPILOT, "reveille.autopilot.v1", "WorkspaceService")
AUTOPILOTS = Api(Service.AUTOPILOT, "reveille.autopilot.v1", "AutopilotService")
ENDPOINTS = Api(Service.WEBHOOK, "reveille.webhook.v1", "EndpointService")
DELIVERIES = Api(Service.WEBHOOK, "reveille.webhook.v1", "DeliveryService")
AGENTS = Api(Service.HEARTBEAT, "reveille.heartbeat.v1", "AgentService")
ISSUES = Api(Service.HEARTBEAT, "reveille.heartbeat.v1", "IssueService")
WAKEUPS = Api(Service.HEARTBEAT, "reveille.heartbeat.v1", "WakeupService")
AGENT_RUNS = Api(Service.HEARTBEAT, "reveille.heartbeat.v1", "RunService")
SCHEDULER = Api(Service.SCHEDULER, "reveille.scheduler.v1", "SchedulerService")


def explain_api(service: Service) -> Api:
    """Return the ExplainService of a service."""
    return Api(service, "reveille.explain.v1", "ExplainService")
