"""What an operator, a sender and an onlooker do to a running stack, in a few words each."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import string
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Struct

from reveille.autopilot.v1 import autopilot_pb2, run_pb2
from reveille.autopilot.v1 import autopilot_service_pb2 as autopilot
from reveille.autopilot.v1 import workspace_service_pb2 as workspace
from reveille.autopilot.v1.autopilot_service_pb2_grpc import AutopilotServiceStub
from reveille.autopilot.v1.workspace_service_pb2_grpc import WorkspaceServiceStub
from reveille.explain.v1 import explain_service_pb2
from reveille.explain.v1.explain_service_pb2_grpc import ExplainServiceStub
from reveille.heartbeat.v1 import agent_pb2
from reveille.heartbeat.v1 import run_pb2 as agent_run_pb2
from reveille.heartbeat.v1.agent_pb2_grpc import AgentServiceStub
from reveille.heartbeat.v1.issue_pb2_grpc import IssueServiceStub
from reveille.heartbeat.v1.run_pb2_grpc import RunServiceStub
from reveille.heartbeat.v1.wakeup_pb2_grpc import WakeupServiceStub
from reveille.scheduler.v1.scheduler_service_pb2_grpc import SchedulerServiceStub
from reveille.webhook.v1 import delivery_service_pb2 as deliveries
from reveille.webhook.v1.delivery_service_pb2_grpc import DeliveryServiceStub
from reveille_testkit.stack import TestStack
from reveille_testkit.waiting import eventually

if TYPE_CHECKING:
    # It exists for type checkers only.
    from reveille.explain.v1.explain_service_pb2_grpc import ExplainServiceAsyncStub

from .http import Answer, example_body, github_headers, post

ROOT = Path(__file__).parents[2]
TRIAGE = ROOT / "examples" / "agents" / "triage.py"
MARKING = Path(__file__).with_name("marking_agent.py")
SECRET = "a-signing-secret-of-e2e"
EVERY_MINUTE = "* * * * *"
TERMINAL = frozenset(
    {
        run_pb2.RUN_STATE_COMPLETED,
        run_pb2.RUN_STATE_FAILED,
        run_pb2.RUN_STATE_SKIPPED,
        run_pb2.RUN_STATE_CANCELLED,
    }
)
RUN_ONLY = autopilot_pb2.EXECUTION_MODE_RUN_ONLY
CREATE_ISSUE = autopilot_pb2.EXECUTION_MODE_CREATE_ISSUE

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Hook:
    """A webhook trigger, with what only its creator knows."""

    trigger_id: str
    path: str
    secret: str | None


class Client:
    """The stubs of one caller; a token of None sends none."""

    def __init__(self, stack: TestStack, token: str | None) -> None:
        self._stack = stack
        self._token = token
        self._channels: dict[str, grpc.aio.Channel] = {}
        self.workspaces = WorkspaceServiceStub(self.channel("autopilot"))
        self.autopilots = AutopilotServiceStub(self.channel("autopilot"))
        self.deliveries = DeliveryServiceStub(self.channel("webhook-gateway"))
        self.agents = AgentServiceStub(self.channel("heartbeat"))
        self.issues = IssueServiceStub(self.channel("heartbeat"))
        self.wakeups = WakeupServiceStub(self.channel("heartbeat"))
        self.agent_runs = RunServiceStub(self.channel("heartbeat"))
        self.scheduler = SchedulerServiceStub(self.channel("scheduler"))

    def channel(self, service: str) -> grpc.aio.Channel:
        """Return the channel to a service; it survives the service's restarts."""
        if service not in self._channels:
            stages = [] if self._token is None else [_Bearer(self._token)]
            self._channels[service] = grpc.aio.insecure_channel(
                self._stack.address(service),
                options=[
                    ("grpc.initial_reconnect_backoff_ms", 50),
                    ("grpc.min_reconnect_backoff_ms", 50),
                    ("grpc.max_reconnect_backoff_ms", 200),
                    ("grpc.enable_http_proxy", 0),
                ],
                interceptors=stages,
            )
        return self._channels[service]

    def explain(self, service: str) -> ExplainServiceAsyncStub:
        """Return a service's ExplainService."""
        return ExplainServiceStub(self.channel(service))

    @property
    def credentials(self) -> tuple[tuple[str, str], ...]:
        """The metadata of a streaming call; the others get it by themselves."""
        return () if self._token is None else (("authorization", f"Bearer {self._token}"),)

    async def close(self) -> None:
        """Close the channels."""
        for channel in self._channels.values():
            await channel.close()


class _Bearer(grpc.aio.UnaryUnaryClientInterceptor):
    """Sends the token; waits for a service that is just starting."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        metadata = grpc.aio.Metadata(*(details.metadata or ()))
        metadata.add("authorization", f"Bearer {self._token}")
        return await continuation(
            details._replace(metadata=metadata, wait_for_ready=True, timeout=details.timeout or 30),
            request,
        )


class World:
    """A stack with an operator's client, a database connection and a folder for agents."""

    def __init__(
        self,
        stack: TestStack,
        client: Client,
        database: asyncpg.Connection[asyncpg.Record],
        folder: Path,
    ) -> None:
        self.stack = stack
        self.client = client
        self.database = database
        self.folder = folder

    # What an operator sets up.

    async def create_workspace(self, owner: str = "") -> str:
        """Create a workspace, with a prefix nobody else has."""
        prefix = "".join(random.SystemRandom().choices(string.ascii_uppercase, k=8))
        answer = await self.client.workspaces.CreateWorkspace(
            workspace.CreateWorkspaceRequest(
                name="End to end", issue_prefix=prefix, owner_user_id=owner
            )
        )
        return answer.workspace.workspace_id

    async def create_agent(
        self,
        workspace_id: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        run_timeout: int = 3600,
    ) -> str:
        """Create a process agent."""
        config = ParseDict({"command": list(command), "env": dict(env or {})}, Struct())
        request = agent_pb2.CreateAgentRequest(
            workspace_id=workspace_id,
            name=f"agent-{next(_numbers)}",
            adapter="process",
            adapter_config=config,
            max_concurrent_runs=8,
            run_timeout=Duration(seconds=run_timeout),
            idle_timeout=Duration(),
        )

        async def create() -> str:
            # Heartbeat gets its copy of a new workspace a moment after it was made.
            try:
                return (await self.client.agents.CreateAgent(request)).agent.agent_id
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.NOT_FOUND:
                    return ""
                raise

        return await eventually(create, "the workspace is known to heartbeat")

    async def create_triage_agent(self, workspace_id: str) -> str:
        """Create the agent of our examples."""
        return await self.create_agent(workspace_id, [sys.executable, str(TRIAGE)])

    async def create_marking_agent(
        self, workspace_id: str, *, gate: Path | None = None, run_timeout: int = 3600
    ) -> tuple[str, Path]:
        """Create an agent that leaves a line per start, and return the file it leaves them in.

        With a gate (a FIFO), it then waits until somebody writes there.
        """
        marks = self.folder / f"marks-{next(_numbers)}"
        marks.touch()
        env = {"MARKS": str(marks), **({} if gate is None else {"GATE": str(gate)})}
        command = [sys.executable, "-I", "-S", str(MARKING)]
        agent_id = await self.create_agent(workspace_id, command, env=env, run_timeout=run_timeout)
        return agent_id, marks

    async def create_autopilot(
        self, workspace_id: str, agent_id: str, mode: autopilot_pb2.ExecutionMode.ValueType
    ) -> str:
        """Create a rule."""
        answer = await self.client.autopilots.CreateAutopilot(
            autopilot.CreateAutopilotRequest(
                workspace_id=workspace_id,
                title="Triage what comes in",
                prompt="Read the payload and say what it is about.",
                issue_title_template="Triage of {{date}}" if mode == CREATE_ISSUE else "",
                agent_id=agent_id,
                execution_mode=mode,
            )
        )
        return answer.autopilot.autopilot_id

    async def create_hook(
        self,
        autopilot_id: str,
        *,
        secret: str | None = SECRET,
        filters: Sequence[autopilot_pb2.EventFilter] = (),
        max_body_bytes: int = 0,
    ) -> Hook:
        """Create a github webhook trigger, with a signing secret unless told otherwise."""
        answer = await self.client.autopilots.CreateTrigger(
            autopilot.CreateTriggerRequest(
                autopilot_id=autopilot_id,
                webhook=autopilot_pb2.WebhookTrigger(
                    provider="github", event_filters=filters, max_body_bytes=max_body_bytes
                ),
            )
        )
        trigger_id = answer.trigger.trigger_id
        await self.synced(trigger_id)
        if secret is not None:
            await self.client.autopilots.AddSigningSecret(
                autopilot.AddSigningSecretRequest(trigger_id=trigger_id, secret=secret.encode())
            )
        return Hook(trigger_id, answer.hook_path, secret)

    async def create_schedule(self, autopilot_id: str, cron: str = EVERY_MINUTE) -> str:
        """Create a cron trigger."""
        answer = await self.client.autopilots.CreateTrigger(
            autopilot.CreateTriggerRequest(
                autopilot_id=autopilot_id, schedule=autopilot_pb2.ScheduleTrigger(cron=cron)
            )
        )
        return answer.trigger.trigger_id

    async def delete_trigger(self, trigger_id: str) -> None:
        """Delete a trigger, so that it fires no more."""
        await self.client.autopilots.DeleteTrigger(
            autopilot.DeleteTriggerRequest(trigger_id=trigger_id)
        )

    async def synced(self, trigger_id: str) -> None:
        """Wait until the gateway or the scheduler knows a trigger as it is."""

        async def look() -> bool:
            answer = await self.client.autopilots.GetTrigger(
                autopilot.GetTriggerRequest(trigger_id=trigger_id)
            )
            return answer.trigger.synced

        await eventually(look, "the trigger is known where it fires")

    # What sets a rule off.

    async def post_github(
        self,
        hook: Hook,
        body: bytes | None = None,
        *,
        event: str = "issues",
        delivery: str = "",
        secret: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Post as GitHub does, by default our example with a true signature."""
        body = example_body() if body is None else body
        sent = github_headers(body, secret or hook.secret, event=event, delivery=delivery)
        return await self.post(hook.path, body, {**sent, **(headers or {})})

    async def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Post anything anywhere on the gateway."""
        return await post(self.stack.address("webhook-gateway", "http"), path, body, headers)

    async def run_now(self, autopilot_id: str, *, request_id: str = "") -> run_pb2.AutopilotRun:
        """Run a rule by hand."""
        answer = await self.client.autopilots.RunAutopilot(
            autopilot.RunAutopilotRequest(
                autopilot_id=autopilot_id,
                payload=b'{"asked": "by hand"}',
                request_id=request_id,
            )
        )
        return answer.run

    # What came of it.

    async def run(self, run_id: str) -> run_pb2.AutopilotRun:
        """Read a run."""
        return (await self.client.autopilots.GetRun(autopilot.GetRunRequest(run_id=run_id))).run

    async def runs_of(self, workspace_id: str, trigger_id: str) -> list[run_pb2.AutopilotRun]:
        """List the runs of a trigger, newest first."""
        answer = await self.client.autopilots.ListRuns(
            autopilot.ListRunsRequest(workspace_id=workspace_id, trigger_id=trigger_id)
        )
        return list(answer.runs)

    async def outcome(self, run_id: str, timeout: float = 30.0) -> run_pb2.AutopilotRun:
        """Wait for a run's outcome, across restarts of the service that answers."""
        deadline = asyncio.get_running_loop().time() + timeout
        run = run_pb2.AutopilotRun(run_id=run_id)
        while run.state not in TERMINAL:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                told = await self.told_of(run_id)
                raise AssertionError(f"no outcome within {timeout:g} s\n{run}\n{told}")
            request = autopilot.WaitRunRequest(run_id=run_id, timeout=Duration(seconds=2))
            try:
                run = (await self.client.autopilots.WaitRun(request, timeout=left + 5)).run
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
        return run

    async def completed(self, run_id: str, timeout: float = 30.0) -> run_pb2.AutopilotRun:
        """Wait for a run's outcome, which has to be success."""
        run = await self.outcome(run_id, timeout)
        assert run.state == run_pb2.RUN_STATE_COMPLETED, run
        return run

    async def delivery(self, delivery_id: str) -> deliveries.Delivery:
        """Read a delivery."""
        answer = await self.client.deliveries.GetDelivery(
            deliveries.GetDeliveryRequest(delivery_id=delivery_id)
        )
        return answer.delivery

    async def finished_delivery(self, delivery_id: str) -> deliveries.Delivery:
        """Wait until a delivery has reached its end."""
        return await eventually(
            lambda: self.delivery(delivery_id),
            "the delivery reaches its end",
            until=lambda delivery: delivery.HasField("finish_time"),
        )

    async def attempts(self, workspace_id: str, wakeup_id: str) -> list[agent_run_pb2.HeartbeatRun]:
        """List the attempts made for a wakeup, first first."""
        answer = await self.client.agent_runs.ListRuns(
            agent_run_pb2.ListRunsRequest(workspace_id=workspace_id, wakeup_id=wakeup_id)
        )
        return sorted(answer.runs, key=lambda run: run.attempt)

    async def answer_of(self, run: run_pb2.AutopilotRun) -> dict[str, Any]:
        """Return what the agent answered for a run, as heartbeat keeps it."""
        (attempt,) = await self.attempts(run.workspace_id, run.wakeup_id)
        answer = await self.client.agent_runs.GetRun(
            agent_run_pb2.GetRunRequest(run_id=attempt.run_id)
        )
        document: dict[str, Any] = json.loads(answer.run.result)
        return document

    async def output(self, run_id: str) -> str:
        """Read all that an attempt wrote to its standard output."""

        async def look() -> agent_run_pb2.ReadRunLogResponse:
            return await self.client.agent_runs.ReadRunLog(
                agent_run_pb2.ReadRunLogRequest(run_id=run_id)
            )

        answer = await eventually(look, "the log is whole", until=lambda seen: seen.complete)
        return answer.chunk.decode()

    async def count(self, table: str, where: str = "true", *values: object) -> int:
        """Count the rows of any table."""
        found: int = await self.database.fetchval(
            f"SELECT count(*) FROM {table} WHERE {where}", *values
        )
        return found

    async def told_of(self, subject: str) -> str:
        """Say what each service tells of an id, for the message of a failed assertion."""
        lines = []
        for service in ("webhook-gateway", "scheduler", "autopilot", "heartbeat"):
            stub = self.client.explain(service)
            try:
                answer = await stub.Explain(
                    explain_service_pb2.ExplainRequest(id=subject), timeout=5
                )
            except grpc.aio.AioRpcError as error:
                lines.append(f"{service}: {error.code().name}")
            else:
                lines += [f"{service}: {each.text}" for each in answer.findings]
        return "\n".join(lines)


def marks_in(file: Path) -> list[str]:
    """Return the lines that the starts of an agent have left, the id of their run each."""
    return file.read_text(encoding="utf-8").split()
