"""One name for each thing: squads become their leaders, identifiers of issues their ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from reveille_heartbeat.domain.enqueue import TIMER_TASK
from reveille_heartbeat.domain.values import WakeupSource, Wish
from reveille_heartbeat.usecases.agents.targets import read_squads
from reveille_heartbeat.usecases.issues.issue_names import ids_of_identifiers
from reveille_runtime.db import Tx


async def normalise(tx: Tx, wishes: Sequence[Wish]) -> list[Wish]:
    """Give the same wishes, in order, so that two about the same thing say the same.

    What is not found stays as it came; a decision refuses it.
    """
    squads = await read_squads(tx, {each.squad_id for each in wishes if each.squad_id is not None})
    issues = await ids_of_identifiers(
        tx, {(each.workspace_id, each.issue_identifier) for each in wishes if each.issue_identifier}
    )
    normal = []
    for wish in wishes:
        changes: dict[str, Any] = {}
        if wish.squad_id is not None:
            squad = squads.get(wish.squad_id)
            if squad is not None and squad.workspace_id == wish.workspace_id:
                changes["agent_id"] = squad.leader_agent_id
        issue_id = wish.issue_id
        if wish.issue_identifier:
            issue_id = issues.get((wish.workspace_id, wish.issue_identifier))
            changes["issue_id"] = issue_id
        task_key = _task_key(wish, issue_id)
        if task_key != wish.task_key:
            changes["task_key"] = task_key
        normal.append(replace(wish, **changes) if changes else wish)
    return normal


def _task_key(wish: Wish, issue_id: UUID | None) -> str:
    """Say what keeps its conversation together: its own key, its issue, or that a timer made it."""
    if wish.task_key and wish.task_key.upper() != wish.issue_identifier:
        return wish.task_key
    if issue_id is not None:
        return str(issue_id)
    return TIMER_TASK if wish.source is WakeupSource.TIMER else wish.task_key
