"""Squads: groups of agents that are woken through their leader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from asyncpg import UniqueViolationError

from reveille_heartbeat.domain.states import AGENT_TRANSITIONS, AgentState
from reveille_heartbeat.domain.targets import Squad
from reveille_heartbeat.domain.values import Agent
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_agent, to_squad
from reveille_heartbeat.usecases import channels, events
from reveille_heartbeat.usecases.agents.settings import name_taken, not_there
from reveille_heartbeat.usecases.agents.targets import read_squads
from reveille_heartbeat.usecases.agents.update_agent import archived as archived_agent
from reveille_heartbeat.usecases.etags import changed_meanwhile, require_etag
from reveille_heartbeat.usecases.listing import Listed, require_known, to_page
from reveille_heartbeat.usecases.repeats import Repeatable, made, made_before
from reveille_heartbeat.usecases.visible import require_visible, unknown_workspace
from reveille_runtime import feed
from reveille_runtime.access import Actor
from reveille_runtime.db import Database, Tx, constraint_name, retrying_transaction
from reveille_runtime.errors import FailedPrecondition, InvalidArgument
from reveille_runtime.hints import Notifier
from reveille_runtime.lockorder import Level, LockOrder
from reveille_runtime.paging import Page

_NAMES = "squads_workspace_id_name_key"


@dataclass(frozen=True, slots=True)
class NewSquad:
    """A squad to create; its id is made by the caller."""

    squad_id: UUID
    workspace_id: UUID
    name: str
    leader_agent_id: UUID
    member_agent_ids: tuple[UUID, ...]
    repeatable: Repeatable | None


class Squads:
    """Keeps squads. Their leader is locked while they get it, so that it is not archived then."""

    def __init__(self, db: Database, notifier: Notifier) -> None:
        self._db = db
        self._notifier = notifier

    async def create(self, new: NewSquad) -> Squad:
        """Create it, or give what the same request made before.

        Raises:
            NotFound: the workspace or an agent is not there. AlreadyExists: the name is taken.
            FailedPrecondition: the leader is archived.
        """

        async def create(tx: Tx) -> Squad:
            squad_id = await made_before(tx, new.repeatable)
            if squad_id is None:
                if not await tx.fetch(Q["find_workspaces"], [new.workspace_id]):
                    raise unknown_workspace(new.workspace_id)
                await _require_agents(
                    tx, new.workspace_id, new.leader_agent_id, new.member_agent_ids
                )
                squad_id = await tx.fetchval(
                    Q["insert_squad"],
                    new.squad_id,
                    new.workspace_id,
                    new.name,
                    new.leader_agent_id,
                )
                if squad_id is None:
                    raise name_taken("a squad", new.name)
                await tx.execute(Q["add_members"], squad_id, list(new.member_agent_ids))
                await made(tx, new.repeatable, squad_id)
            return (await read_squads(tx, [squad_id]))[squad_id]

        return await retrying_transaction(self._db, create, repeatable=new.repeatable is not None)

    async def get(self, actor: Actor, squad_id: UUID) -> Squad:
        """Read a squad. Raises NotFound."""
        async with self._db.session() as tx:
            return await _read(tx, actor, squad_id)

    async def page(self, actor: Actor, workspace_id: UUID, page: Page) -> Listed[Squad]:
        """List a workspace's squads by name. Raises NotFound for a stranger."""
        actor.require_member(workspace_id)
        after = None if page.after is None else str(page.after[0])
        async with self._db.session() as tx:
            rows = await tx.fetch(Q["list_squads"], workspace_id, after, page.limit)
            await require_known(tx, workspace_id, rows)
        return to_page([to_squad(row) for row in rows], page)

    async def update(
        self, actor: Actor, squad_id: UUID, values: Mapping[str, Any], etag: str
    ) -> Squad:
        """Change name, leader or members.

        Raises:
            NotFound: it, or an agent, is not there. AlreadyExists: the name is taken.
            Aborted: it was changed since the caller read it.
            FailedPrecondition: it, or its new leader, is archived.
            InvalidArgument: the leader is listed as a member too.
        """

        async def update(tx: Tx) -> Squad:
            squad = await _read(tx, actor, squad_id)
            require_etag(etag, squad, f"squad {squad.name}")
            if squad.state is AgentState.ARCHIVED:
                raise _archived(squad)
            leader_id: UUID = values.get("leader_agent_id", squad.leader_agent_id)
            members: tuple[UUID, ...] = values.get("member_agent_ids", squad.member_agent_ids)
            if "member_agent_ids" not in values:
                members = tuple(each for each in members if each != leader_id)
            leader = await _require_agents(tx, squad.workspace_id, leader_id, members, "squad.")
            if not await tx.execute(
                Q["update_squad"],
                squad_id,
                squad.revision,
                values.get("name", squad.name),
                leader_id,
            ):
                raise changed_meanwhile(squad, f"squad {squad.name}")
            await tx.execute(Q["remove_members"], squad_id, list(members))
            await tx.execute(Q["add_members"], squad_id, list(members))
            after = (await read_squads(tx, [squad_id]))[squad_id]
            await _tell(tx, after, leader)
            return after

        try:
            after = await retrying_transaction(self._db, update)
        except UniqueViolationError as error:
            if constraint_name(error) != _NAMES:
                raise
            raise name_taken("a squad", values["name"]) from error
        self._notifier.notify(channels.FEED)
        return after

    async def move(
        self, actor: Actor, squad_id: UUID, target: AgentState, why: str, etag: str
    ) -> Squad:
        """Pause, resume or archive; the state it has already changes nothing.

        Raises:
            NotFound: it is not there. Aborted: it was changed since the caller read it.
            FailedPrecondition: it is archived.
        """

        async def move(tx: Tx) -> Squad:
            squad = await _read(tx, actor, squad_id)
            require_etag(etag, squad, f"squad {squad.name}")
            if squad.state is target:
                return squad
            if target not in AGENT_TRANSITIONS[squad.state]:
                raise _archived(squad)
            if not await tx.execute(Q["move_squad"], squad_id, squad.revision, target.value, why):
                raise changed_meanwhile(squad, f"squad {squad.name}")
            after = (await read_squads(tx, [squad_id]))[squad_id]
            rows = await tx.fetch(Q["find_agents"], [after.leader_agent_id])
            await _tell(tx, after, to_agent(rows[0]))
            return after

        after = await retrying_transaction(self._db, move)
        self._notifier.notify(channels.FEED)
        return after


async def _read(tx: Tx, actor: Actor, squad_id: UUID) -> Squad:
    squad = (await read_squads(tx, [squad_id])).get(squad_id)
    return require_visible(actor, squad, "squad", squad_id)


async def _require_agents(
    tx: Tx, workspace_id: UUID, leader_id: UUID, members: Sequence[UUID], at: str = ""
) -> Agent:
    """Lock the leader, and see that all are there; gives the leader."""
    if leader_id in members:
        raise InvalidArgument.of(
            f"{at}member_agent_ids", "must not repeat the leader", "INVALID_FIELD"
        )
    await LockOrder().take(tx, Level.AGENT, Q["lock_agents"], [leader_id])
    rows = await tx.fetch(Q["find_agents"], sorted({leader_id, *members}))
    agents = {row["agent_id"]: to_agent(row) for row in rows}
    for field, agent_id in (
        ("leader_agent_id", leader_id),
        *(("member_agent_ids", each) for each in members),
    ):
        agent = agents.get(agent_id)
        if agent is None or agent.workspace_id != workspace_id:
            raise not_there("agent", f"{at}{field}", agent_id)
    leader = agents[leader_id]
    if leader.state is AgentState.ARCHIVED:
        raise archived_agent(leader)
    return leader


async def _tell(tx: Tx, squad: Squad, leader: Agent) -> None:
    if squad.state is AgentState.ARCHIVED:
        told = events.squad_archived(squad)
    else:
        told = events.squad_updated(squad, leader_has_runtime=leader.runtime_id is not None)
    await feed.append(tx, [told])


def _archived(squad: Squad) -> FailedPrecondition:
    return FailedPrecondition(
        "WRONG_STATE", f"squad {squad.name} is archived", {"state": squad.state.value}
    )
