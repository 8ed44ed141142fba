"""Agents and squads in plain words: can they be woken, by what, and what stands in the way."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from reveille_heartbeat.domain.limits import Today, over_daily_cap
from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import AgentState
from reveille_heartbeat.domain.targets import Squad, Target, broken_chain
from reveille_heartbeat.domain.values import Agent
from reveille_heartbeat.domain.waiting import more_for_today
from reveille_runtime.explain import Finding


@dataclass(frozen=True, slots=True)
class Standing:
    """What is looked at of an agent."""

    agent: Agent
    target: Target
    occupied: int
    queued: int
    today: Today


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why an agent does not work now, and the command that would change it."""

    state: str
    words: str
    reason: str = ""
    command: str = ""


def about_agent(standing: Standing, now: datetime) -> Finding:
    """Tell whether an agent can be woken, what keeps it busy, and when its timer wakes it."""
    agent = standing.agent
    obstacle = _obstacle(standing)
    load = (
        f"Agent {agent.name} has {standing.occupied} of {agent.max_concurrent_runs} slots in use"
        f" and {standing.queued} runs waiting"
    )
    facts = [
        load,
        *([obstacle.words] if obstacle.words else []),
        *_limits(standing),
        _timer(agent, now),
    ]
    return Finding(
        time=now,
        subject="agent",
        subject_id=str(agent.agent_id),
        state=obstacle.state,
        reason=obstacle.reason,
        text="; ".join(facts) + ".",
        rows=(("heartbeat.agents", str(agent.agent_id)),),
        command=obstacle.command
        or f"reveille agent-runs list --workspace {agent.workspace_id} --agent {agent.agent_id}",
        related=() if agent.manager_agent_id is None else (str(agent.manager_agent_id),),
    )


def about_squad(squad: Squad, now: datetime) -> Finding:
    """Tell whether a squad can be woken; what its leader says comes beside."""
    text = f"Squad {squad.name} is {squad.state.value} and is woken through its leader"
    if squad.pause_reason:
        text += f" (paused: {squad.pause_reason})"
    paused = squad.state is AgentState.PAUSED
    return Finding(
        time=now,
        subject="squad",
        subject_id=str(squad.squad_id),
        state=squad.state.value,
        text=f"{text}.",
        rows=(("heartbeat.squads", str(squad.squad_id)),),
        command=f"reveille squads {'resume' if paused else 'get'} {squad.squad_id}",
        related=(str(squad.leader_agent_id),),
    )


def _obstacle(standing: Standing) -> Obstacle:
    """Name the first thing in the way, in the order in which wishes are judged."""
    agent = standing.agent
    change = f"reveille agents update {agent.agent_id}"
    why = f": {agent.pause_reason}" if agent.pause_reason else ""
    if agent.state is AgentState.PAUSED:
        return Obstacle(
            "paused",
            f"it is paused{why}, and takes no work until it is resumed",
            Reason.AGENT_PAUSED.value,
            f"reveille agents resume {agent.agent_id}",
        )
    if agent.state is AgentState.ARCHIVED:
        return Obstacle(
            "archived", "it is archived, and takes no work any more", Reason.AGENT_ARCHIVED.value
        )
    chain = broken_chain(
        agent.agent_id, agent.workspace_id, agent.manager_agent_id, standing.target.managers
    )
    if chain:
        return Obstacle(
            "not_invokable",
            f"it takes no work: {chain}",
            Reason.AGENT_NOT_INVOKABLE.value,
            f"{change} --manager ''",
        )
    if agent.runtime_id is None:
        return Obstacle(
            "no_runtime",
            "it has no runtime",
            Reason.AGENT_RUNTIME_REQUIRED.value,
            f"{change} --runtime ''",
        )
    over = over_daily_cap(agent.heartbeat, standing.today)
    if over is not None:
        return Obstacle(
            "daily_limit",
            f"its day is over: {over.message}",
            over.reason.value,
            more_for_today(agent, over.reason),
        )
    if agent.runtime_unusable_reason:
        return Obstacle(
            "waiting_runtime",
            f"its runtime is of no use: {agent.runtime_unusable_reason}",
            Reason.RUNTIME_UNUSABLE.value,
        )
    if not agent.runtime_present:
        return Obstacle("waiting_runtime", "its runtime is away", Reason.RUNTIME_OFFLINE.value)
    return Obstacle("busy" if standing.occupied >= agent.max_concurrent_runs else "ready", "")


def _limits(standing: Standing) -> list[str]:
    policy, today = standing.agent.heartbeat, standing.today
    said = []
    if policy.max_daily_runs is not None:
        said.append(f"{today.runs} of {policy.max_daily_runs} runs of this UTC day are used")
    if policy.max_daily_cost_cents is not None:
        said.append(
            f"{today.cost_cents:g} of {policy.max_daily_cost_cents} cents of this UTC day are spent"
        )
    if not policy.wake_on_demand:
        said.append("nothing but its timer wakes it")
    return said


def _timer(agent: Agent, now: datetime) -> str:
    """Tell when its timer wakes it next, by its own clock."""
    policy = agent.heartbeat
    if not policy.timer_enabled:
        return "its timer is off"
    if policy.timer_interval <= timedelta(0):
        return "its timer is on and has no interval, so that it never fires"
    every = f"its timer wakes it every {_length(policy.timer_interval)}"
    if agent.state is not AgentState.ACTIVE:
        return f"{every} while it is active"
    due = (agent.last_timer_fired_at or agent.created_at) + policy.timer_interval
    if due <= now:
        return f"{every}, and is due since {_moment(due)}: it fires with the scheduler's next tick"
    return f"{every}, next at {_moment(due)}"


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _length(interval: timedelta) -> str:
    seconds = int(interval.total_seconds())
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= unit and seconds % unit == 0:
            return f"{seconds // unit} {name}"
    return f"{seconds} s"
