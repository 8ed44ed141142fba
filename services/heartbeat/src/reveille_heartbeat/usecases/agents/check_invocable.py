"""CheckInvocable: may these principals wake these agents now?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reveille_heartbeat.domain.invocability import Question, first_failure
from reveille_heartbeat.domain.values import Agent, Refusal
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_workspace
from reveille_heartbeat.usecases.agents.targets import read_targets
from reveille_runtime.db import Database


@dataclass(frozen=True, slots=True)
class Verdict:
    """The first failing check, or none; and the agent where it is known to the asker."""

    refusal: Refusal | None
    agent: Agent | None


class CheckInvocable:
    """Answers a batch in one snapshot."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def __call__(self, questions: Sequence[Question]) -> list[Verdict]:
        """Give one answer per question, in order."""
        projects = {each.project_id for each in questions if each.project_id is not None}
        async with self._db.transaction(isolation="repeatable_read", readonly=True) as tx:
            spaces = await tx.fetch(
                Q["find_workspaces"], sorted({each.workspace_id for each in questions})
            )
            targets = await read_targets(
                tx,
                {each.agent_id for each in questions if each.agent_id is not None},
                {each.squad_id for each in questions if each.squad_id is not None},
            )
            rows = await tx.fetch(Q["open_projects"], sorted(projects)) if projects else []
        space_of = {row["workspace_id"]: to_workspace(row) for row in spaces}
        open_projects = {(row["workspace_id"], row["project_id"]) for row in rows}
        verdicts = []
        for each in questions:
            target = targets.of(each.workspace_id, each.agent_id, each.squad_id)
            refusal = first_failure(
                each,
                space_of.get(each.workspace_id),
                target,
                project_open=(each.workspace_id, each.project_id) in open_projects,
            )
            verdicts.append(Verdict(refusal, target.agent))
        return verdicts
