"""The part of AgentService that is about runtimes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from reveille.heartbeat.v1 import runtime_pb2 as pb
from reveille.heartbeat.v1.agent_pb2_grpc import AgentServiceServicer
from reveille_heartbeat.rpc import parse
from reveille_heartbeat.rpc.pages import page_of
from reveille_heartbeat.rpc.show_agents import runtime as shown
from reveille_heartbeat.usecases.agents.runtimes import Runtimes
from reveille_runtime.access import current_actor
from reveille_runtime.ids import new_id
from reveille_runtime.paging import read_page
from reveille_runtime.validation import Violations

_PRESENCE = timedelta(minutes=1)
_SHORTEST, _LONGEST = timedelta(seconds=1), timedelta(hours=1)
_MAX_METADATA = 16_384


class RuntimeCalls(AgentServiceServicer):
    """Serves runtimes."""

    def __init__(self, runtimes: Runtimes) -> None:
        self._runtimes = runtimes

    async def RegisterRuntime(
        self, request: pb.RegisterRuntimeRequest, context: Any
    ) -> pb.RegisterRuntimeResponse:
        """Make a runtime known."""
        found = Violations()
        workspace_id = found.uuid("workspace_id", request.workspace_id)
        name = found.text("name", request.name, minimum=1, maximum=100)
        metadata = parse.settings(found, "metadata", request.metadata, _MAX_METADATA)
        found.check()
        current_actor().require_member(workspace_id)
        made = await self._runtimes.register(new_id(), workspace_id, name, metadata)
        return pb.RegisterRuntimeResponse(runtime=shown(made))

    async def ReportRuntime(
        self, request: pb.ReportRuntimeRequest, context: Any
    ) -> pb.ReportRuntimeResponse:
        """Note a sign of life."""
        found = Violations()
        runtime_id = found.uuid("runtime_id", request.runtime_id)
        presence = _PRESENCE
        if request.HasField("presence"):
            presence = found.duration("presence", request.presence, maximum=_LONGEST)
            if timedelta(0) < presence < _SHORTEST:
                found.add("presence", "must be 0 or at least 1 second", "OUT_OF_BOUNDS")
        why = found.text("unusable_reason", request.unusable_reason, maximum=500)
        metadata = None
        if request.HasField("metadata"):
            metadata = parse.settings(found, "metadata", request.metadata, _MAX_METADATA)
        found.check()
        after = await self._runtimes.report(current_actor(), runtime_id, presence, why, metadata)
        return pb.ReportRuntimeResponse(runtime=shown(after))

    async def ListRuntimes(
        self, request: pb.ListRuntimesRequest, context: Any
    ) -> pb.ListRuntimesResponse:
        """List a workspace's runtimes by name."""
        workspace_id = parse.one_id("workspace_id", request.workspace_id)
        query = ("ListRuntimes", workspace_id)
        page = read_page(request.page_size, request.page_token, query)
        listed = await self._runtimes.page(current_actor(), workspace_id, page)
        runtimes, token = page_of(listed, shown, lambda each: each.name, query)
        return pb.ListRuntimesResponse(runtimes=runtimes, next_page_token=token)

    async def DeleteRuntime(
        self, request: pb.DeleteRuntimeRequest, context: Any
    ) -> pb.DeleteRuntimeResponse:
        """Remove a runtime."""
        runtime_id = parse.one_id("runtime_id", request.runtime_id)
        unbound = await self._runtimes.delete(current_actor(), runtime_id)
        return pb.DeleteRuntimeResponse(unbound_agent_ids=[str(each) for each in unbound])
