"""Who shall work for a rule: only heartbeat knows, and it is asked before the rule is stored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from uuid import UUID

import grpc

from reveille.heartbeat.v1 import agent_pb2, squad_pb2
from reveille_autopilot.domain.models import Autopilot
from reveille_autopilot.domain.states import AutopilotStatus, Reason
from reveille_autopilot.usecases.invocability import Question, ask
from reveille_autopilot.usecases.peers import Heartbeat, dependency_away
from reveille_runtime.errors import (
    FailedPrecondition,
    NotFound,
    PermissionDenied,
    Unavailable,
)
from reveille_runtime.rpc_errors import from_rpc_error


class Targets:
    """Refuses, while somebody is there to be told, what the gate would refuse ever after."""

    def __init__(self, heartbeat: Heartbeat) -> None:
        self._heartbeat = heartbeat

    async def require_usable(self, rule: Autopilot, editor: str) -> None:
        """Let a rule pass whose agent or squad is of this workspace and can work.

        A paused rule may wait for its runtime. Whether the editor may wake the agent is asked of a
        squad's leader only; that of an agent is judged at each run.

        Raises:
            NotFound: the workspace has no such agent or squad.
            FailedPrecondition: it is archived, or has no runtime.
            PermissionDenied: the squad's leader is not the editor's to wake.
            Unavailable: heartbeat cannot be asked.
        """
        if rule.agent_id is not None:
            await self._require(rule, "agent", rule.agent_id, self._agent)
        if rule.squad_id is not None:
            await self._require(rule, "squad", rule.squad_id, self._squad)
        question = Question(
            rule.workspace_id,
            rule.agent_id,
            rule.squad_id,
            rule.project_id,
            principal_user_id=editor,
            principal_is_member=True,
            runtime_must_be_online=False,
        )
        answer = (await ask(self._heartbeat, [question])).get(question)
        if answer is None:
            raise Unavailable(
                "DEPENDENCY_UNAVAILABLE",
                "whether the agent can work cannot be told now",
                {"service": "heartbeat"},
                retry_after=1.0,
            )
        details = {"reason": answer.reason or "", "autopilot_id": str(rule.id)}
        match answer.reason:
            case None:
                return
            case Reason.INVOCATION_NOT_ALLOWED:
                if rule.squad_id is not None:
                    raise PermissionDenied("INVOCATION_NOT_ALLOWED", answer.message, details)
            case Reason.AGENT_RUNTIME_REQUIRED:
                if rule.status is AutopilotStatus.ACTIVE:
                    raise FailedPrecondition("WRONG_STATE", answer.message, details)
            case Reason.TARGET_UNAVAILABLE:
                raise FailedPrecondition("WRONG_STATE", answer.message, details)
            case Reason.PROJECT_UNAVAILABLE:
                raise _no("project", rule.project_id)
            case _:
                # Something that passes, such as a runtime that is away.
                return

    async def _require(
        self, rule: Autopilot, kind: str, some_id: UUID, read: Callable[[str], Awaitable[str]]
    ) -> None:
        """Look whether a thing exists in the rule's workspace; `read` gives its own."""
        try:
            workspace_id = await read(str(some_id))
        except grpc.aio.AioRpcError as error:
            problem = from_rpc_error(error)
            if isinstance(problem, NotFound):
                raise _no(kind, some_id) from error
            raise dependency_away("heartbeat", problem) from error
        if workspace_id != str(rule.workspace_id):
            raise _no(kind, some_id)

    async def _agent(self, agent_id: str) -> str:
        request = agent_pb2.GetAgentRequest(agent_id=agent_id)
        return (await self._heartbeat.agents.GetAgent(request)).agent.workspace_id

    async def _squad(self, squad_id: str) -> str:
        request = squad_pb2.GetSquadRequest(squad_id=squad_id)
        return (await self._heartbeat.agents.GetSquad(request)).squad.workspace_id


def _no(kind: str, some_id: UUID | None) -> NotFound:
    return NotFound(
        "NOT_FOUND",
        f"{kind}_id: the workspace has no {kind} {some_id}",
        {"kind": kind, "field": f"{kind}_id", "id": str(some_id)},
    )
