"""The part of AgentService that is about squads."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from google.protobuf.internal.containers import RepeatedScalarFieldContainer

from reveille.heartbeat.v1 import squad_pb2 as pb
from reveille.heartbeat.v1.agent_pb2_grpc import AgentServiceServicer
from reveille_heartbeat.domain.states import AgentState
from reveille_heartbeat.rpc import parse
from reveille_heartbeat.rpc.pages import page_of
from reveille_heartbeat.rpc.show_agents import squad as shown
from reveille_heartbeat.usecases.agents.squads import NewSquad, Squads
from reveille_runtime.access import current_actor
from reveille_runtime.ids import new_id
from reveille_runtime.masks import read_mask
from reveille_runtime.paging import read_page
from reveille_runtime.validation import Violations

_MAX_MEMBERS = 100
_EDITABLE = ("name", "leader_agent_id", "member_agent_ids")


class SquadCalls(AgentServiceServicer):
    """Serves squads."""

    def __init__(self, squads: Squads) -> None:
        self._squads = squads

    async def CreateSquad(
        self, request: pb.CreateSquadRequest, context: Any
    ) -> pb.CreateSquadResponse:
        """Create a squad."""
        actor = current_actor()
        found = Violations()
        new = NewSquad(
            squad_id=new_id(),
            workspace_id=found.uuid("workspace_id", request.workspace_id),
            name=found.text("name", request.name, minimum=1, maximum=100),
            leader_agent_id=found.uuid("leader_agent_id", request.leader_agent_id),
            member_agent_ids=_members(found, request.member_agent_ids),
            repeatable=parse.repeatable(actor, "CreateSquad", request, request.request_id),
        )
        found.check()
        actor.require_member(new.workspace_id)
        return pb.CreateSquadResponse(squad=shown(await self._squads.create(new)))

    async def GetSquad(self, request: pb.GetSquadRequest, context: Any) -> pb.GetSquadResponse:
        """Read a squad."""
        squad_id = parse.one_id("squad_id", request.squad_id)
        return pb.GetSquadResponse(squad=shown(await self._squads.get(current_actor(), squad_id)))

    async def ListSquads(
        self, request: pb.ListSquadsRequest, context: Any
    ) -> pb.ListSquadsResponse:
        """List a workspace's squads by name."""
        workspace_id = parse.one_id("workspace_id", request.workspace_id)
        query = ("ListSquads", workspace_id)
        page = read_page(request.page_size, request.page_token, query)
        listed = await self._squads.page(current_actor(), workspace_id, page)
        squads, token = page_of(listed, shown, lambda each: each.name, query)
        return pb.ListSquadsResponse(squads=squads, next_page_token=token)

    async def UpdateSquad(
        self, request: pb.UpdateSquadRequest, context: Any
    ) -> pb.UpdateSquadResponse:
        """Change what the mask names."""
        found = Violations()
        squad_id = found.uuid("squad.squad_id", request.squad.squad_id)
        paths = read_mask(found, request.update_mask, _EDITABLE)
        values: dict[str, Any] = {}
        if "name" in paths:
            values["name"] = found.text("squad.name", request.squad.name, minimum=1, maximum=100)
        if "leader_agent_id" in paths:
            values["leader_agent_id"] = found.uuid(
                "squad.leader_agent_id", request.squad.leader_agent_id
            )
        if "member_agent_ids" in paths:
            values["member_agent_ids"] = _members(
                found, request.squad.member_agent_ids, "squad.member_agent_ids"
            )
        found.check()
        after = await self._squads.update(current_actor(), squad_id, values, request.squad.etag)
        return pb.UpdateSquadResponse(squad=shown(after))

    async def PauseSquad(
        self, request: pb.PauseSquadRequest, context: Any
    ) -> pb.PauseSquadResponse:
        """Refuse wakes for a squad until it is resumed."""
        found = Violations()
        squad_id = found.uuid("squad_id", request.squad_id)
        why = found.text("reason", request.reason, maximum=500)
        found.check()
        after = await self._move_squad(squad_id, AgentState.PAUSED, why, request.etag)
        return pb.PauseSquadResponse(squad=after)

    async def ResumeSquad(
        self, request: pb.ResumeSquadRequest, context: Any
    ) -> pb.ResumeSquadResponse:
        """Let a squad be woken again."""
        squad_id = parse.one_id("squad_id", request.squad_id)
        after = await self._move_squad(squad_id, AgentState.ACTIVE, "", request.etag)
        return pb.ResumeSquadResponse(squad=after)

    async def ArchiveSquad(
        self, request: pb.ArchiveSquadRequest, context: Any
    ) -> pb.ArchiveSquadResponse:
        """Refuse wakes for a squad for ever."""
        squad_id = parse.one_id("squad_id", request.squad_id)
        after = await self._move_squad(squad_id, AgentState.ARCHIVED, "", request.etag)
        return pb.ArchiveSquadResponse(squad=after)

    async def _move_squad(
        self, squad_id: UUID, target: AgentState, why: str, etag: str
    ) -> pb.Squad:
        return shown(await self._squads.move(current_actor(), squad_id, target, why, etag))


def _members(
    found: Violations, ids: RepeatedScalarFieldContainer[str], field: str = "member_agent_ids"
) -> tuple[UUID, ...]:
    if len(ids) > _MAX_MEMBERS:
        found.add(field, f"has more than {_MAX_MEMBERS} entries")
    parsed = [found.uuid(f"{field}[{at}]", each) for at, each in enumerate(ids)]
    return tuple(dict.fromkeys(parsed))
