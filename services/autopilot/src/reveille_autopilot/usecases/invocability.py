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
    try:
        return await ask_outright(heartbeat, questions)
    except grpc.aio.AioRpcError as error:
        _log.warning(
            "Whether agents may be woken cannot be told.",
            action="admit.undecidable",
            questions=len(set(questions)),
            cause=from_rpc_error(error).message,
        )
        return {}


async def ask_outright(heartbeat: Heartbeat, questions: Sequence[Question]) -> Answers:
    """Ask the same, and raise heartbeat's error: for who has to know whether it passes."""
    different = list(dict.fromkeys(questions))
    if not different:
        return {}
    response = await heartbeat.agents.CheckInvocable(
        pb.CheckInvocableRequest(questions=[_message(each) for each in different])
    )
    return {
        question: Invocable(
            reason_name(answer.reason),
            answer.message,
            answer.owner_user_id or None,
            UUID(answer.agent_id) if answer.agent_id else None,
        )
        for question, answer in zip(different, response.answers, strict=True)
    }


class Inquiry:
    """What one batch asks heartbeat: the likely while its rules are read, the rest afterwards.

    Likely is what the same subjects had to ask last time. An answer counts for exactly the question
    it was given to; it is older than the rules by no more than the time it took to read them.
    """

    def __init__(self, heartbeat: Heartbeat, last: dict[Subject, Question]) -> None:
        self._heartbeat = heartbeat
        self._last = last
        self._foreseen: set[Question] = set()
        self._call: asyncio.Task[Answers] | None = None

    def __enter__(self) -> Inquiry:
        return self

    def __exit__(self, *_: object) -> None:
        # What nobody needed, nobody waits for.
        if self._call is not None and not self._call.cancel() and not self._call.cancelled():
            self._call.exception()

    def foresee(self, subjects: Iterable[Subject]) -> None:
        """Ask ahead."""
        self._foreseen = {self._last[each] for each in subjects if each in self._last}
        if self._foreseen:
            self._call = asyncio.create_task(ask(self._heartbeat, list(self._foreseen)))

    async def answers(
        self, judged: Iterable[Subject], asked: Sequence[tuple[Subject, Question]]
    ) -> Answers:
        """Give the answers that are needed; what stayed open is not asked again."""
        for each in judged:
            self._last.pop(each, None)
        if len(self._last) + len(asked) > _REMEMBERED:
            self._last.clear()
        self._last.update(asked)
        needed = {question for _, question in asked}
        rest = ask(self._heartbeat, [each for each in needed if each not in self._foreseen])
        if self._call is None or needed.isdisjoint(self._foreseen):
            return await rest
        ahead, more = await asyncio.gather(self._call, rest)
        return ahead | more


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
