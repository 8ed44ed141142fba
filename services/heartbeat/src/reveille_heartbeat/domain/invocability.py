"""May this principal wake this agent now? The first failing check is the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never
from uuid import UUID

from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import AgentState
from reveille_heartbeat.domain.targets import Target, no_work
from reveille_heartbeat.domain.values import (
    Agent,
    InvocationRule,
    Refusal,
    Workspace,
    WorkspaceStatus,
)


@dataclass(frozen=True, slots=True)
class Question:
    """What a caller wants to know; about an agent, or about a squad."""

    workspace_id: UUID
    agent_id: UUID | None
    squad_id: UUID | None
    project_id: UUID | None
    principal_user_id: str
    principal_is_member: bool
    runtime_must_be_online: bool


def first_failure(
    question: Question, workspace: Workspace | None, target: Target, *, project_open: bool
) -> Refusal | None:
    """Check workspace, project, squad and agent, runtime, and the right to invoke, in this order.

    `target` holds what was found in the workspace of the question.
    """
    if workspace is None or workspace.status is not WorkspaceStatus.ACTIVE:
        return Refusal(
            Reason.WORKSPACE_INACTIVE,
            f"workspace {question.workspace_id} is not known, or not active",
        )
    if question.project_id is not None and not project_open:
        return Refusal(
            Reason.PROJECT_UNAVAILABLE,
            f"project {question.project_id} is not in this workspace, or is archived",
        )
    agent = target.agent
    if agent is None or (question.squad_id is not None and target.squad is None):
        return _not_found(question)
    return (
        _archived(target)
        or no_work(target)
        or _no_place(question, target, agent)
        or _not_allowed(question, target, agent)
    )


def _not_found(question: Question) -> Refusal:
    what = f"agent {question.agent_id}"
    if question.squad_id is not None:
        what = f"squad {question.squad_id}"
    return Refusal(Reason.TARGET_UNAVAILABLE, f"{what} is not in this workspace")


def _archived(target: Target) -> Refusal | None:
    if target.squad is not None and target.squad.state is AgentState.ARCHIVED:
        return Refusal(Reason.TARGET_UNAVAILABLE, f"squad {target.squad.name} is archived")
    if target.agent is not None and target.agent.state is AgentState.ARCHIVED:
        return Refusal(Reason.TARGET_UNAVAILABLE, f"{target.words} is archived")
    return None


def _no_place(question: Question, target: Target, agent: Agent) -> Refusal | None:
    """A runtime that is away is a refusal only where nothing waits for it."""
    if agent.runtime_id is None:
        return Refusal(Reason.AGENT_RUNTIME_REQUIRED, f"{target.words} has no runtime")
    if agent.runtime_unusable_reason:
        return Refusal(
            Reason.RUNTIME_UNUSABLE,
            f"the runtime of {target.words} is of no use at dispatch time:"
            f" {agent.runtime_unusable_reason}",
        )
    if question.runtime_must_be_online and not agent.runtime_present:
        return Refusal(
            Reason.RUNTIME_OFFLINE, f"the runtime of {target.words} is offline at dispatch time"
        )
    return None


def _not_allowed(question: Question, target: Target, agent: Agent) -> Refusal | None:
    if not question.principal_user_id or may_invoke(
        agent, question.principal_user_id, is_member=question.principal_is_member
    ):
        return None
    return Refusal(
        Reason.INVOCATION_NOT_ALLOWED,
        f"{question.principal_user_id} may not wake {target.words}",
    )


def may_invoke(agent: Agent, user_id: str, *, is_member: bool) -> bool:
    """Apply the agent's rule; its owner always may, and nobody else without being a member."""
    if user_id == agent.owner_user_id:
        return True
    match agent.invocation_rule:
        case InvocationRule.PRIVATE:
            return False
        case InvocationRule.WORKSPACE:
            return is_member
        case InvocationRule.MEMBERS:
            return is_member and user_id in agent.invocation_user_ids
        case _:
            assert_never(agent.invocation_rule)
