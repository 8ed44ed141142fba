"""Agents, squads and runtimes as messages."""

from __future__ import annotations

from google.protobuf.struct_pb2 import Struct

from reveille.heartbeat.v1 import agent_pb2, runtime_pb2, squad_pb2
from reveille_heartbeat.domain.agents import AgentStatus
from reveille_heartbeat.domain.redaction import masked_config
from reveille_heartbeat.domain.runtimes import Runtime
from reveille_heartbeat.domain.targets import Squad
from reveille_heartbeat.domain.values import Agent, HeartbeatPolicy, InvocationRule
from reveille_heartbeat.rpc.show import known
from reveille_heartbeat.usecases.etags import etag_of
from reveille_runtime.validation import to_duration, to_timestamp

INVOCATION_RULES = known(InvocationRule, agent_pb2.InvocationRule.DESCRIPTOR, "INVOCATION_RULE")


def agent(each: Agent) -> agent_pb2.Agent:
    """Show an agent; secrets of its settings are starred."""
    config = Struct()
    config.update(masked_config(each.adapter_config))
    return agent_pb2.Agent(
        agent_id=str(each.agent_id),
        workspace_id=str(each.workspace_id),
        name=each.name,
        adapter=each.adapter,
        adapter_config=config,
        status=agent_pb2.AgentStatus.Value(f"AGENT_STATUS_{AgentStatus.of(each).name}"),
        owner_user_id=each.owner_user_id,
        invocation_rule=agent_pb2.InvocationRule.Value(
            f"INVOCATION_RULE_{each.invocation_rule.name}"
        ),
        invocation_user_ids=each.invocation_user_ids,
        max_concurrent_runs=each.max_concurrent_runs,
        run_timeout=to_duration(each.run_timeout),
        idle_timeout=to_duration(each.idle_timeout),
        start_limit=to_duration(each.start_limit),
        manager_agent_id="" if each.manager_agent_id is None else str(each.manager_agent_id),
        runtime_id="" if each.runtime_id is None else str(each.runtime_id),
        heartbeat=policy(each.heartbeat),
        pause_reason=each.pause_reason,
        etag=etag_of(each),
        create_time=to_timestamp(each.created_at),
        update_time=to_timestamp(each.updated_at),
    )


def policy(each: HeartbeatPolicy) -> agent_pb2.HeartbeatPolicy:
    """Show what wakes an agent."""
    return agent_pb2.HeartbeatPolicy(
        timer_enabled=each.timer_enabled,
        timer_interval=to_duration(each.timer_interval),
        skip_timer_without_work=each.skip_timer_without_work,
        wake_on_demand=each.wake_on_demand,
        max_daily_runs=each.max_daily_runs,
        max_daily_cost_cents=each.max_daily_cost_cents,
        cooldown=to_duration(each.cooldown),
        max_turn_continuations=each.max_turn_continuations,
        max_turn_delay=to_duration(each.max_turn_delay),
    )


def squad(each: Squad) -> squad_pb2.Squad:
    """Show a squad."""
    return squad_pb2.Squad(
        squad_id=str(each.squad_id),
        workspace_id=str(each.workspace_id),
        name=each.name,
        leader_agent_id=str(each.leader_agent_id),
        member_agent_ids=[str(agent_id) for agent_id in each.member_agent_ids],
        state=squad_pb2.SquadState.Value(f"SQUAD_STATE_{each.state.name}"),
        pause_reason=each.pause_reason,
        etag=etag_of(each),
        create_time=to_timestamp(each.created_at),
        update_time=to_timestamp(each.updated_at),
    )


def runtime(each: Runtime) -> runtime_pb2.Runtime:
    """Show a runtime."""
    metadata = Struct()
    metadata.update(each.metadata)
    return runtime_pb2.Runtime(
        runtime_id=str(each.runtime_id),
        workspace_id=str(each.workspace_id),
        name=each.name,
        kind=runtime_pb2.RuntimeKind.Value(f"RUNTIME_KIND_{each.kind.name}"),
        online=each.online,
        unusable_reason=each.unusable_reason,
        metadata=metadata,
        presence_expire_time=to_timestamp(each.presence_expires_at),
        create_time=to_timestamp(each.created_at),
    )
