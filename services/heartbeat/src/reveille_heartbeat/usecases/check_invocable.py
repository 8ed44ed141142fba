"""CheckInvocable: may these principals wake these agents now?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reveille_heartbeat.domain.invocability import Question, first_failure
from reveille_heartbeat.domain.values import Agent, Refusal
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_agent, to_workspace
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
        async with self._db.transaction(isolation="repeatable_read", readonly=True) as tx:
            spaces = await tx.fetch(
                Q["find_workspaces"], sorted({each.workspace_id for each in questions})
            )
            agents = await tx.fetch(Q["find_agents"], sorted({each.agent_id for each in questions}))
        space_of = {row["workspace_id"]: to_workspace(row) for row in spaces}
        agent_of = {row["agent_id"]: to_agent(row) for row in agents}
        verdicts = []
        for question in questions:
            agent = agent_of.get(question.agent_id)
            if agent is not None and agent.workspace_id != question.workspace_id:
                agent = None
            refusal = first_failure(question, space_of.get(question.workspace_id), agent)
            verdicts.append(Verdict(refusal, agent))
        return verdicts
