"""Heartbeat's part of the gate: may this principal wake this agent now? Asked by the batch."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
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
# More rules than are busy at a time; what is forgotten is only asked later.
_REMEMBERED = 4096
# A trigger and a rule, as an occurrence names them.
Subject = tuple[UUID | None, UUID | None]
Answers = dict["Question", Invocable]
# What was asked ahead, and the answers.
Foreseen = asyncio.Task[tuple[set["Question"], Answers]]


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


async def ask(heartbeat: Heartbeat, questions: Sequence[Question]) -> Answers:
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


class Foresight:
    """Asks while the rules are still being read: what their occurrences had to ask last time.

    An answer counts for exactly the question it was given to. It was asked for after the occurrence
    came, so it is as fresh as one that had waited for the rules.
    """

    def __init__(self, heartbeat: Heartbeat) -> None:
        self._heartbeat = heartbeat
        self._last: dict[Subject, Question] = {}

    def begin(self, subjects: Iterable[Subject]) -> Foreseen:
        """Ask what can be foreseen; whoever begins either settles it or cancels the task."""
        likely = {self._last[each] for each in subjects if each in self._last}
        return asyncio.create_task(self._asked(likely))

    async def settle(
        self,
        begun: Foreseen,
        subjects: Iterable[Subject],
        asked: Sequence[tuple[Subject, Question]],
    ) -> Answers:
        """Give the answers to the questions that there are; asks what was not foreseen.

        What stayed open is not asked again.
        """
        for each in subjects:
            self._last.pop(each, None)
        if len(self._last) + len(asked) > _REMEMBERED:
            self._last.clear()
        self._last.update(asked)
        foreseen, answers = await begun
        rest = [question for _, question in asked if question not in foreseen]
        return answers | await ask(self._heartbeat, rest)

    async def _asked(self, likely: set[Question]) -> tuple[set[Question], Answers]:
        return likely, await ask(self._heartbeat, list(likely))


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
