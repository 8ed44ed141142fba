"""CheckInvocable: may these principals wake these agents now?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reveille_heartbeat.domain.invocability import Question, first_failure
from reveille_heartbeat.domain.targets import Target
from reveille_heartbeat.domain.values import Agent, Refusal, Workspace
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_agent, to_workspace
from reveille_heartbeat.usecases.agents.targets import read_targets
from reveille_runtime.db import Database


@dataclass(frozen=True, slots=True)
class Verdict:
    """The first failing check, or none; and the agent where it is known to the asker."""

    refusal: Refusal | None
    agent: Agent | None


@dataclass(frozen=True, slots=True)
class _Facts:
    """What a question is judged by."""

    workspace: Workspace | None
    target: Target
    project_open: bool = False


class CheckInvocable:
    """Answers a batch in one snapshot."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def __call__(self, questions: Sequence[Question]) -> list[Verdict]:
        """Give one answer per question, in order."""
        found = await self._plain(questions) or await self._whole(questions)
        return [
            Verdict(
                first_failure(each, facts.workspace, facts.target, project_open=facts.project_open),
                facts.target.agent,
            )
            for each, facts in zip(questions, found, strict=True)
        ]

    async def _plain(self, questions: Sequence[Question]) -> list[_Facts] | None:
        """Read in one statement what most go by; None where that is not all of it."""
        if any(each.squad_id is not None or each.project_id is not None for each in questions):
            return None
        async with self._db.session() as tx:
            rows = await tx.fetch(
                Q["find_agents_in_workspaces"],
                [each.workspace_id for each in questions],
                [each.agent_id for each in questions],
            )
        if any(row["manager_agent_id"] is not None for row in rows):
            # Those above an agent are to be read in the snapshot that it is read in.
            return None
        return [
            _Facts(
                None if row["workspace_id"] is None else to_workspace(row),
                Target(None if row["agent_id"] is None else to_agent(row)),
            )
            for row in rows
        ]

    async def _whole(self, questions: Sequence[Question]) -> list[_Facts]:
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
        return [
            _Facts(
                space_of.get(each.workspace_id),
                targets.of(each.workspace_id, each.agent_id, each.squad_id),
                (each.workspace_id, each.project_id) in open_projects,
            )
            for each in questions
        ]
