"""Who would be woken, and does that one take work? An agent, or a squad through its leader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import AgentState
from reveille_heartbeat.domain.values import Agent, Refusal


@dataclass(frozen=True, slots=True)
class Squad:
    """A group of agents that is woken through its leader."""

    squad_id: UUID
    workspace_id: UUID
    name: str
    leader_agent_id: UUID
    member_agent_ids: tuple[UUID, ...]
    state: AgentState
    pause_reason: str
    revision: int
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Manager:
    """An agent as those below it see it."""

    agent_id: UUID
    workspace_id: UUID
    name: str
    state: AgentState
    manager_agent_id: UUID | None


@dataclass(frozen=True, slots=True)
class Target:
    """What a wish or a question is aimed at, as far as it was found."""

    agent: Agent | None
    # The squad that was asked for; its leader is the agent then.
    squad: Squad | None = None
    # Everybody above the agent, by id.
    managers: Mapping[UUID, Manager] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """Name the agent as the one who asked knows it."""
        name = "" if self.agent is None else self.agent.name
        if self.squad is None:
            return f"agent {name}"
        return f"squad leader {name} of squad {self.squad.name}"


def no_work(target: Target) -> Refusal | None:
    """Refuse what takes no work: a squad or an agent that rests, or a broken chain of managers."""
    squad, agent = target.squad, target.agent
    if squad is not None and squad.state is not AgentState.ACTIVE:
        return _resting(f"squad {squad.name}", squad.state, squad.pause_reason)
    if agent is None:
        return None
    if agent.state is not AgentState.ACTIVE:
        return _resting(target.words, agent.state, agent.pause_reason)
    problem = broken_chain(
        agent.agent_id, agent.workspace_id, agent.manager_agent_id, target.managers
    )
    if problem:
        return Refusal(Reason.AGENT_NOT_INVOKABLE, f"{target.words} takes no work: {problem}")
    return None


def broken_chain(
    agent_id: UUID, workspace_id: UUID, manager_id: UUID | None, managers: Mapping[UUID, Manager]
) -> str:
    """Say what is wrong above an agent; empty when nothing is.

    Everybody above it must be of its workspace and not archived, and nobody twice.
    """
    seen = {agent_id}
    while manager_id is not None:
        if manager_id in seen:
            return f"its chain of managers comes back to {manager_id}"
        manager = managers.get(manager_id)
        if manager is None or manager.workspace_id != workspace_id:
            return f"its manager {manager_id} is not in this workspace"
        if manager.state is AgentState.ARCHIVED:
            return f"its manager {manager.name} is archived"
        seen.add(manager_id)
        manager_id = manager.manager_agent_id
    return ""


def _resting(who: str, state: AgentState, why: str) -> Refusal:
    text = f"{who} is {state.value}"
    return Refusal(Reason.AGENT_NOT_INVOKABLE, f"{text}: {why}" if why else text)
