"""What becomes of rules when runtimes, squads and agents change.

An event only says where to look: what is so now is asked of heartbeat, so that events that come
twice, late or in another order lead to the same. Nothing is put in force again by any of them.
A rule that cannot be judged or changed holds nobody up: the monitor looks at all of them again.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

import grpc

from reveille.events.v1 import event_service_pb2 as pb
from reveille.heartbeat.v1 import squad_pb2
from reveille_autopilot.domain.gate import Invocable
from reveille_autopilot.domain.models import Autopilot
from reveille_autopilot.domain.states import Reason
from reveille_autopilot.store import autopilots
from reveille_autopilot.usecases.downstream import optional_id
from reveille_autopilot.usecases.invocability import Answers, Question, ask_outright
from reveille_autopilot.usecases.peers import Heartbeat, dependency_away
from reveille_autopilot.usecases.system import SystemChanges
from reveille_runtime.db import Database, Tx
from reveille_runtime.errors import ResourceExhausted, Unavailable
from reveille_runtime.isolation import isolated
from reveille_runtime.rpc_errors import from_rpc_error
from reveille_runtime.sqlstate import is_transient
from reveille_runtime.validation import NIL

AGENT_ARCHIVED = "agent.archived"
SQUAD_UPDATED = "squad.updated"
SQUAD_ARCHIVED = "squad.archived"
RUNTIME_DELETED = "runtime.deleted"
TARGET_TYPES = (AGENT_ARCHIVED, SQUAD_UPDATED, SQUAD_ARCHIVED, RUNTIME_DELETED)
_PAGE = 200


@dataclass(frozen=True, slots=True)
class _Suspects:
    """Which rules to look at; neither agents nor squads means all."""

    workspace_id: UUID | None = None
    agents: tuple[UUID, ...] | None = None
    squads: tuple[UUID, ...] | None = None


class TargetFollower:
    """Pauses rules whose target cannot work any more; an archived squad's go to its leader."""

    def __init__(self, db: Database, heartbeat: Heartbeat, system: SystemChanges) -> None:
        self._db = db
        self._heartbeat = heartbeat
        self._system = system

    async def handle(self, events: Sequence[pb.Event]) -> None:
        """Look where the events say; repeating it changes nothing."""
        for event in events:
            if event.type in TARGET_TYPES:
                await self._look(await self._suspects(event))

    async def reconcile(self) -> None:
        """Look at all rules: the feed cannot tell what was missed.

        Raises:
            Unavailable: heartbeat cannot be asked just now.
        """
        await self._look(_Suspects())

    async def _suspects(self, event: pb.Event) -> _Suspects:
        workspace_id, subject = UUID(event.workspace_id), UUID(event.subject_id)
        if event.type in {SQUAD_UPDATED, SQUAD_ARCHIVED}:
            return _Suspects(workspace_id, (), (subject,))
        agents: tuple[UUID, ...] = (subject,)
        if event.type == RUNTIME_DELETED:
            agents = tuple(UUID(each) for each in json.loads(event.payload)["agent_ids"])
        # Any squad may be led by one of them.
        async with self._db.session() as tx:
            squads = await autopilots.squads_in_use(tx, workspace_id)
        return _Suspects(workspace_id, agents, tuple(squads))

    async def _look(self, suspects: _Suspects) -> None:
        after = NIL
        while True:
            async with self._db.session() as tx:
                rules = await autopilots.by_target(
                    tx,
                    suspects.workspace_id,
                    suspects.agents,
                    suspects.squads,
                    after,
                    _PAGE,
                )
            if rules:
                await self._judge(rules)
                after = rules[-1].id
            if len(rules) < _PAGE:
                break

    async def _judge(self, rules: Sequence[Autopilot]) -> None:
        answers = await self._answers(rules)
        for rule in rules:
            answer = answers.get(_question(rule))
            if answer is not None:
                with _apart("targets.change", autopilot_id=str(rule.id)):
                    await self._act(rule, answer)

    async def _act(self, rule: Autopilot, answer: Invocable) -> None:
        match answer.reason:
            case Reason.AGENT_RUNTIME_REQUIRED:
                await self._pause(rule, Reason.AGENT_RUNTIME_REQUIRED, answer.message)
            case Reason.TARGET_UNAVAILABLE:
                if not await self._hand_over(rule):
                    await self._pause(rule, Reason.TARGET_UNAVAILABLE, answer.message)
            case _:
                # It can work, or will again.
                return

    async def _answers(self, rules: Sequence[Autopilot]) -> Answers:
        """Ask about all in one call; where that is refused, about each: one may be to blame."""
        questions = list(dict.fromkeys(_question(rule) for rule in rules))
        answers: Answers = {}
        with _apart("targets.ask", questions=len(questions)):
            answers |= await ask_outright(self._heartbeat, questions)
        for each in [each for each in questions if each not in answers]:
            with _apart(
                "targets.ask_one", agent_id=str(each.agent_id), squad_id=str(each.squad_id)
            ):
                answers |= await ask_outright(self._heartbeat, [each])
        return answers

    async def _pause(self, seen: Autopilot, reason: Reason, message: str) -> None:
        async def same_target(_: Tx, rule: Autopilot) -> bool:
            return (rule.agent_id, rule.squad_id) == (seen.agent_id, seen.squad_id)

        await self._system.pause(seen.id, reason, message, same_target)

    async def _hand_over(self, rule: Autopilot) -> bool:
        """Give the rule of an archived squad to the agent that led it; False when there is none."""
        if rule.squad_id is None:
            return False
        leader = await self._leader_of_archived(rule.squad_id)
        if leader is None:
            return False
        await self._system.retarget(rule.id, rule.squad_id, leader)
        return True

    async def _leader_of_archived(self, squad_id: UUID) -> UUID | None:
        try:
            answer = await self._heartbeat.agents.GetSquad(
                squad_pb2.GetSquadRequest(squad_id=str(squad_id))
            )
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return None
            raise
        if answer.squad.state != squad_pb2.SQUAD_STATE_ARCHIVED:
            return None
        return optional_id(answer.squad.leader_agent_id)


@contextlib.contextmanager
def _apart(step: str, **facts: object) -> Iterator[None]:
    """Keep what goes wrong to where it did, unless it passes: then the look is made again."""
    passing: Exception | None = None
    with isolated(step, **facts):
        try:
            yield
        except grpc.aio.AioRpcError as error:
            problem = from_rpc_error(error)
            if not isinstance(problem, Unavailable | ResourceExhausted):
                raise
            passing = dependency_away("heartbeat", problem)
        except Exception as error:
            if not (isinstance(error, Unavailable) or is_transient(error)):
                raise
            passing = error
    if passing is not None:
        raise passing


def _question(rule: Autopilot) -> Question:
    """Ask about the target alone: not who may wake it, nor whether its runtime is away."""
    return Question(
        rule.workspace_id,
        rule.agent_id,
        rule.squad_id,
        project_id=None,
        principal_user_id="",
        principal_is_member=False,
        runtime_must_be_online=False,
    )
