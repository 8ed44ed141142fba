"""Who may change an agent: its owner, and the administrators of its workspace."""

from __future__ import annotations

from uuid import UUID

from reveille_heartbeat.domain.values import Agent, InvocationRule
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_agent
from reveille_heartbeat.usecases.visible import require_visible
from reveille_runtime.access import Actor, Role
from reveille_runtime.db import Tx
from reveille_runtime.errors import PermissionDenied
from reveille_runtime.lockorder import Level, LockOrder


async def lock_agent(tx: Tx, locks: LockOrder, actor: Actor, agent_id: UUID) -> Agent:
    """Lock an agent, and read it as it is under the lock.

    Raises:
        NotFound: there is none that the caller may see. PermissionDenied: it is not theirs.
    """
    await locks.take(tx, Level.AGENT, Q["lock_agents"], [agent_id])
    return await read_kept(tx, actor, agent_id)


async def read_kept(tx: Tx, actor: Actor, agent_id: UUID) -> Agent:
    """Read an agent that the caller may change. Raises as `lock_agent`."""
    rows = await tx.fetch(Q["show_agents"], [agent_id])
    agent = require_visible(actor, to_agent(rows[0]) if rows else None, "agent", agent_id)
    role = actor.role_in(agent.workspace_id)
    if actor.user_id != agent.owner_user_id and (role is None or not role.covers(Role.ADMIN)):
        raise PermissionDenied(
            "ROLE_TOO_WEAK",
            f"agent {agent.name} belongs to {agent.owner_user_id}: only they and administrators"
            " change it",
            {"owner": agent.owner_user_id, "required_role": Role.ADMIN.value},
        )
    return agent


def require_may_open(actor: Actor, agent: Agent) -> None:
    """A private agent is its owner's alone: nobody else gives it away, not even administrators.

    Raises:
        PermissionDenied: somebody else tries to.
    """
    if agent.invocation_rule is InvocationRule.PRIVATE and actor.user_id != agent.owner_user_id:
        raise PermissionDenied(
            "ROLE_TOO_WEAK",
            f"agent {agent.name} is private: only {agent.owner_user_id} says who else may wake it",
            {"owner": agent.owner_user_id},
        )
