"""The neighbours of the autopilot service, played by a real server that keeps their promises."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from reveille.common.v1 import reason_pb2
from reveille.events.v1 import event_service_pb2 as event_pb
from reveille.events.v1.event_service_pb2_grpc import (
    EventServiceServicer,
    add_EventServiceServicer_to_server,
)
from reveille.heartbeat.v1 import agent_pb2 as agent_pb
from reveille.heartbeat.v1 import issue_pb2 as issue_pb
from reveille.heartbeat.v1 import run_pb2 as run_pb
from reveille.heartbeat.v1 import squad_pb2 as squad_pb
from reveille.heartbeat.v1 import wakeup_pb2 as wake_pb
from reveille.heartbeat.v1 import workspace_replica_service_pb2 as replica_pb
from reveille.heartbeat.v1.agent_pb2_grpc import (
    AgentServiceServicer,
    add_AgentServiceServicer_to_server,
)
from reveille.heartbeat.v1.issue_pb2_grpc import (
    IssueServiceServicer,
    add_IssueServiceServicer_to_server,
)
from reveille.heartbeat.v1.run_pb2_grpc import RunServiceServicer, add_RunServiceServicer_to_server
from reveille.heartbeat.v1.wakeup_pb2_grpc import (
    WakeupServiceServicer,
    add_WakeupServiceServicer_to_server,
)
from reveille.heartbeat.v1.workspace_replica_service_pb2_grpc import (
    WorkspaceReplicaServiceServicer,
    add_WorkspaceReplicaServiceServicer_to_server,
)
from reveille.scheduler.v1 import job_pb2 as job_pb
from reveille.scheduler.v1 import scheduler_service_pb2 as scheduler_pb
from reveille.scheduler.v1.scheduler_service_pb2_grpc import (
    SchedulerServiceServicer,
    add_SchedulerServiceServicer_to_server,
)
from reveille.webhook.v1 import endpoint_service_pb2 as endpoint_pb
from reveille.webhook.v1.endpoint_service_pb2_grpc import (
    EndpointServiceServicer,
    add_EndpointServiceServicer_to_server,
)
from reveille_runtime.errors import DomainError, InvalidArgument, NotFound, OutOfRange, Unavailable
from reveille_runtime.feed import Cursor
from reveille_testkit.rpc import RpcRig

PROVIDERS = ("generic", "github")


@dataclass
class Made:
    """What one occurrence key has made: at most one of these per key, whatever happens."""

    key: str
    workspace_id: str
    wakeup_id: str = ""
    issue_id: str = ""
    state: wake_pb.WakeupState.ValueType = wake_pb.WAKEUP_STATE_QUEUED
    reason: reason_pb2.Reason.ValueType = reason_pb2.REASON_UNSPECIFIED
    issue_status: issue_pb.IssueStatus.ValueType = issue_pb.ISSUE_STATUS_TODO
    result: dict[str, Any] | None = None
    wakeup: wake_pb.Wakeup | None = None
    issue: issue_pb.CreateIssueRequest | None = None


@dataclass
class Gate:
    """Stops calls of one method, before or after their effect, until the test lets them go."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)

    async def passed(self) -> None:
        self.reached.set()
        await self.release.wait()


@dataclass
class World:
    """Everything the neighbours know, and what the test wants of them."""

    agents: dict[str, tuple[str, str]] = field(default_factory=dict)
    squads: dict[str, squad_pb.Squad] = field(default_factory=dict)
    # Agents that are archived, have no runtime, or belong to their owner alone.
    refusals: dict[str, reason_pb2.Reason.ValueType] = field(default_factory=dict)
    # Agents that nobody but their owner may wake.
    private: set[str] = field(default_factory=set)
    made: dict[str, Made] = field(default_factory=dict)
    scopes: dict[str, job_pb.Scope] = field(default_factory=dict)
    jobs: dict[str, job_pb.Job] = field(default_factory=dict)
    endpoints: dict[str, endpoint_pb.Endpoint] = field(default_factory=dict)
    tombstones: set[str] = field(default_factory=set)
    secrets: dict[str, dict[str, endpoint_pb.AddSecretRequest]] = field(default_factory=dict)
    workspaces: dict[str, replica_pb.PutWorkspaceRequest] = field(default_factory=dict)
    questions: list[agent_pb.InvocableQuestion] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    # Methods, or services, that are away just now.
    away: set[str] = field(default_factory=set)
    # Agents that questions about fail at, and squads that cannot be read: not away, but broken.
    broken: set[str] = field(default_factory=set)
    # Methods that take effect, but whose answers never arrive.
    mute: set[str] = field(default_factory=set)
    before: dict[str, Gate] = field(default_factory=dict)
    after: dict[str, Gate] = field(default_factory=dict)
    # Titles for which the whole call is refused, as a request that heartbeat cannot accept.
    refuse_titles: set[str] = field(default_factory=set)
    refusal: reason_pb2.Reason.ValueType = reason_pb2.REASON_UNSPECIFIED
    enqueue_state: wake_pb.WakeupState.ValueType = wake_pb.WAKEUP_STATE_QUEUED
    enqueue_reason: reason_pb2.Reason.ValueType = reason_pb2.REASON_UNSPECIFIED
    feed: list[event_pb.Event] = field(default_factory=list)
    # Positions before this one are not kept any more.
    feed_floor: int = 0
    feed_news: asyncio.Condition = field(default_factory=asyncio.Condition)
    watchers: int = 0

    def add_agent(self, workspace_id: UUID | str, owner: str = "agent-owner") -> UUID:
        agent_id = uuid4()
        self.agents[str(agent_id)] = (str(workspace_id), owner)
        return agent_id

    def add_squad(self, workspace_id: UUID | str, leader: UUID) -> UUID:
        squad_id = uuid4()
        self.squads[str(squad_id)] = squad_pb.Squad(
            squad_id=str(squad_id),
            workspace_id=str(workspace_id),
            leader_agent_id=str(leader),
            state=squad_pb.SQUAD_STATE_ACTIVE,
        )
        return squad_id

    def target_event(
        self, kind: str, workspace_id: UUID | str, subject_id: UUID | str, **facts: Any
    ) -> event_pb.Event:
        """Tell that an agent, a squad or a runtime changed."""
        return event_pb.Event(
            type=kind,
            workspace_id=str(workspace_id),
            subject_id=str(subject_id),
            payload=json.dumps(facts).encode(),
        )

    async def enter(self, service: str, method: str) -> None:
        self.calls[method] += 1
        if (gate := self.before.get(method)) is not None:
            await gate.passed()
        if self.away & {service, method}:
            raise Unavailable("NOT_SERVING", f"{service} is away")

    def fail_at(self, some_id: str) -> None:
        if some_id in self.broken:
            raise DomainError("INTERNAL", "heartbeat has a bug")

    async def leave(self, method: str) -> None:
        if (gate := self.after.get(method)) is not None:
            await gate.passed()
        if method in self.mute:
            raise Unavailable("NOT_SERVING", "the answer is lost")

    def only(self) -> Made:
        (made,) = self.made.values()
        return made

    async def emit(self, *events: event_pb.Event) -> None:
        """Write events to the feed, in this order."""
        async with self.feed_news:
            for event in events:
                written = event_pb.Event()
                written.CopyFrom(event)
                written.cursor = Cursor(1, len(self.feed) + 1, 0).encode()
                self.feed.append(written)
            self.feed_news.notify_all()

    def settled(
        self, made: Made, state: wake_pb.WakeupState.ValueType, **facts: Any
    ) -> event_pb.Event:
        """End a wakeup, and give the event that heartbeat writes in the same transaction."""
        made.state = state
        made.result = facts.get("result")
        name = wake_pb.WakeupState.Name(state).removeprefix("WAKEUP_STATE_").lower()
        payload = {
            "wakeup_id": made.wakeup_id,
            "state": name,
            "issue_id": made.issue_id or None,
            "reason": None,
            "message": "",
            "result": None,
        } | facts
        return event_pb.Event(
            type="wakeup.settled",
            workspace_id=made.workspace_id,
            occurrence_key=made.key,
            subject_id=made.wakeup_id,
            payload=json.dumps(payload).encode(),
        )

    def moved(self, made: Made, status: issue_pb.IssueStatus.ValueType) -> event_pb.Event:
        """Move an issue, and give its event."""
        made.issue_status = status
        name = issue_pb.IssueStatus.Name(status).removeprefix("ISSUE_STATUS_").lower()
        return event_pb.Event(
            type="issue.updated",
            workspace_id=made.workspace_id,
            occurrence_key=made.key,
            subject_id=made.issue_id,
            payload=json.dumps({"issue_id": made.issue_id, "status": name}).encode(),
        )

    def wakeup(self, wakeup: wake_pb.Wakeup) -> wake_pb.WakeupResult:
        key = wakeup.origin.occurrence_key
        made = self.made.get(key)
        existed = made is not None
        if made is None:
            made = Made(key, wakeup.workspace_id, str(uuid4()), state=self.enqueue_state)
            made.reason = self.enqueue_reason
            made.wakeup = wakeup
            self.made[key] = made
        return _result(made, existed=existed)


def _result(made: Made, *, existed: bool) -> wake_pb.WakeupResult:
    return wake_pb.WakeupResult(
        wakeup_id=made.wakeup_id,
        state=made.state,
        reason=made.reason,
        existed=existed,
    )


class Wakeups(WakeupServiceServicer):
    def __init__(self, world: World) -> None:
        self.world = world

    async def EnqueueWakeups(
        self, request: wake_pb.EnqueueWakeupsRequest, context: Any
    ) -> wake_pb.EnqueueWakeupsResponse:
        await self.world.enter("heartbeat", "EnqueueWakeups")
        if self.world.refuse_titles & {wakeup.title for wakeup in request.wakeups}:
            raise InvalidArgument.of("wakeups", "one of them is refused", "INVALID_FIELD")
        results = [self.world.wakeup(wakeup) for wakeup in request.wakeups]
        await self.world.leave("EnqueueWakeups")
        return wake_pb.EnqueueWakeupsResponse(results=results)

    async def CancelWakeups(
        self, request: wake_pb.CancelWakeupsRequest, context: Any
    ) -> wake_pb.CancelWakeupsResponse:
        await self.world.enter("heartbeat", "CancelWakeups")
        results = [self._cancel(each) for each in request.cancellations]
        await self.world.leave("CancelWakeups")
        return wake_pb.CancelWakeupsResponse(results=results)

    def _cancel(self, each: wake_pb.OccurrenceCancellation) -> wake_pb.CancellationResult:
        made = self.world.made.get(each.occurrence_key)
        recorded = made is None
        if made is None:
            made = Made(each.occurrence_key, each.workspace_id)
            self.world.made[each.occurrence_key] = made
        if made.state == wake_pb.WAKEUP_STATE_QUEUED:
            made.state = wake_pb.WAKEUP_STATE_CANCELLED
        # An open issue is cancelled whatever its wakeup came to; one that is done stays done.
        if made.issue_status != issue_pb.ISSUE_STATUS_DONE:
            made.issue_status = issue_pb.ISSUE_STATUS_CANCELLED
        return wake_pb.CancellationResult(
            occurrence_key=each.occurrence_key,
            state=made.state,
            wakeup_id=made.wakeup_id,
            issue_id=made.issue_id,
            recorded=recorded,
        )

    async def GetWakeup(
        self, request: wake_pb.GetWakeupRequest, context: Any
    ) -> wake_pb.GetWakeupResponse:
        await self.world.enter("heartbeat", "GetWakeup")
        for made in self.world.made.values():
            if made.wakeup_id == request.wakeup_id:
                return wake_pb.GetWakeupResponse(
                    wakeup=wake_pb.WakeupRecord(
                        wakeup_id=made.wakeup_id,
                        workspace_id=made.workspace_id,
                        state=made.state,
                        reason=made.reason,
                        issue_id=made.issue_id,
                        run_id=made.wakeup_id if made.result else "",
                        occurrence_key=made.key,
                    )
                )
        raise NotFound("NOT_FOUND", "no such wakeup")


class Issues(IssueServiceServicer):
    def __init__(self, world: World) -> None:
        self.world = world

    async def CreateIssue(
        self, request: issue_pb.CreateIssueRequest, context: Any
    ) -> issue_pb.CreateIssueResponse:
        await self.world.enter("heartbeat", "CreateIssue")
        key = request.origin.occurrence_key
        made = self.world.made.get(key)
        existed = made is not None
        if made is None:
            made = Made(key, request.workspace_id, str(uuid4()), str(uuid4()), issue=request)
            self.world.made[key] = made
        await self.world.leave("CreateIssue")
        response = issue_pb.CreateIssueResponse(wakeup=_result(made, existed=existed))
        if made.issue_id:
            response.issue.issue_id = made.issue_id
            response.issue.status = made.issue_status
        return response

    async def GetIssue(
        self, request: issue_pb.GetIssueRequest, context: Any
    ) -> issue_pb.GetIssueResponse:
        await self.world.enter("heartbeat", "GetIssue")
        for made in self.world.made.values():
            if made.issue_id and made.issue_id == request.issue_id:
                return issue_pb.GetIssueResponse(
                    issue=issue_pb.Issue(issue_id=made.issue_id, status=made.issue_status)
                )
        raise NotFound("NOT_FOUND", "no such issue")


class Agents(AgentServiceServicer):
    def __init__(self, world: World) -> None:
        self.world = world

    async def GetAgent(
        self, request: agent_pb.GetAgentRequest, context: Any
    ) -> agent_pb.GetAgentResponse:
        await self.world.enter("heartbeat", "GetAgent")
        if request.agent_id not in self.world.agents:
            raise NotFound("NOT_FOUND", "no such agent")
        workspace_id, owner = self.world.agents[request.agent_id]
        return agent_pb.GetAgentResponse(
            agent=agent_pb.Agent(
                agent_id=request.agent_id, workspace_id=workspace_id, owner_user_id=owner
            )
        )

    async def GetSquad(
        self, request: squad_pb.GetSquadRequest, context: Any
    ) -> squad_pb.GetSquadResponse:
        await self.world.enter("heartbeat", "GetSquad")
        self.world.fail_at(request.squad_id)
        if request.squad_id not in self.world.squads:
            raise NotFound("NOT_FOUND", "no such squad")
        return squad_pb.GetSquadResponse(squad=self.world.squads[request.squad_id])

    async def CheckInvocable(
        self, request: agent_pb.CheckInvocableRequest, context: Any
    ) -> agent_pb.CheckInvocableResponse:
        await self.world.enter("heartbeat", "CheckInvocable")
        self.world.questions.extend(request.questions)
        answers = []
        for question in request.questions:
            self.world.fail_at(question.agent_id)
            agent_id, refusal = question.agent_id, self.world.refusal
            if question.squad_id:
                squad = self.world.squads.get(question.squad_id)
                agent_id = "" if squad is None else squad.leader_agent_id
                if squad is None or squad.state == squad_pb.SQUAD_STATE_ARCHIVED:
                    refusal = reason_pb2.REASON_TARGET_UNAVAILABLE
            _, owner = self.world.agents.get(agent_id, ("", ""))
            if agent_id in self.world.private and question.principal_user_id not in {"", owner}:
                refusal = reason_pb2.REASON_INVOCATION_NOT_ALLOWED
            answers.append(
                agent_pb.InvocableAnswer(
                    reason=refusal or self.world.refusals.get(agent_id, refusal),
                    message="as the test says",
                    owner_user_id=owner,
                    agent_id=agent_id,
                )
            )
        await self.world.leave("CheckInvocable")
        return agent_pb.CheckInvocableResponse(answers=answers)


class AgentRuns(RunServiceServicer):
    def __init__(self, world: World) -> None:
        self.world = world

    async def GetRun(self, request: run_pb.GetRunRequest, context: Any) -> run_pb.GetRunResponse:
        await self.world.enter("heartbeat", "GetRun")
        for made in self.world.made.values():
            if made.wakeup_id == request.run_id and made.result is not None:
                return run_pb.GetRunResponse(
                    run=run_pb.HeartbeatRun(
                        run_id=request.run_id,
                        summary=made.result.get("summary", ""),
                        result=json.dumps(made.result).encode(),
                    )
                )
        raise NotFound("NOT_FOUND", "no such run")


class Replicas(WorkspaceReplicaServiceServicer):
    def __init__(self, world: World) -> None:
        self.world = world

    async def PutWorkspace(
        self, request: replica_pb.PutWorkspaceRequest, context: Any
    ) -> replica_pb.PutWorkspaceResponse:
        await self.world.enter("heartbeat", "PutWorkspace")
        self.world.workspaces[request.workspace_id] = request
        return replica_pb.PutWorkspaceResponse()


class Events(EventServiceServicer):
    def __init__(self, world: World) -> None:
        self.world = world

    async def WatchEvents(
        self, request: event_pb.WatchEventsRequest, context: Any
    ) -> AsyncIterator[event_pb.WatchEventsResponse]:
        await self.world.enter("heartbeat", "WatchEvents")
        if not request.cursor:
            position = len(self.world.feed)
            head = Cursor(1, position, 0).encode()
            yield event_pb.WatchEventsResponse(bookmark=event_pb.Bookmark(cursor=head))
        else:
            position = Cursor.decode(request.cursor).xid
            if position < self.world.feed_floor:
                raise OutOfRange("CURSOR_EXPIRED", "that is not kept any more")
        self.world.watchers += 1
        try:
            while True:
                async with self.world.feed_news:
                    while len(self.world.feed) <= position:
                        await self.world.feed_news.wait()
                events = self.world.feed[position:]
                position += len(events)
                for event in events:
                    yield event_pb.WatchEventsResponse(event=event)
        finally:
            self.world.watchers -= 1


class Scheduler(SchedulerServiceServicer):
    def __init__(self, world: World) -> None:
        self.world = world

    async def RegisterJob(
        self, request: scheduler_pb.RegisterJobRequest, context: Any
    ) -> scheduler_pb.RegisterJobResponse:
        await self.world.enter("scheduler", "RegisterJob")
        self.world.jobs[request.job.name] = request.job
        return scheduler_pb.RegisterJobResponse(job=request.job)

    async def UpsertScopes(
        self, request: scheduler_pb.UpsertScopesRequest, context: Any
    ) -> scheduler_pb.UpsertScopesResponse:
        await self.world.enter("scheduler", "UpsertScopes")
        for scope in request.scopes:
            if scope.job_name not in self.world.jobs:
                raise NotFound("NOT_FOUND", "no such job")
            known = self.world.scopes.get(scope.id)
            if known is None or known.revision < scope.revision:
                self.world.scopes[scope.id] = scope
        return scheduler_pb.UpsertScopesResponse(scopes=request.scopes)

    async def DeleteScopes(
        self, request: scheduler_pb.DeleteScopesRequest, context: Any
    ) -> scheduler_pb.DeleteScopesResponse:
        await self.world.enter("scheduler", "DeleteScopes")
        for key in request.scopes:
            self.world.scopes.pop(key.id, None)
            self.world.tombstones.add(key.id)
        return scheduler_pb.DeleteScopesResponse()


class Endpoints(EndpointServiceServicer):
    def __init__(self, world: World) -> None:
        self.world = world

    async def PutEndpoint(
        self, request: endpoint_pb.PutEndpointRequest, context: Any
    ) -> endpoint_pb.PutEndpointResponse:
        await self.world.enter("webhook", "PutEndpoint")
        if request.endpoint.provider not in PROVIDERS:
            raise InvalidArgument.of("endpoint.provider", f"must be one of: {', '.join(PROVIDERS)}")
        self.world.endpoints[request.endpoint.endpoint_id] = request.endpoint
        return endpoint_pb.PutEndpointResponse()

    async def CheckEndpoint(
        self, request: endpoint_pb.CheckEndpointRequest, context: Any
    ) -> endpoint_pb.CheckEndpointResponse:
        await self.world.enter("webhook", "CheckEndpoint")
        if request.provider not in PROVIDERS:
            raise InvalidArgument.of("provider", f"must be one of: {', '.join(PROVIDERS)}")
        if request.options.rate_per_minute < 0:
            raise InvalidArgument.of("options.rate_per_minute", "must be from 0", "OUT_OF_BOUNDS")
        return endpoint_pb.CheckEndpointResponse()

    async def DeleteEndpoint(
        self, request: endpoint_pb.DeleteEndpointRequest, context: Any
    ) -> endpoint_pb.DeleteEndpointResponse:
        await self.world.enter("webhook", "DeleteEndpoint")
        self.world.endpoints.pop(request.endpoint_id, None)
        self.world.tombstones.add(request.endpoint_id)
        return endpoint_pb.DeleteEndpointResponse()

    async def AddSecret(
        self, request: endpoint_pb.AddSecretRequest, context: Any
    ) -> endpoint_pb.AddSecretResponse:
        await self.world.enter("webhook", "AddSecret")
        kept = self._of(request.endpoint_id)
        kept.setdefault(request.secret_id, request)
        await self.world.leave("AddSecret")
        return endpoint_pb.AddSecretResponse(secret=_shown(kept[request.secret_id]))

    async def RemoveSecret(
        self, request: endpoint_pb.RemoveSecretRequest, context: Any
    ) -> endpoint_pb.RemoveSecretResponse:
        await self.world.enter("webhook", "RemoveSecret")
        if self._of(request.endpoint_id).pop(request.secret_id, None) is None:
            raise NotFound("NOT_FOUND", "no such secret")
        await self.world.leave("RemoveSecret")
        return endpoint_pb.RemoveSecretResponse()

    async def ListSecrets(
        self, request: endpoint_pb.ListSecretsRequest, context: Any
    ) -> endpoint_pb.ListSecretsResponse:
        await self.world.enter("webhook", "ListSecrets")
        listed = _all_shown(self._of(request.endpoint_id).values())
        await self.world.leave("ListSecrets")
        return endpoint_pb.ListSecretsResponse(secrets=listed)

    def _of(self, endpoint_id: str) -> dict[str, endpoint_pb.AddSecretRequest]:
        if endpoint_id not in self.world.endpoints:
            raise NotFound("NOT_FOUND", "no such endpoint")
        return self.world.secrets.setdefault(endpoint_id, {})


def _all_shown(kept: Iterable[endpoint_pb.AddSecretRequest]) -> list[endpoint_pb.Secret]:
    return [_shown(each) for each in kept]


def _shown(added: endpoint_pb.AddSecretRequest) -> endpoint_pb.Secret:
    return endpoint_pb.Secret(secret_id=added.secret_id, hint=added.secret[-4:].decode())


def register(rig: RpcRig, world: World) -> None:
    """Serve all neighbours at one address."""

    def make(player: Any) -> Any:
        # The contracts' methods that autopilot never calls are not played.
        return player(world)

    rig.server.add(add_WakeupServiceServicer_to_server, make(Wakeups))
    rig.server.add(add_IssueServiceServicer_to_server, make(Issues))
    rig.server.add(add_AgentServiceServicer_to_server, make(Agents))
    rig.server.add(add_RunServiceServicer_to_server, make(AgentRuns))
    rig.server.add(add_WorkspaceReplicaServiceServicer_to_server, make(Replicas))
    rig.server.add(add_EventServiceServicer_to_server, make(Events))
    rig.server.add(add_SchedulerServiceServicer_to_server, make(Scheduler))
    rig.server.add(add_EndpointServiceServicer_to_server, make(Endpoints))
