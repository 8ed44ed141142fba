"""CreateAgent: what can be woken from now on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from reveille_heartbeat.domain.values import Agent, InvocationRule
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_agent
from reveille_heartbeat.usecases.repeats import Repeatable, made, made_before
from reveille_runtime.db import Database, Tx, retrying_transaction
from reveille_runtime.errors import AlreadyExists, NotFound


@dataclass(frozen=True, slots=True)
class NewAgent:
    """An agent to create; ids are made by the caller."""

    agent_id: UUID
    runtime_id: UUID
    workspace_id: UUID
    name: str
    adapter: str
    adapter_config: Mapping[str, Any]
    owner_user_id: str
    invocation_rule: InvocationRule
    invocation_user_ids: tuple[str, ...]
    max_concurrent_runs: int
    run_timeout: timedelta
    idle_timeout: timedelta
    repeatable: Repeatable | None


class CreateAgent:
    """Creates an agent on the workspace's local runtime."""

    def __init__(self, db: Database, presence: timedelta) -> None:
        self._db = db
        self._presence = presence

    async def __call__(self, new: NewAgent) -> Agent:
        """Create it, or give what the same request made before.

        Raises:
            NotFound: the workspace is not known here. AlreadyExists: the name is taken.
            InvalidArgument: the request id was used for another request.
        """

        async def create(tx: Tx) -> Agent:
            return await self._in(tx, new)

        return await retrying_transaction(self._db, create, repeatable=new.repeatable is not None)

    async def _in(self, tx: Tx, new: NewAgent) -> Agent:
        agent_id = await made_before(tx, new.repeatable)
        if agent_id is None:
            if not await tx.fetch(Q["find_workspaces"], [new.workspace_id]):
                raise NotFound("NOT_FOUND", f"workspace {new.workspace_id} is not known here")
            runtime_id: UUID = await tx.fetchval(
                Q["ensure_local_runtime"], new.runtime_id, new.workspace_id, self._presence
            )
            agent_id = await self._insert(tx, new, runtime_id)
            if agent_id is None:
                raise AlreadyExists(
                    "ALREADY_EXISTS",
                    f"the workspace has an agent called {new.name}",
                    {"name": new.name},
                )
            await made(tx, new.repeatable, agent_id)
        return to_agent((await tx.fetch(Q["show_agents"], [agent_id]))[0])

    async def _insert(self, tx: Tx, new: NewAgent, runtime_id: UUID) -> UUID | None:
        agent_id: UUID | None = await tx.fetchval(
            Q["insert_agent"],
            new.agent_id,
            new.workspace_id,
            new.name,
            new.adapter,
            dict(new.adapter_config),
            runtime_id,
            new.owner_user_id,
            new.invocation_rule.value,
            list(new.invocation_user_ids),
            new.max_concurrent_runs,
            new.run_timeout,
            new.idle_timeout,
        )
        return agent_id
