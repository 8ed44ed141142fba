"""What can be said and changed about an agent: its settings, edits of them, its status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from reveille_heartbeat.domain.redaction import MASKED, is_secret_name
from reveille_heartbeat.domain.states import AgentState
from reveille_heartbeat.domain.values import Agent, HeartbeatPolicy, InvocationRule


class AgentStatus(StrEnum):
    """What an agent does now: its state, and while that is active, what its runs say."""

    IDLE = "idle"
    RUNNING = "running"
    ERROR = "error"
    PAUSED = "paused"
    ARCHIVED = "archived"

    @classmethod
    def of(cls, agent: Agent) -> AgentStatus:
        """Derive it; a run that ends never wakes a paused agent up."""
        if agent.state is not AgentState.ACTIVE:
            return cls(agent.state.value)
        if agent.busy:
            return cls.RUNNING
        return cls.ERROR if agent.last_run_failed else cls.IDLE


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What its keepers decide about an agent."""

    name: str
    adapter: str
    adapter_config: Mapping[str, Any]
    owner_user_id: str
    invocation_rule: InvocationRule
    invocation_user_ids: tuple[str, ...]
    max_concurrent_runs: int
    run_timeout: timedelta
    idle_timeout: timedelta
    start_limit: timedelta
    manager_agent_id: UUID | None
    # None asks for heartbeat's own runtime.
    runtime_id: UUID | None
    heartbeat: HeartbeatPolicy

    @classmethod
    def of(cls, agent: Agent) -> AgentSettings:
        """Take them from an agent."""
        return cls(**{each.name: getattr(agent, each.name) for each in fields(cls)})


@dataclass(frozen=True, slots=True)
class AgentEdit:
    """New values by the names of the settings, and by those of the heartbeat policy."""

    values: Mapping[str, Any] = field(default_factory=dict)
    policy: Mapping[str, Any] = field(default_factory=dict)

    @property
    def opens(self) -> bool:
        """Whether it touches who may wake the agent."""
        return not self.values.keys().isdisjoint(
            {"owner_user_id", "invocation_rule", "invocation_user_ids"}
        )

    def apply(self, before: AgentSettings) -> AgentSettings:
        """Give the settings after the edit; whom a rule does not ask for is not kept."""
        after = replace(before, **self.values)
        after = replace(after, heartbeat=replace(after.heartbeat, **self.policy))
        if "adapter_config" in self.values:
            after = replace(
                after, adapter_config=unmasked(after.adapter_config, before.adapter_config)
            )
        if (
            after.invocation_rule is not InvocationRule.MEMBERS
            and "invocation_user_ids" not in self.values
        ):
            after = replace(after, invocation_user_ids=())
        return after


def unmasked(config: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Put back the secrets that were shown as stars, so that reading and writing back is safe."""
    env, old = config.get("env"), before.get("env")
    if not isinstance(env, Mapping) or not isinstance(old, Mapping):
        return dict(config)
    kept = {
        name: old[name] if value == MASKED and is_secret_name(name) and name in old else value
        for name, value in env.items()
    }
    return {**config, "env": kept}


def masks(config: Mapping[str, Any]) -> list[str]:
    """Name the variables whose value is only the stars that a secret is shown as."""
    env = config.get("env")
    if not isinstance(env, Mapping):
        return []
    return [name for name, value in env.items() if value == MASKED and is_secret_name(name)]
