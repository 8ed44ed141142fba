"""CreateAgent: what can be woken from now on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from reveille_heartbeat.domain.agents import AgentSettings
from reveille_heartbeat.domain.values import Agent
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_agent
from reveille_heartbeat.usecases.agents.settings import (
    columns,
    name_taken,
    require_manager,
    resolve_runtime,
)
from reveille_heartbeat.usecases.repeats import Repeatable, made, made_before
from reveille_heartbeat.usecases.visible import unknown_workspace
from reveille_runtime.db import Database, Tx, retrying_transaction


@dataclass(frozen=True, slots=True)
class NewAgent:
    """An agent to create; its id is made by the caller."""

    agent_id: UUID
    workspace_id: UUID
    settings: AgentSettings
    repeatable: Repeatable | None


class CreateAgent:
    """Creates an agent, on heartbeat's own runtime unless another is named."""

    def __init__(self, db: Database, presence: timedelta, new_id: Callable[[], UUID]) -> None:
        self._db = db
        self._presence = presence
        self._new_id = new_id

    async def __call__(self, new: NewAgent) -> Agent:
        """Create it, or give what the same request made before.

        Raises:
            NotFound: the workspace, the manager or the runtime is not known here.
            AlreadyExists: the name is taken.
            InvalidArgument: the request id was used for another request.
        """

        async def create(tx: Tx) -> Agent:
            return await self._in(tx, new)

        return await retrying_transaction(self._db, create, repeatable=new.repeatable is not None)

    async def _in(self, tx: Tx, new: NewAgent) -> Agent:
        agent_id = await made_before(tx, new.repeatable)
        if agent_id is None:
            if not await tx.fetch(Q["find_workspaces"], [new.workspace_id]):
                raise unknown_workspace(new.workspace_id)
            # Nobody can stand above itself by it: no other agent names one that is being made.
            await require_manager(tx, new.agent_id, new.workspace_id, new.settings.manager_agent_id)
            settings = await resolve_runtime(
                tx, new.workspace_id, new.settings, self._new_id(), self._presence
            )
            agent_id = await tx.fetchval(
                Q["insert_agent"], new.agent_id, new.workspace_id, *columns(settings)
            )
            if agent_id is None:
                raise name_taken("an agent", settings.name)
            await made(tx, new.repeatable, agent_id)
        return to_agent((await tx.fetch(Q["show_agents"], [agent_id]))[0])
