"""Who may call which method: as the contract declares it, method by method."""

from __future__ import annotations

from reveille.autopilot.v1 import (
    autopilot_service_pb2,
    dispatch_service_pb2,
    workspace_service_pb2,
)
from reveille.common.v1 import access_pb2

# Reads are for services, members and operators; writes for people who answer for them.
READS = {
    "GetAutopilot",
    "ListAutopilots",
    "ListRuleVersions",
    "GetRuleVersion",
    "ListCollaborators",
    "GetTrigger",
    "ListTriggers",
    "GetRun",
    "ListRuns",
    "WaitRun",
    "WatchRuns",
    "GetUsage",
    "GetWorkspace",
    "ListWorkspaces",
    "ListMembers",
}
# Programs run rules, and call them off, in nobody's name.
ALSO_FOR_SERVICES = {"RunAutopilot", "CancelRun"}
MANAGERS = {"AddMember", "UpdateMember", "UpdateWorkspace"}
OPERATORS = {"CreateWorkspace"}
GATEWAY = {"AdmitDeliveries", "DispatchDeliveries", "WithdrawDeliveries"}


def test_every_method_declares_its_callers() -> None:
    files = (autopilot_service_pb2, workspace_service_pb2, dispatch_service_pb2)
    methods = [
        method
        for file in files
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    ]
    for method in methods:
        access = method.GetOptions().Extensions[access_pb2.access]
        services, name = list(access.services), method.name
        assert not access.run, name
        assert not access.runtime, name
        if name in GATEWAY:
            assert (services, access.user, access.operator) == (["webhook-gateway"], 0, False), name
            continue
        assert access.operator, name
        assert services == (["*"] if name in READS | ALSO_FOR_SERVICES else []), name
        role = access_pb2.ROLE_MEMBER
        if name in OPERATORS:
            role = access_pb2.ROLE_UNSPECIFIED
        elif name in MANAGERS:
            role = access_pb2.ROLE_ADMIN
        assert access.user == role, name
    assert {method.name for method in methods} >= READS | MANAGERS | OPERATORS | GATEWAY
