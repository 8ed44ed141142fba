"""Who may call AgentService, as its contract declares and as its documentation says."""

from __future__ import annotations

import pytest

from reveille.common.v1 import access_pb2
from reveille.heartbeat.v1 import agent_pb2

SERVICE = agent_pb2.DESCRIPTOR.services_by_name["AgentService"]
# Of services, users by role and as operators, and runtimes: only reads are for every service.
READ = access_pb2.Access(services=["*"], user=access_pb2.ROLE_MEMBER, operator=True)
WRITE = access_pb2.Access(user=access_pb2.ROLE_MEMBER, operator=True)
EXPECTED = {
    **dict.fromkeys(
        ("GetAgent", "ListAgents", "GetSquad", "ListSquads", "ListRuntimes"),
        READ,
    ),
    **dict.fromkeys(
        [
            *(f"{verb}Agent" for verb in ("Create", "Update", "Pause", "Resume", "Archive")),
            *(f"{verb}Squad" for verb in ("Create", "Update", "Pause", "Resume", "Archive")),
            "RegisterRuntime",
        ],
        WRITE,
    ),
    "ReportRuntime": access_pb2.Access(user=access_pb2.ROLE_MEMBER, operator=True, runtime=True),
    "DeleteRuntime": access_pb2.Access(user=access_pb2.ROLE_ADMIN, operator=True),
    "CheckInvocable": access_pb2.Access(services=["*"]),
}


def test_every_method_is_expected() -> None:
    assert set(SERVICE.methods_by_name) == set(EXPECTED)


@pytest.mark.parametrize("method", sorted(EXPECTED))
def test_a_method_lets_in_whom_it_should(method: str) -> None:
    options = SERVICE.methods_by_name[method].GetOptions()
    assert options.Extensions[access_pb2.access] == EXPECTED[method]
