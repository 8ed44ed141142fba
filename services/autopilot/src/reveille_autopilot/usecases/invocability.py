"""Heartbeat's part of the gate: may this principal wake this agent now? Asked by the batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import grpc

from reveille.heartbeat.v1 import agent_pb2 as pb
from reveille_autopilot.domain.gate import Invocable
from reveille_autopilot.usecases.peers import Heartbeat
from reveille_runtime import logs
from reveille_runtime.reasons import reason_name
from reveille_runtime.rpc_errors import from_rpc_error

_log = logs.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Question:
    """What heartbeat judges an agent by; equal questions are asked once."""

    workspace_id: UUID
    agent_id: UUID | None
    squad_id: UUID | None
    project_id: UUID | None
    principal_user_id: str
    principal_is_member: bool
    runtime_must_be_online: bool


async def ask(heartbeat: Heartbeat, questions: Sequence[Question]) -> dict[Question, Invocable]:
    """Ask all that differ in one call; an empty answer means that it cannot be told now.

    Whatever goes wrong here leaves the question open: an error is never a pass and never a skip.
    """
    different = list(dict.fromkeys(questions))
    if not different:
        return {}
    try:
        response = await heartbeat.agents.CheckInvocable(
            pb.CheckInvocableRequest(questions=[_message(each) for each in different])
        )
    except grpc.aio.AioRpcError as error:
        _log.warning(
            "Whether agents may be woken cannot be told.",
            action="admit.undecidable",
            questions=len(different),
            cause=from_rpc_error(error).message,
        )
        return {}
    return {
        question: Invocable(
            reason_name(answer.reason),
            answer.message,
            answer.owner_user_id or None,
            UUID(answer.agent_id) if answer.agent_id else None,
        )
        for question, answer in zip(different, response.answers, strict=True)
    }


def _message(question: Question) -> pb.InvocableQuestion:
    return pb.InvocableQuestion(
        workspace_id=str(question.workspace_id),
        agent_id=_text(question.agent_id),
        squad_id=_text(question.squad_id),
        project_id=_text(question.project_id),
        principal_user_id=question.principal_user_id,
        principal_is_member=question.principal_is_member,
        runtime_must_be_online=question.runtime_must_be_online,
    )


def _text(some_id: UUID | None) -> str:
    return "" if some_id is None else str(some_id)
