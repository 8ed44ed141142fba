"""A heartbeat replica of a test, callers of every kind, and agents that are small scripts."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import grpc
import pytest
from google.protobuf.struct_pb2 import Struct

from reveille.events.v1 import event_service_pb2 as events_pb
from reveille.events.v1.event_service_pb2_grpc import EventServiceStub
from reveille.explain.v1.explain_service_pb2_grpc import ExplainServiceStub
from reveille.heartbeat.v1 import agent_pb2, issue_pb2, run_pb2, squad_pb2, wakeup_pb2
from reveille.heartbeat.v1 import workspace_replica_service_pb2 as workspace_pb
from reveille.heartbeat.v1.agent_pb2_grpc import AgentServiceStub
from reveille.heartbeat.v1.issue_pb2_grpc import IssueServiceStub
from reveille.heartbeat.v1.run_pb2_grpc import RunServiceStub
from reveille.heartbeat.v1.wakeup_pb2_grpc import WakeupServiceStub
from reveille.heartbeat.v1.workspace_replica_service_pb2_grpc import WorkspaceReplicaServiceStub
from reveille_runtime.access import Role
from reveille_runtime.client import Channels, stream
from reveille_runtime.errors import DomainError
from reveille_runtime.interceptors.deadline import DEFAULT_TIMEOUT
from reveille_runtime.rpc_errors import as_domain_errors
from reveille_runtime.telemetry import Telemetry
from reveille_testkit.rpc import Keyring
from reveille_testkit.waiting import eventually

OWNER, MEMBER = "olga", "max"
QUICK: dict[str, Any] = {
    "claim_interval": 0.1,
    "sweep_interval": 0.1,
    "recovery_interval": 0.1,
    "lease_duration": 3.0,
    "lease_interval": 0.3,
    "kill_grace": 1.0,
    "drain_grace": 3.0,
}
OPEN_WAKEUPS = frozenset(
    {
        wakeup_pb2.WAKEUP_STATE_QUEUED,
        wakeup_pb2.WAKEUP_STATE_DEFERRED,
        wakeup_pb2.WAKEUP_STATE_CLAIMED,
        wakeup_pb2.WAKEUP_STATE_COALESCED,
    }
)


class Client:
    """Calls one heartbeat server in anyone's name."""

    def __init__(self, address: str, keys: Keyring, timeout: float = DEFAULT_TIMEOUT) -> None:
        self.address = address
        self.keys = keys
        self._timeout = timeout
        self._channels: dict[str, Channels] = {}

    def channel(self, token: str) -> grpc.aio.Channel:
        """Give a channel that calls with this token."""
        if token not in self._channels:
            self._channels[token] = Channels(
                {"server": self.address},
                telemetry=Telemetry.off(),
                token=lambda: token,
                default_timeout=self._timeout,
            )
        return self._channels[token].get("server")

    def autopilot(self) -> grpc.aio.Channel:
        """Call as the one service that makes occurrence keys."""
        return self.channel(self.keys.service("autopilot"))

    def user(self, user_id: str, workspace_id: UUID | None, role: Role = Role.MEMBER) -> Any:
        """Call as a member."""
        roles = {} if workspace_id is None else {workspace_id: role}
        return self.channel(self.keys.user(user_id, roles))

    async def close(self) -> None:
        """Close every channel."""
        for channels in self._channels.values():
            await channels.close()


class World:
    """A workspace with its agents, seen through one client."""

    def __init__(self, client: Client, folder: Path, workspace_id: UUID | None = None) -> None:
        self.client = client
        self.folder = folder
        self.workspace_id = workspace_id or uuid4()
        service = client.autopilot()
        self.agents: Any = AgentServiceStub(client.user(OWNER, self.workspace_id))
        self.agents_as_service: Any = AgentServiceStub(service)
        self.issues: Any = IssueServiceStub(service)
        self.wakeups: Any = WakeupServiceStub(service)
        self.runs: Any = RunServiceStub(service)
        self.events: Any = EventServiceStub(service)
        self.explain: Any = ExplainServiceStub(service)

    async def put(self, revision: int = 1, prefix: str = "ABC", status: str = "active") -> None:
        """Tell heartbeat of the workspace."""
        await WorkspaceReplicaServiceStub(self.client.autopilot()).PutWorkspace(
            workspace_pb.PutWorkspaceRequest(
                workspace_id=str(self.workspace_id),
                issue_prefix=prefix,
                default_responsible_user_id=OWNER,
                revision=revision,
                status=workspace_pb.WorkspaceStatus.Value(f"WORKSPACE_STATUS_{status.upper()}"),
            )
        )

    async def agent(
        self, name: str = "echo", adapter: str = "echo", config: Any = None, **more: Any
    ) -> agent_pb2.Agent:
        """Make an agent."""
        settings = Struct()
        settings.update(config or {})
        made = await self.agents.CreateAgent(
            agent_pb2.CreateAgentRequest(
                workspace_id=str(self.workspace_id),
                name=name,
                adapter=adapter,
                adapter_config=settings,
                **more,
            )
        )
        agent: agent_pb2.Agent = made.agent
        return agent

    async def script(self, code: str, name: str = "script", **more: Any) -> agent_pb2.Agent:
        """Make an agent of the process adapter that runs a Python script."""
        path = self.folder / f"{name}.py"
        path.write_text(code, encoding="utf-8")
        config = {"command": [sys.executable, "-S", str(path)], **more.pop("config", {})}
        return await self.agent(name, "process", config, **more)

    async def squad(
        self, name: str, leader: agent_pb2.Agent, members: Any = (), **more: Any
    ) -> squad_pb2.Squad:
        """Make a squad."""
        made = await self.agents.CreateSquad(
            squad_pb2.CreateSquadRequest(
                workspace_id=str(self.workspace_id),
                name=name,
                leader_agent_id=leader.agent_id,
                member_agent_ids=members,
                **more,
            )
        )
        squad: squad_pb2.Squad = made.squad
        return squad

    async def move_squad(self, verb: str, squad: squad_pb2.Squad, **more: Any) -> squad_pb2.Squad:
        """Pause, resume or archive a squad."""
        request = getattr(squad_pb2, f"{verb}SquadRequest")(squad_id=squad.squad_id, **more)
        moved: squad_pb2.Squad = (await getattr(self.agents, f"{verb}Squad")(request)).squad
        return moved

    def wish(self, agent: agent_pb2.Agent, key: str = "", **more: Any) -> wakeup_pb2.Wakeup:
        """Describe a wish as autopilot sends it."""
        given: dict[str, Any] = {
            "workspace_id": str(self.workspace_id),
            "agent_id": agent.agent_id,
            "source": wakeup_pb2.WAKEUP_SOURCE_AUTOMATION,
            "reason": "autopilot_run",
            "title": "Look at it",
            "prompt": "Please look.",
            "origin": wakeup_pb2.Origin(occurrence_key=key, accountable_user_id=OWNER),
        }
        return wakeup_pb2.Wakeup(**(given | more))

    async def enqueue(self, *wishes: wakeup_pb2.Wakeup) -> list[wakeup_pb2.WakeupResult]:
        """Send wishes."""
        answer = await self.wakeups.EnqueueWakeups(wakeup_pb2.EnqueueWakeupsRequest(wakeups=wishes))
        return list(answer.results)

    async def wake(
        self, agent: agent_pb2.Agent, key: str = "", **more: Any
    ) -> wakeup_pb2.WakeupResult:
        """Send one wish."""
        (result,) = await self.enqueue(self.wish(agent, key, **more))
        return result

    async def issue(
        self, agent: agent_pb2.Agent, key: str = "", **more: Any
    ) -> issue_pb2.CreateIssueResponse:
        """Make an issue as autopilot does."""
        given: dict[str, Any] = {
            "workspace_id": str(self.workspace_id),
            "title": "Fix it",
            "description": "It is broken.",
            "assignee_agent_id": agent.agent_id,
            "origin": wakeup_pb2.Origin(occurrence_key=key, accountable_user_id=OWNER),
        }
        request = issue_pb2.CreateIssueRequest(**(given | more))
        made: issue_pb2.CreateIssueResponse = await self.issues.CreateIssue(request)
        return made

    async def cancel(self, key: str) -> wakeup_pb2.CancellationResult:
        """Cancel what a key has made."""
        answer = await self.wakeups.CancelWakeups(
            wakeup_pb2.CancelWakeupsRequest(
                cancellations=[
                    wakeup_pb2.OccurrenceCancellation(
                        workspace_id=str(self.workspace_id), occurrence_key=key, user_id=MEMBER
                    )
                ]
            )
        )
        result: wakeup_pb2.CancellationResult = answer.results[0]
        return result

    async def wakeup(self, wakeup_id: str) -> wakeup_pb2.WakeupRecord:
        """Read a wakeup."""
        answer = await self.wakeups.GetWakeup(wakeup_pb2.GetWakeupRequest(wakeup_id=wakeup_id))
        wakeup: wakeup_pb2.WakeupRecord = answer.wakeup
        return wakeup

    async def settled(self, wakeup_id: str, timeout: float = 20.0) -> wakeup_pb2.WakeupRecord:
        """Wait for a wakeup's outcome."""
        return await eventually(
            lambda: self.wakeup(wakeup_id),
            f"wakeup {wakeup_id} is settled",
            until=lambda wakeup: wakeup.state not in OPEN_WAKEUPS,
            timeout=timeout,
        )

    async def attempts(self, wakeup_id: str) -> list[run_pb2.HeartbeatRun]:
        """List a wakeup's attempts, oldest first."""
        answer = await self.runs.ListRuns(
            run_pb2.ListRunsRequest(workspace_id=str(self.workspace_id), wakeup_id=wakeup_id)
        )
        return sorted(answer.runs, key=lambda run: run.attempt)

    async def run(self, run_id: str) -> run_pb2.HeartbeatRun:
        """Read an attempt."""
        answer = await self.runs.GetRun(run_pb2.GetRunRequest(run_id=run_id))
        run: run_pb2.HeartbeatRun = answer.run
        return run

    async def log(self, run_id: str, stream: Any = run_pb2.LOG_STREAM_STDOUT) -> str:
        """Read a whole stream."""
        answer = await self.runs.ReadRunLog(
            run_pb2.ReadRunLogRequest(run_id=run_id, stream=stream, limit=1 << 20)
        )
        chunk: bytes = answer.chunk
        return chunk.decode()

    async def get_issue(self, issue_id: str) -> issue_pb2.Issue:
        """Read an issue."""
        answer = await self.issues.GetIssue(issue_pb2.GetIssueRequest(issue_id=issue_id))
        issue: issue_pb2.Issue = answer.issue
        return issue


async def refused(call: Any) -> DomainError:
    """Give the error that a call answers with."""
    with pytest.raises(DomainError) as caught, as_domain_errors():
        await call
    return caught.value


@contextlib.asynccontextmanager
async def events_of(world: World, kind: str) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
    """Watch the feed from now on; each call waits for the next event, and gives what it tells."""
    request = events_pb.WatchEventsRequest(types=[kind])
    async with stream(world.events.WatchEvents(request)) as messages:
        at = aiter(messages)
        await anext(at)

        async def told() -> Any:
            message = await anext(at)
            while not message.HasField("event"):
                message = await anext(at)
            return json.loads(message.event.payload)

        yield told


async def waiting_for_locks(rows: asyncpg.Connection[asyncpg.Record], count: int) -> None:
    """Wait until so many others of this database wait for a lock."""
    await eventually(
        lambda: rows.fetchval(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        ),
        f"{count} wait for a lock",
        until=lambda seen: seen >= count,
    )


def marker(folder: Path, name: str = "ran") -> str:
    """Python code with which an agent leaves a line that it ran."""
    return (
        "import os, pathlib\n"
        f"with open({str(folder / name)!r}, 'a') as f:\n"
        "    f.write(os.environ['REVEILLE_RUN_ID'] + '\\n')\n"
    )


def ran(folder: Path, name: str = "ran") -> list[str]:
    """List the attempts whose agent ran."""
    path = folder / name
    return path.read_text(encoding="utf-8").split() if path.exists() else []


ANSWER = """
import json, os, pathlib
payload = json.loads(pathlib.Path(os.environ["REVEILLE_PAYLOAD_FILE"]).read_text())
print("woken by", payload["wake"]["reason"], flush=True)
pathlib.Path(os.environ["REVEILLE_RESULT_FILE"]).write_text(json.dumps({
    "summary": "done: " + payload["wake"]["title"],
    "result": {"body": payload["payload"].get("body")},
    "issue_status": "done" if payload["issue"] else None,
}))
"""
