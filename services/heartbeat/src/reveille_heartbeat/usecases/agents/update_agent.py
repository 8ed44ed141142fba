"""UpdateAgent: other settings for an agent, for its next runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Protocol
from uuid import UUID

from asyncpg import UniqueViolationError

from reveille_heartbeat.domain.agents import AgentEdit, AgentSettings, masks
from reveille_heartbeat.domain.states import AgentState
from reveille_heartbeat.domain.values import Agent, InvocationRule
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_agent
from reveille_heartbeat.usecases.agents.keepers import read_kept, require_may_open
from reveille_heartbeat.usecases.agents.settings import (
    columns,
    name_taken,
    read_chain,
    require_manager,
    resolve_runtime,
)
from reveille_heartbeat.usecases.etags import changed_meanwhile, require_etag
from reveille_runtime.access import Actor
from reveille_runtime.db import Database, Tx, constraint_name, retrying_transaction
from reveille_runtime.errors import Aborted, FailedPrecondition
from reveille_runtime.lockorder import Level, LockOrder
from reveille_runtime.validation import Violations

# Where the settings lie in the request.
_AT = "agent."
_NAMES = "agents_workspace_id_name_key"
# How often a chain of managers may be found changed between a look and its locks.
_LOOKS = 5


class Problem(Protocol):
    """What is wrong with an adapter's settings, and where."""

    @property
    def field(self) -> str:
        """The path."""
        ...

    @property
    def description(self) -> str:
        """The words."""
        ...


CheckAdapter = Callable[[str, Mapping[str, Any]], Iterable[Problem]]


def judge(
    found: Violations, settings: AgentSettings, check_adapter: CheckAdapter, at: str = ""
) -> None:
    """Note what settings contradict: an adapter's own rules, users whom the rule does not ask."""
    if settings.adapter:
        for problem in check_adapter(settings.adapter, settings.adapter_config):
            found.add(f"{at}{problem.field}", problem.description)
    if settings.invocation_user_ids and settings.invocation_rule is not InvocationRule.MEMBERS:
        found.add(f"{at}invocation_user_ids", "must be empty unless the rule lists members")


def refuse_masks(found: Violations, settings: AgentSettings, at: str = "") -> None:
    """Note stars that stand for no secret: what was read elsewhere is not the secret itself."""
    for name in masks(settings.adapter_config):
        found.add(f"{at}adapter_config.env.{name}", "is how a secret is shown; give the secret")


class UpdateAgent:
    """Changes an agent in one step, against what its caller has read."""

    def __init__(
        self,
        db: Database,
        check_adapter: CheckAdapter,
        presence: timedelta,
        new_id: Callable[[], UUID],
    ) -> None:
        self._db = db
        self._check_adapter = check_adapter
        self._presence = presence
        self._new_id = new_id

    async def __call__(self, actor: Actor, agent_id: UUID, edit: AgentEdit, etag: str) -> Agent:
        """Change it.

        Raises:
            NotFound: the caller cannot see it, or it names what is not there.
            PermissionDenied: it is neither theirs nor theirs to open.
            Aborted: it was changed since the caller read it. AlreadyExists: the name is taken.
            FailedPrecondition: it is archived. InvalidArgument: the settings contradict.
        """
        manager_id: UUID | None = edit.values.get("manager_agent_id")
        for _ in range(_LOOKS):
            # Whoever stands above it stays as they are while we look: two edits cannot close a
            # ring between them.
            chain: set[UUID] = set()
            if manager_id is not None:
                async with self._db.session() as tx:
                    chain = set(await read_chain(tx, manager_id))

            async def update(tx: Tx, held: set[UUID] = chain) -> Agent | None:
                return await self._in(tx, actor, agent_id, edit, etag, held)

            try:
                agent = await retrying_transaction(self._db, update)
            except UniqueViolationError as error:
                if constraint_name(error) != _NAMES:
                    raise
                raise name_taken("an agent", edit.values["name"]) from error
            if agent is not None:
                return agent
        raise Aborted(
            "REQUEST_CONFLICT", "the managers above this one are being changed; send it again"
        )

    async def _in(
        self, tx: Tx, actor: Actor, agent_id: UUID, edit: AgentEdit, etag: str, chain: set[UUID]
    ) -> Agent | None:
        """Change it; None when somebody came into the chain who is not locked."""
        await LockOrder().take(tx, Level.AGENT, Q["lock_agents"], {agent_id, *chain})
        agent = await read_kept(tx, actor, agent_id)
        require_etag(etag, agent, f"agent {agent.name}")
        if agent.state is AgentState.ARCHIVED:
            raise archived(agent)
        if edit.opens:
            require_may_open(actor, agent)
        settings = edit.apply(AgentSettings.of(agent))
        found = Violations()
        judge(found, settings, self._check_adapter, _AT)
        if "adapter_config" in edit.values:
            refuse_masks(found, settings, _AT)
        found.check()
        if "manager_agent_id" in edit.values and settings.manager_agent_id is not None:
            if not chain.issuperset(await read_chain(tx, settings.manager_agent_id)):
                return None
            await require_manager(tx, agent_id, agent.workspace_id, settings.manager_agent_id, _AT)
        if "runtime_id" in edit.values:
            settings = await resolve_runtime(
                tx, agent.workspace_id, settings, self._new_id(), self._presence, _AT
            )
        if settings == AgentSettings.of(agent):
            # A secret is not shown, so whoever writes one cannot know that it is the same.
            return agent
        if not await tx.execute(Q["update_agent"], agent_id, agent.revision, *columns(settings)):
            raise changed_meanwhile(agent, f"agent {agent.name}")
        return to_agent((await tx.fetch(Q["show_agents"], [agent_id]))[0])


def archived(agent: Agent) -> FailedPrecondition:
    """Make the answer to whoever wants something of an agent that is archived."""
    return FailedPrecondition(
        "WRONG_STATE", f"agent {agent.name} is archived", {"state": agent.state.value}
    )
