"""An agent's settings on their way into its row: what they name has to be there.

`at` is where they lie in the request, for whoever has to be told of a field.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from reveille_heartbeat.domain.agents import AgentSettings
from reveille_heartbeat.domain.targets import Manager, broken_chain
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_manager
from reveille_runtime.db import Tx
from reveille_runtime.errors import AlreadyExists, InvalidArgument, NotFound


def columns(settings: AgentSettings) -> tuple[object, ...]:
    """Give the settings in the order of the table's columns."""
    policy = settings.heartbeat
    return (
        settings.name,
        settings.adapter,
        dict(settings.adapter_config),
        settings.owner_user_id,
        settings.invocation_rule.value,
        list(settings.invocation_user_ids),
        settings.max_concurrent_runs,
        settings.run_timeout,
        settings.idle_timeout,
        settings.start_limit,
        settings.manager_agent_id,
        settings.runtime_id,
        policy.timer_enabled,
        policy.timer_interval,
        policy.skip_timer_without_work,
        policy.wake_on_demand,
        policy.max_daily_runs,
        policy.max_daily_cost_cents,
        policy.cooldown,
        policy.max_turn_continuations,
        policy.max_turn_delay,
    )


async def resolve_runtime(
    tx: Tx,
    workspace_id: UUID,
    settings: AgentSettings,
    new_id: UUID,
    presence: timedelta,
    at: str = "",
) -> AgentSettings:
    """Put the runtime in place: the named one, kept from being deleted, or heartbeat's own.

    Raises:
        NotFound: the workspace has no such runtime.
    """
    if settings.runtime_id is None:
        runtime_id = await tx.fetchval(Q["ensure_local_runtime"], new_id, workspace_id, presence)
        return replace(settings, runtime_id=runtime_id)
    found = await tx.fetchval(Q["keep_runtime"], settings.runtime_id, workspace_id)
    if found is None:
        raise not_there("runtime", f"{at}runtime_id", settings.runtime_id)
    return settings


async def require_manager(
    tx: Tx, agent_id: UUID, workspace_id: UUID, manager_id: UUID | None, at: str = ""
) -> None:
    """Check the chain above an agent as it would be; under locks where it could change.

    Raises:
        NotFound: the workspace has no such agent. InvalidArgument: the chain would not hold.
    """
    if manager_id is None:
        return
    known = await read_chain(tx, manager_id)
    manager = known.get(manager_id)
    if manager is None or manager.workspace_id != workspace_id:
        raise not_there("agent", f"{at}manager_agent_id", manager_id)
    problem = broken_chain(agent_id, workspace_id, manager_id, known)
    if problem:
        raise InvalidArgument.of(f"{at}manager_agent_id", problem, "INVALID_FIELD")


async def read_chain(tx: Tx, agent_id: UUID) -> dict[UUID, Manager]:
    """Read an agent and everybody above it."""
    rows = await tx.fetch(Q["read_chain"], agent_id)
    return {row["agent_id"]: to_manager(row) for row in rows}


def name_taken(what: str, name: str) -> AlreadyExists:
    """Make the answer to a name that is in use."""
    return AlreadyExists(
        "ALREADY_EXISTS", f"the workspace has {what} called {name}", {"name": name}
    )


def not_there(kind: str, field: str, row_id: UUID) -> NotFound:
    """Make the answer to a field that names what the workspace does not have."""
    return NotFound(
        "NOT_FOUND",
        f"{field}: the workspace has no {kind} {row_id}",
        {"kind": kind, "field": field, "id": str(row_id)},
    )
