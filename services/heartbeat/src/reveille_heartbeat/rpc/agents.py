"""AgentService."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from reveille.heartbeat.v1 import agent_pb2 as pb
from reveille.heartbeat.v1.agent_pb2_grpc import AgentServiceServicer
from reveille_heartbeat.adapters.registry import Registry
from reveille_heartbeat.domain.invocability import Question
from reveille_heartbeat.domain.values import InvocationRule
from reveille_heartbeat.rpc import parse, show
from reveille_heartbeat.usecases.check_invocable import CheckInvocable, Verdict
from reveille_heartbeat.usecases.create_agent import CreateAgent, NewAgent
from reveille_heartbeat.usecases.reading import Reader
from reveille_runtime.access import current_actor
from reveille_runtime.ids import new_id
from reveille_runtime.paging import page_token, read_page
from reveille_runtime.reasons import reason_value
from reveille_runtime.validation import Violations

RUN_TIMEOUT = timedelta(hours=1)
IDLE_TIMEOUT = timedelta(minutes=15)
_MAX_USERS = 1_000


class AgentServicer(AgentServiceServicer):
    """Serves agents."""

    def __init__(
        self, create: CreateAgent, check: CheckInvocable, reader: Reader, registry: Registry
    ) -> None:
        self._create = create
        self._check = check
        self._reader = reader
        self._registry = registry

    async def CreateAgent(
        self, request: pb.CreateAgentRequest, context: Any
    ) -> pb.CreateAgentResponse:
        """Create an agent; the caller owns it."""
        actor = current_actor()
        found = Violations()
        new = NewAgent(
            agent_id=new_id(),
            runtime_id=new_id(),
            workspace_id=found.uuid("workspace_id", request.workspace_id),
            name=found.text("name", request.name, minimum=1, maximum=100),
            adapter=found.text("adapter", request.adapter, minimum=1, maximum=100),
            adapter_config=parse.settings(found, "adapter_config", request.adapter_config),
            owner_user_id=actor.subject,
            invocation_rule=found.enum(
                "invocation_rule",
                request.invocation_rule or pb.INVOCATION_RULE_WORKSPACE,
                show.INVOCATION_RULES,
            ),
            invocation_user_ids=_users(found, request),
            max_concurrent_runs=found.integer(
                "max_concurrent_runs", request.max_concurrent_runs or 1, minimum=1, maximum=50
            ),
            run_timeout=parse.limit(
                found, "run_timeout", request, request.run_timeout, RUN_TIMEOUT
            ),
            idle_timeout=parse.limit(
                found, "idle_timeout", request, request.idle_timeout, IDLE_TIMEOUT
            ),
            repeatable=parse.repeatable(actor, "CreateAgent", request, request.request_id),
        )
        if new.adapter:
            for problem in self._registry.check(new.adapter, new.adapter_config):
                found.add(problem.field, problem.description)
        found.check()
        actor.require_member(new.workspace_id)
        return pb.CreateAgentResponse(agent=show.agent(await self._create(new)))

    async def GetAgent(self, request: pb.GetAgentRequest, context: Any) -> pb.GetAgentResponse:
        """Read an agent."""
        agent_id = parse.one_id("agent_id", request.agent_id)
        found = await self._reader.agent(current_actor(), agent_id)
        return pb.GetAgentResponse(agent=show.agent(found))

    async def ListAgents(
        self, request: pb.ListAgentsRequest, context: Any
    ) -> pb.ListAgentsResponse:
        """List a workspace's agents by name."""
        workspace_id = parse.one_id("workspace_id", request.workspace_id)
        query = ("ListAgents", workspace_id)
        page = read_page(request.page_size, request.page_token, query)
        listed = await self._reader.agents(current_actor(), workspace_id, page)
        return pb.ListAgentsResponse(
            agents=[show.agent(each) for each in listed.rows],
            next_page_token=page_token([listed.rows[-1].name], query) if listed.more else "",
        )

    async def CheckInvocable(
        self, request: pb.CheckInvocableRequest, context: Any
    ) -> pb.CheckInvocableResponse:
        """Answer whether principals may wake agents now."""
        found = Violations()
        parse.batch(found, "questions", request.questions, request.ByteSize())
        questions = [
            Question(
                workspace_id=found.uuid(f"questions[{at}].workspace_id", each.workspace_id),
                agent_id=found.optional_uuid(f"questions[{at}].agent_id", each.agent_id),
                squad_id=found.optional_uuid(f"questions[{at}].squad_id", each.squad_id),
                project_id=found.optional_uuid(f"questions[{at}].project_id", each.project_id),
                principal_user_id=each.principal_user_id,
                principal_is_member=each.principal_is_member,
                runtime_must_be_online=each.runtime_must_be_online,
            )
            for at, each in enumerate(request.questions)
        ]
        for at, each in enumerate(request.questions):
            if bool(each.agent_id) == bool(each.squad_id):
                found.add(f"questions[{at}].agent_id", "give this or a squad_id, and not both")
        found.check()
        verdicts = await self._check(questions)
        return pb.CheckInvocableResponse(answers=[_answer(each) for each in verdicts])


def _answer(verdict: Verdict) -> pb.InvocableAnswer:
    refusal = verdict.refusal
    return pb.InvocableAnswer(
        reason=reason_value(None if refusal is None else refusal.reason.value),
        message="" if refusal is None else refusal.message,
        owner_user_id="" if verdict.agent is None else verdict.agent.owner_user_id,
        agent_id="" if verdict.agent is None else str(verdict.agent.agent_id),
    )


def _users(found: Violations, request: pb.CreateAgentRequest) -> tuple[str, ...]:
    users = tuple(
        found.text(f"invocation_user_ids[{at}]", user, minimum=1, maximum=128)
        for at, user in enumerate(request.invocation_user_ids)
    )
    listed = show.INVOCATION_RULES.get(request.invocation_rule) is InvocationRule.MEMBERS
    if users and not listed:
        found.add("invocation_user_ids", "must be empty unless the rule lists members")
    if len(users) > _MAX_USERS:
        found.add("invocation_user_ids", f"has more than {_MAX_USERS} entries")
    return users
