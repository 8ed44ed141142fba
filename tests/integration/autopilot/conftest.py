"""The autopilot service, wired as in production, over a real database and real sockets."""

from __future__ import annotations

import contextlib
import inspect
import json
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from tests.integration.autopilot.peers import World, register

from reveille.autopilot.v1 import autopilot_pb2 as rule_pb
from reveille.autopilot.v1 import autopilot_service_pb2 as pb
from reveille.autopilot.v1 import dispatch_service_pb2 as dispatch_pb
from reveille.autopilot.v1 import run_pb2 as run_pb
from reveille.autopilot.v1 import workspace_service_pb2 as workspace_pb
from reveille.autopilot.v1.autopilot_service_pb2_grpc import AutopilotServiceStub
from reveille.autopilot.v1.dispatch_service_pb2_grpc import DispatchServiceStub
from reveille.autopilot.v1.workspace_service_pb2_grpc import WorkspaceServiceStub
from reveille.common.v1.access_pb2 import ROLE_ADMIN, ROLE_MEMBER
from reveille.explain.v1.explain_service_pb2_grpc import ExplainServiceStub
from reveille.scheduler.v1 import job_handler_service_pb2 as plan_pb
from reveille.scheduler.v1.job_handler_service_pb2_grpc import JobHandlerServiceStub
from reveille_autopilot import wiring
from reveille_autopilot.config import Settings
from reveille_runtime.app import App
from reveille_runtime.client import Channels
from reveille_runtime.crypto import generate_key
from reveille_runtime.db import Database
from reveille_runtime.lifecycle import Component, Loop
from reveille_runtime.rpc_errors import from_rpc_error
from reveille_runtime.telemetry import Telemetry
from reveille_testkit.database import TestDatabase
from reveille_testkit.rpc import Keyring, RpcRig, SpanLog, serving
from reveille_testkit.waiting import eventually

CREATOR, MEMBER, ADMIN, STRANGER = "creator", "member", "admin", "stranger"


class WatchedApp(App[Settings]):
    """The service's own composition, with its loops and its database within reach."""

    def __init__(self, settings: Settings, telemetry: Telemetry) -> None:
        super().__init__(settings, telemetry)
        self.loops: dict[str, Loop] = {}
        self.database: Database | None = None

    def claims(self, component: Component) -> None:
        if isinstance(component, Loop):
            self.loops[component.name] = component
        super().claims(component)

    async def resource(self, manager: Any) -> Any:
        if isinstance(manager, Database):
            self.database = manager
        return await super().resource(manager)


class Service:
    """One running replica, and callers of every kind."""

    def __init__(self, app: WatchedApp, stage: Stage) -> None:
        self.app = app
        self.stage = stage
        self.keys = stage.keys
        self.spans = stage.spans
        self._channels: list[Channels] = []

    def channel(self, token: str) -> grpc.aio.Channel:
        channels = Channels(
            {"server": self.app.server.address}, telemetry=Telemetry.off(), token=lambda: token
        )
        self._channels.append(channels)
        return channels.get("server")

    def as_user(self, user_id: str, *, operator: bool = False) -> Any:
        return AutopilotServiceStub(self.channel(self.keys.user(user_id, operator=operator)))

    def as_service(self, name: str = "scheduler") -> Any:
        return AutopilotServiceStub(self.channel(self.keys.service(name)))

    def workspaces(self, user_id: str = "root", *, operator: bool = True) -> Any:
        return WorkspaceServiceStub(self.channel(self.keys.user(user_id, operator=operator)))

    def dispatcher(self) -> Any:
        return DispatchServiceStub(self.channel(self.keys.service("webhook-gateway")))

    def handler(self) -> Any:
        return JobHandlerServiceStub(self.channel(self.keys.service("scheduler")))

    def explainer(self, user_id: str) -> Any:
        return ExplainServiceStub(self.channel(self.keys.user(user_id)))

    async def tick(self, loop: str) -> None:
        """Have a loop do its step now, whole."""
        self.app.loops[loop].wake()
        await self.app.loops[loop].ticked()

    def move_clock(self, seconds: float) -> None:
        assert self.app.database is not None
        self.app.database.move_clock(seconds)

    async def run_of(self, run_id: str, user_id: str = CREATOR) -> run_pb.AutopilotRun:
        response = await self.as_user(user_id).GetRun(pb.GetRunRequest(run_id=run_id))
        run: run_pb.AutopilotRun = response.run
        return run

    async def ended(self, run_id: str, user_id: str = CREATOR) -> run_pb.AutopilotRun:
        """Wait for a run's outcome."""
        request = pb.WaitRunRequest(run_id=run_id)
        request.timeout.FromSeconds(15)
        response = await self.as_user(user_id).WaitRun(request)
        run: run_pb.AutopilotRun = response.run
        assert run.HasField("finish_time"), run
        return run

    async def close(self) -> None:
        for channels in self._channels:
            await channels.close()
        await self.app.stop()


class Stage:
    """Starts replicas of the service over one database and one set of neighbours."""

    def __init__(
        self, world: World, rig: RpcRig, keys: Keyring, database: TestDatabase, folder: Path
    ) -> None:
        self.world = world
        self.rig = rig
        self.keys = keys
        self.database = database
        self.spans = SpanLog()
        self._folder = folder
        self._running: list[Service] = []
        (folder / "sealing").write_text(generate_key() + "\n", encoding="ascii")

    def settings(self, **more: Any) -> Settings:
        app = self.database.settings("autopilot")
        return Settings(
            listen="127.0.0.1:0",
            database_url=app.url,
            database_password_file=app.password_file,
            trusted_keys_file=self.keys.trusted_file,
            service_key_file=self.keys.private_key("autopilot"),
            scheduler_target=self.rig.server.address,
            webhook_target=self.rig.server.address,
            heartbeat_target=self.rig.server.address,
            sealing_key_file=self._folder / "sealing",
            public_url="https://hooks.example.test",
            # Calls that a test holds back on purpose must not hold its end back.
            drain_grace=0.5,
            **more,
        )

    async def start(self, **more: Any) -> Service:
        telemetry = Telemetry.of("autopilot", [self.spans])
        app = WatchedApp(self.settings(**more), telemetry)
        service = Service(app, self)
        self._running.append(service)
        await app.start(wiring.build)
        return service

    async def close(self) -> None:
        for service in self._running:
            await service.close()


@pytest.fixture
async def world() -> World:
    return World()


@pytest.fixture
async def stage(world: World, database: TestDatabase, tmp_path: Path) -> AsyncIterator[Stage]:
    keys = Keyring(tmp_path / "keys")
    rig = RpcRig(keys)
    register(rig, world)
    async with serving(rig):
        stage = Stage(world, rig, keys, database, tmp_path)
        try:
            yield stage
        finally:
            await stage.close()


@pytest.fixture
async def service(stage: Stage) -> Service:
    return await stage.start()


@pytest.fixture
async def rows(database: TestDatabase) -> asyncpg.Connection[asyncpg.Record]:
    """Look behind the scenes."""
    return await database.connect("reveille_autopilot_app")


@pytest.fixture
async def workspace_id(service: Service) -> UUID:
    """A workspace with an owner, an administrator, and two members."""
    stub = service.workspaces()
    made = await stub.CreateWorkspace(
        workspace_pb.CreateWorkspaceRequest(
            name="Acme", issue_prefix="ACME", owner_user_id="owner", request_id="one"
        )
    )
    workspace = made.workspace.workspace_id
    roles = {CREATOR: ROLE_MEMBER, MEMBER: ROLE_MEMBER, ADMIN: ROLE_ADMIN}
    for user_id, role in roles.items():
        await stub.AddMember(
            workspace_pb.AddMemberRequest(workspace_id=workspace, user_id=user_id, role=role)
        )
    return UUID(workspace)


@pytest.fixture
async def autopilot(service: Service, world: World, workspace_id: UUID) -> rule_pb.Autopilot:
    """A rule that wakes an agent."""
    return await make_autopilot(service, world, workspace_id)


async def make_autopilot(
    service: Service, world: World, workspace_id: UUID, *, issue: bool = False, **more: Any
) -> rule_pb.Autopilot:
    if "squad_id" not in more:
        more.setdefault("agent_id", str(world.add_agent(workspace_id)))
    response = await service.as_user(CREATOR).CreateAutopilot(
        pb.CreateAutopilotRequest(
            workspace_id=str(workspace_id),
            title="Triage",
            prompt="Look at what came in.",
            issue_title_template="Triage of {{date}}" if issue else "",
            execution_mode=(
                rule_pb.EXECUTION_MODE_CREATE_ISSUE if issue else rule_pb.EXECUTION_MODE_RUN_ONLY
            ),
            **more,
        )
    )
    rule: rule_pb.Autopilot = response.autopilot
    return rule


async def make_schedule(
    service: Service, autopilot_id: str, cron: str = "0 9 * * *", zone: str = "Europe/Berlin"
) -> rule_pb.Trigger:
    response = await service.as_user(CREATOR).CreateTrigger(
        pb.CreateTriggerRequest(
            autopilot_id=autopilot_id,
            schedule=rule_pb.ScheduleTrigger(cron=cron, time_zone=zone),
        )
    )
    trigger: rule_pb.Trigger = response.trigger
    return trigger


async def make_webhook(
    service: Service,
    autopilot_id: str,
    *filters: rule_pb.EventFilter,
    provider: str = "github",
) -> pb.CreateTriggerResponse:
    response: pb.CreateTriggerResponse = await service.as_user(CREATOR).CreateTrigger(
        pb.CreateTriggerRequest(
            autopilot_id=autopilot_id,
            webhook=rule_pb.WebhookTrigger(provider=provider, event_filters=filters),
        )
    )
    return response


def facts(trigger: rule_pb.Trigger, **more: Any) -> dispatch_pb.DeliveryFacts:
    """What the gateway tells of a delivery for a trigger."""
    given: dict[str, Any] = {
        "delivery_id": str(uuid4()),
        "endpoint_id": trigger.trigger_id,
        "workspace_id": trigger.workspace_id,
        "event": "issues",
        "actions": ["opened"],
    }
    return dispatch_pb.DeliveryFacts(**(given | more))


async def admit(
    service: Service, *deliveries: dispatch_pb.DeliveryFacts
) -> list[dispatch_pb.AdmitResult]:
    response = await service.dispatcher().AdmitDeliveries(
        dispatch_pb.AdmitDeliveriesRequest(deliveries=deliveries)
    )
    return list(response.results)


async def withdraw(service: Service, *delivery_ids: str) -> None:
    """Tell what the gateway tells when people purge what it holds."""
    await service.dispatcher().WithdrawDeliveries(
        dispatch_pb.WithdrawDeliveriesRequest(delivery_ids=delivery_ids)
    )


async def hand_over(
    service: Service, delivery: dispatch_pb.DeliveryFacts, run_id: str, body: bytes = b"{}"
) -> dispatch_pb.DispatchResult:
    response = await service.dispatcher().DispatchDeliveries(
        dispatch_pb.DispatchDeliveriesRequest(
            deliveries=[
                dispatch_pb.DeliveryBody(
                    delivery_id=delivery.delivery_id,
                    run_id=run_id,
                    content_type="application/json",
                    body=body,
                    headers={"x-github-event": "issues"},
                    event="issues",
                    action="opened",
                )
            ]
        )
    )
    result: dispatch_pb.DispatchResult = response.results[0]
    return result


def plan(trigger: rule_pb.Trigger, planned_at: datetime, attempt: int = 1) -> plan_pb.Plan:
    """A claimed occurrence, as the scheduler hands it over."""
    stamp = Timestamp()
    stamp.FromDatetime(planned_at)
    return plan_pb.Plan(
        execution_id=str(uuid4()),
        job_name="autopilot_schedule_dispatch",
        scope_kind="autopilot_trigger",
        scope_id=trigger.trigger_id,
        plan_time=stamp,
        attempt=attempt,
    )


async def run_plan(service: Service, *plans: plan_pb.Plan) -> list[plan_pb.PlanResult]:
    response = await service.handler().RunPlans(plan_pb.RunPlansRequest(plans=plans))
    return list(response.results)


async def run_now(
    service: Service, autopilot_id: str, user_id: str = CREATOR, **more: Any
) -> run_pb.AutopilotRun:
    response = await service.as_user(user_id).RunAutopilot(
        pb.RunAutopilotRequest(autopilot_id=autopilot_id, **more)
    )
    run: run_pb.AutopilotRun = response.run
    return run


@contextlib.asynccontextmanager
async def refused(code: grpc.StatusCode, reason: str) -> AsyncIterator[list[Any]]:
    """Expect an error of a call; the list holds it, as a domain error, afterwards."""
    seen: list[Any] = []
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        yield seen
    assert raised.value.code() is code, raised.value
    error = from_rpc_error(raised.value)
    assert error.reason == reason, error
    seen.append(error)


async def until(check: Callable[[], Any], what: str) -> None:
    """Wait for something that another task of the service does."""

    async def look() -> Any:
        found = check()
        return await found if inspect.isawaitable(found) else found

    await eventually(look, what)


async def blocked(rows: asyncpg.Connection[asyncpg.Record], number: int) -> None:
    """Wait until that many transactions wait for a lock."""

    async def enough() -> bool:
        count: int = await rows.fetchval(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return count >= number

    await eventually(enough, f"{number} wait for a lock")


async def edit_rule(
    service: Service, rule: rule_pb.Autopilot, user_id: str = CREATOR, **values: Any
) -> rule_pb.Autopilot:
    """Change fields of a rule as it was read; `rule` is brought up to date."""
    request = pb.UpdateAutopilotRequest(
        autopilot=rule_pb.Autopilot(autopilot_id=rule.autopilot_id, etag=rule.etag, **values)
    )
    request.update_mask.paths.extend(values)
    response = await service.as_user(user_id).UpdateAutopilot(request)
    rule.CopyFrom(response.autopilot)
    return rule


async def edit_trigger(
    service: Service, trigger: rule_pb.Trigger, *paths: str, user_id: str = CREATOR, **values: Any
) -> rule_pb.Trigger:
    """Change fields of a trigger as it was read; `trigger` is brought up to date."""
    request = pb.UpdateTriggerRequest(
        trigger=rule_pb.Trigger(trigger_id=trigger.trigger_id, etag=trigger.etag, **values)
    )
    request.update_mask.paths.extend(paths or values)
    response = await service.as_user(user_id).UpdateTrigger(request)
    trigger.CopyFrom(response.trigger)
    return trigger


async def set_quota(
    service: Service,
    workspace_id: UUID,
    action: workspace_pb.QuotaAction.ValueType,
    limit: int = 0,
    period: workspace_pb.QuotaPeriod.ValueType = workspace_pb.QUOTA_PERIOD_DAY,
) -> None:
    """Say how many runs a workspace may have."""
    stub = service.workspaces()
    read = await stub.GetWorkspace(workspace_pb.GetWorkspaceRequest(workspace_id=str(workspace_id)))
    request = workspace_pb.UpdateWorkspaceRequest(workspace=read.workspace)
    request.workspace.quota.CopyFrom(
        workspace_pb.QuotaPolicy(action=action, limit=limit, period=period)
    )
    request.update_mask.paths.append("quota")
    await stub.UpdateWorkspace(request)


async def keep_up(service: Service, job: str) -> dict[str, Any]:
    """Have the scheduler hand one of the service's own jobs over; gives what it told."""
    (result,) = await run_plan(
        service,
        plan_pb.Plan(execution_id="e", job_name=job, scope_kind="global", scope_id="global"),
    )
    assert result.outcome == plan_pb.PLAN_OUTCOME_SUCCESS, result
    told: dict[str, Any] = json.loads(result.result)
    return told


def whole_second(moment: datetime | None = None) -> datetime:
    return (moment or datetime.now(UTC)).replace(microsecond=0)
