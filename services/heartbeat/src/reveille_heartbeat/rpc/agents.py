"""AgentService: agents. Squads and runtimes are served by its bases."""

from __future__ import annotations

from typing import Any

from reveille.heartbeat.v1 import agent_pb2 as pb
from reveille_heartbeat.domain.invocability import Question
from reveille_heartbeat.rpc import parse, parse_agents
from reveille_heartbeat.rpc.pages import page_of
from reveille_heartbeat.rpc.runtimes import RuntimeCalls
from reveille_heartbeat.rpc.show_agents import agent as shown
from reveille_heartbeat.rpc.squads import SquadCalls
from reveille_heartbeat.usecases.agents.check_invocable import CheckInvocable, Verdict
from reveille_heartbeat.usecases.agents.create_agent import CreateAgent, NewAgent
from reveille_heartbeat.usecases.agents.move_agent import MoveAgent
from reveille_heartbeat.usecases.agents.runtimes import Runtimes
from reveille_heartbeat.usecases.agents.squads import Squads
from reveille_heartbeat.usecases.agents.update_agent import (
    CheckAdapter,
    UpdateAgent,
    judge,
    refuse_masks,
)
from reveille_heartbeat.usecases.reading import Reader
from reveille_runtime.access import current_actor
from reveille_runtime.ids import new_id
from reveille_runtime.paging import read_page
from reveille_runtime.reasons import reason_value
from reveille_runtime.validation import Violations


class AgentServicer(SquadCalls, RuntimeCalls):
    """Serves agents."""

    def __init__(
        self,
        create: CreateAgent,
        update: UpdateAgent,
        move: MoveAgent,
        check: CheckInvocable,
        check_adapter: CheckAdapter,
        reader: Reader,
        squads: Squads,
        runtimes: Runtimes,
    ) -> None:
        SquadCalls.__init__(self, squads)
        RuntimeCalls.__init__(self, runtimes)
        self._create = create
        self._update = update
        self._move = move
        self._check = check
        self._check_adapter = check_adapter
        self._reader = reader

    async def CreateAgent(
        self, request: pb.CreateAgentRequest, context: Any
    ) -> pb.CreateAgentResponse:
        """Create an agent; the caller owns it."""
        actor = current_actor()
        found = Violations()
        new = NewAgent(
            agent_id=new_id(),
            workspace_id=found.uuid("workspace_id", request.workspace_id),
            settings=parse_agents.settings(found, request, actor.subject),
            repeatable=parse.repeatable(actor, "CreateAgent", request, request.request_id),
        )
        judge(found, new.settings, self._check_adapter)
        refuse_masks(found, new.settings)
        found.check()
        actor.require_member(new.workspace_id)
        return pb.CreateAgentResponse(agent=shown(await self._create(new)))

    async def GetAgent(self, request: pb.GetAgentRequest, context: Any) -> pb.GetAgentResponse:
        """Read an agent."""
        agent_id = parse.one_id("agent_id", request.agent_id)
        found = await self._reader.agent(current_actor(), agent_id)
        return pb.GetAgentResponse(agent=shown(found))

    async def ListAgents(
        self, request: pb.ListAgentsRequest, context: Any
    ) -> pb.ListAgentsResponse:
        """List a workspace's agents by name."""
        workspace_id = parse.one_id("workspace_id", request.workspace_id)
        query = ("ListAgents", workspace_id)
        page = read_page(request.page_size, request.page_token, query)
        listed = await self._reader.agents(current_actor(), workspace_id, page)
        agents, token = page_of(listed, shown, lambda each: each.name, query)
        return pb.ListAgentsResponse(agents=agents, next_page_token=token)

    async def UpdateAgent(
        self, request: pb.UpdateAgentRequest, context: Any
    ) -> pb.UpdateAgentResponse:
        """Change what the mask names."""
        found = Violations()
        agent_id = found.uuid("agent.agent_id", request.agent.agent_id)
        edit = parse_agents.edit(found, request)
        found.check()
        after = await self._update(current_actor(), agent_id, edit, request.agent.etag)
        return pb.UpdateAgentResponse(agent=shown(after))

    async def PauseAgent(
        self, request: pb.PauseAgentRequest, context: Any
    ) -> pb.PauseAgentResponse:
        """Stop an agent until it is resumed."""
        found = Violations()
        agent_id = found.uuid("agent_id", request.agent_id)
        why = found.text("reason", request.reason, maximum=500)
        found.check()
        stopped = await self._move.pause(current_actor(), agent_id, why, request.etag)
        return pb.PauseAgentResponse(
            agent=shown(stopped.agent), cancelled_wakeups=stopped.cancelled
        )

    async def ResumeAgent(
        self, request: pb.ResumeAgentRequest, context: Any
    ) -> pb.ResumeAgentResponse:
        """Let an agent take work again."""
        agent_id = parse.one_id("agent_id", request.agent_id)
        agent = await self._move.resume(current_actor(), agent_id, request.etag)
        return pb.ResumeAgentResponse(agent=shown(agent))

    async def ArchiveAgent(
        self, request: pb.ArchiveAgentRequest, context: Any
    ) -> pb.ArchiveAgentResponse:
        """Stop an agent for ever."""
        agent_id = parse.one_id("agent_id", request.agent_id)
        stopped = await self._move.archive(current_actor(), agent_id, request.etag)
        return pb.ArchiveAgentResponse(
            agent=shown(stopped.agent), cancelled_wakeups=stopped.cancelled
        )

    async def CheckInvocable(
        self, request: pb.CheckInvocableRequest, context: Any
    ) -> pb.CheckInvocableResponse:
        """Answer whether principals may wake agents now."""
        found = Violations()
        parse.batch(found, "questions", request.questions, request.ByteSize())
        questions = [
            _question(found, f"questions[{at}]", each) for at, each in enumerate(request.questions)
        ]
        found.check()
        verdicts = await self._check(questions)
        return pb.CheckInvocableResponse(answers=[_answer(each) for each in verdicts])


def _question(found: Violations, field: str, message: pb.InvocableQuestion) -> Question:
    if bool(message.agent_id) == bool(message.squad_id):
        found.add(f"{field}.agent_id", "give this or a squad_id, and not both")
    return Question(
        workspace_id=found.uuid(f"{field}.workspace_id", message.workspace_id),
        agent_id=found.optional_uuid(f"{field}.agent_id", message.agent_id),
        squad_id=found.optional_uuid(f"{field}.squad_id", message.squad_id),
        project_id=found.optional_uuid(f"{field}.project_id", message.project_id),
        principal_user_id=message.principal_user_id,
        principal_is_member=message.principal_is_member,
        runtime_must_be_online=message.runtime_must_be_online,
    )


def _answer(verdict: Verdict) -> pb.InvocableAnswer:
    refusal = verdict.refusal
    return pb.InvocableAnswer(
        reason=reason_value(None if refusal is None else refusal.reason.value),
        message="" if refusal is None else refusal.message,
        owner_user_id="" if verdict.agent is None else verdict.agent.owner_user_id,
        agent_id="" if verdict.agent is None else str(verdict.agent.agent_id),
    )
