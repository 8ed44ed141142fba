"""May this principal wake this agent now? The first failing check is the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never
from uuid import UUID

from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.values import Agent, InvocationRule, Refusal, Workspace


@dataclass(frozen=True, slots=True)
class Question:
    """What a caller wants to know."""

    workspace_id: UUID
    agent_id: UUID
    principal_user_id: str
    principal_is_member: bool
    runtime_must_be_online: bool


def first_failure(
    question: Question, workspace: Workspace | None, agent: Agent | None
) -> Refusal | None:
    """Check workspace, agent, runtime, presence and the right to invoke, in this order."""
    if workspace is None:
        return Refusal(
            Reason.WORKSPACE_INACTIVE,
            f"workspace {question.workspace_id} is not known, or not active",
        )
    if agent is None or agent.workspace_id != question.workspace_id:
        return Refusal(
            Reason.AGENT_NOT_FOUND, f"agent {question.agent_id} is not in this workspace"
        )
    if agent.runtime_id is None:
        return Refusal(Reason.AGENT_RUNTIME_REQUIRED, f"agent {agent.name} has no runtime")
    if question.runtime_must_be_online and not agent.runtime_present:
        return Refusal(Reason.RUNTIME_OFFLINE, f"the runtime of agent {agent.name} is away")
    if question.principal_user_id and not may_invoke(question, agent):
        return Refusal(
            Reason.INVOCATION_NOT_ALLOWED,
            f"{question.principal_user_id} may not wake agent {agent.name}",
        )
    return None


def may_invoke(question: Question, agent: Agent) -> bool:
    """Apply the agent's rule; its owner always may, and nobody else without being a member."""
    if question.principal_user_id == agent.owner_user_id:
        return True
    match agent.invocation_rule:
        case InvocationRule.PRIVATE:
            return False
        case InvocationRule.WORKSPACE:
            return question.principal_is_member
        case InvocationRule.MEMBERS:
            return (
                question.principal_is_member
                and question.principal_user_id in agent.invocation_user_ids
            )
        case _:
            assert_never(agent.invocation_rule)
