"""WorkspaceReplicaService."""

from __future__ import annotations

import re
from typing import Any

from reveille.heartbeat.v1 import workspace_replica_service_pb2 as pb
from reveille.heartbeat.v1.workspace_replica_service_pb2_grpc import (
    WorkspaceReplicaServiceServicer,
)
from reveille_heartbeat.domain.values import Workspace, WorkspaceStatus
from reveille_heartbeat.rpc.show import known
from reveille_heartbeat.usecases.agents.put_workspace import PutWorkspace
from reveille_runtime.validation import Violations

_PREFIX = re.compile(r"[A-Z][A-Z0-9]{0,9}")
_MAX_REVISION = (1 << 63) - 1
WORKSPACE_STATUSES = known(WorkspaceStatus, pb.WorkspaceStatus.DESCRIPTOR, "WORKSPACE_STATUS")


class WorkspaceReplicaServicer(WorkspaceReplicaServiceServicer):
    """Receives workspaces."""

    def __init__(self, put: PutWorkspace) -> None:
        self._put = put

    async def PutWorkspace(
        self, request: pb.PutWorkspaceRequest, context: Any
    ) -> pb.PutWorkspaceResponse:
        """Store what the owner wants."""
        found = Violations()
        workspace = Workspace(
            workspace_id=found.uuid("workspace_id", request.workspace_id),
            issue_prefix=request.issue_prefix,
            default_responsible_user_id=found.text(
                "default_responsible_user_id", request.default_responsible_user_id, maximum=128
            ),
            status=found.enum(
                "status",
                request.status or pb.WORKSPACE_STATUS_ACTIVE,
                WORKSPACE_STATUSES,
            ),
        )
        if not _PREFIX.fullmatch(request.issue_prefix):
            found.add("issue_prefix", "must be 1 to 10 capital letters and digits, a letter first")
        revision = found.integer("revision", request.revision, minimum=1, maximum=_MAX_REVISION)
        found.check()
        await self._put(workspace, revision)
        return pb.PutWorkspaceResponse()
