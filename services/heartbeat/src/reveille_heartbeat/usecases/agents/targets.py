"""Reading whom wishes and questions are aimed at: agents, squads with their leaders, managers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from uuid import UUID

from reveille_heartbeat.domain.targets import Manager, Squad, Target
from reveille_heartbeat.domain.values import Agent
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_agent, to_manager, to_squad
from reveille_runtime.db import Tx


@dataclass(frozen=True, slots=True)
class Targets:
    """What was found, by id."""

    agents: Mapping[UUID, Agent]
    squads: Mapping[UUID, Squad]
    managers: Mapping[UUID, Manager]

    def of(self, workspace_id: UUID, agent_id: UUID | None, squad_id: UUID | None) -> Target:
        """Give what a wish in a workspace is aimed at; what belongs to another is not found."""
        squad = None if squad_id is None else self.squads.get(squad_id)
        if squad is not None and squad.workspace_id != workspace_id:
            squad = None
        if squad_id is not None:
            agent_id = None if squad is None else squad.leader_agent_id
        agent = None if agent_id is None else self.agents.get(agent_id)
        if agent is not None and agent.workspace_id != workspace_id:
            agent = None
        return Target(agent, squad, self.managers)


async def read_squads(tx: Tx, squad_ids: Collection[UUID]) -> dict[UUID, Squad]:
    """Read squads."""
    rows = await tx.fetch(Q["find_squads"], sorted(squad_ids)) if squad_ids else []
    return {row["squad_id"]: to_squad(row) for row in rows}


async def read_targets(
    tx: Tx, agent_ids: Collection[UUID], squad_ids: Collection[UUID] = ()
) -> Targets:
    """Read agents and squads with their leaders, and whoever stands above them."""
    squads = await read_squads(tx, squad_ids)
    wanted = {*agent_ids, *(squad.leader_agent_id for squad in squads.values())}
    rows = await tx.fetch(Q["find_agents"], sorted(wanted)) if wanted else []
    agents = {row["agent_id"]: to_agent(row) for row in rows}
    return Targets(agents, squads, await read_managers(tx, agents.values()))


async def read_managers(tx: Tx, agents: Collection[Agent]) -> dict[UUID, Manager]:
    """Read everybody above some agents; most have nobody, and cost nothing."""
    below = [each.agent_id for each in agents if each.manager_agent_id is not None]
    rows = await tx.fetch(Q["find_managers"], below) if below else []
    return {row["agent_id"]: to_manager(row) for row in rows}
