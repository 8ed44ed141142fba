"""Everything a caller can get wrong, and the clear answer it gets from a running service."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID, uuid4

import grpc
import pytest
import pytest_asyncio

from reveille.autopilot.v1 import autopilot_pb2
from reveille.autopilot.v1 import autopilot_service_pb2 as autopilot
from reveille.autopilot.v1 import dispatch_service_pb2 as dispatch
from reveille.autopilot.v1 import workspace_service_pb2 as workspace
from reveille.autopilot.v1.dispatch_service_pb2_grpc import DispatchServiceStub
from reveille.common.v1 import access_pb2
from reveille.events.v1 import event_service_pb2
from reveille.events.v1.event_service_pb2_grpc import EventServiceStub
from reveille.explain.v1 import explain_service_pb2
from reveille.heartbeat.v1 import agent_pb2, issue_pb2, run_pb2, wakeup_pb2
from reveille.scheduler.v1 import job_handler_service_pb2
from reveille.scheduler.v1 import scheduler_service_pb2 as scheduler
from reveille.scheduler.v1.job_handler_service_pb2_grpc import JobHandlerServiceStub
from reveille.webhook.v1 import delivery_service_pb2 as deliveries
from reveille.webhook.v1 import endpoint_service_pb2
from reveille.webhook.v1.endpoint_service_pb2_grpc import EndpointServiceStub
from reveille_runtime.access import CallerKind, Role
from reveille_runtime.errors import DomainError, InvalidArgument
from reveille_runtime.rpc_errors import from_rpc_error
from reveille_runtime.tokens import TokenMinter, generate_key

from .harness import CREATE_ISSUE, Client, Hook, World
from .http import example_body, github_headers, post_chunked

SERVICES = ("scheduler", "autopilot", "webhook-gateway", "heartbeat")
CAP = 4096


@contextmanager
def refused(code: grpc.StatusCode, reason: str) -> Iterator[list[DomainError]]:
    """Expect a refusal, and give it after the block."""
    found: list[DomainError] = []
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        yield found
    assert caught.value.code() is code, caught.value
    error = from_rpc_error(caught.value)
    assert error.reason == reason
    assert error.message
    found.append(error)


@pytest_asyncio.fixture(loop_scope="session")
async def hook(world: World) -> Hook:
    """A hook with a secret and a small cap."""
    workspace_id = await world.create_workspace()
    agent_id = await world.create_triage_agent(workspace_id)
    rule = await world.create_autopilot(workspace_id, agent_id, CREATE_ISSUE)
    return await world.create_hook(rule, max_body_bytes=CAP)


async def stored(world: World, hook: Hook) -> int:
    return await world.count("webhook.deliveries", "endpoint_id = $1::uuid", hook.trigger_id)


class TestHooks:
    """What a sender gets wrong."""

    @pytest.mark.parametrize("token", ["awt_" + "A" * 43, "awt_", "x", "awt_" + "A" * 5000])
    async def test_an_unknown_address_is_not_found(self, world: World, token: str) -> None:
        body = example_body()

        answer = await world.post(f"/hooks/{token}", body, github_headers(body, "whatever"))

        assert answer.status in ({404, 414} if len(token) > 1000 else {404})

    async def test_a_body_over_the_cap_is_refused_while_it_streams(
        self, world: World, hook: Hook
    ) -> None:
        chunk, most = b"x" * 1024, 64 * 1024

        answer, sent = await post_chunked(
            world.stack.address("webhook-gateway", "http"),
            hook.path,
            (chunk for _ in range(most)),
            github_headers(b"", hook.secret),
        )

        assert answer.status == 413
        assert sent < most
        # That it was refused is to be seen; of the body nothing is kept.
        assert await stored(world, hook) == 1
        assert (
            await world.count(
                "webhook.deliveries", "length(body) > 0 AND endpoint_id = $1::uuid", hook.trigger_id
            )
            == 0
        )

    async def test_a_body_that_says_it_is_over_the_cap_is_refused(
        self, world: World, hook: Hook
    ) -> None:
        body = b"x" * (CAP + 1)

        assert (await world.post_github(hook, body)).status == 413
        assert (await world.post_github(hook, b"{}" + b" " * (CAP - 2))).status == 200
        assert await stored(world, hook) == 2

    async def test_broken_json_that_is_signed_is_kept_and_ignored(
        self, world: World, hook: Hook
    ) -> None:
        answer = await world.post_github(hook, b'{"action": "opened", ')

        assert answer.status == 200
        assert (answer.json["status"], answer.json["reason"]) == ("ignored", "unparsable")
        delivery = await world.delivery(answer.json["delivery_id"])
        assert delivery.state == deliveries.DELIVERY_STATE_IGNORED

    async def test_broken_json_that_is_not_signed_is_a_bad_request(
        self, world: World, hook: Hook
    ) -> None:
        trigger = await world.client.autopilots.GetTrigger(
            autopilot.GetTriggerRequest(trigger_id=hook.trigger_id)
        )
        bearer = await world.create_hook(trigger.trigger.autopilot_id, secret=None)

        answer = await world.post_github(bearer, b'{"action": "opened", ')

        assert answer.status == 400


class TestSchedules:
    """What a rule's author gets wrong about time."""

    @staticmethod
    async def create(world: World, cron: str, time_zone: str) -> None:
        workspace_id = await world.create_workspace()
        agent_id = await world.create_triage_agent(workspace_id)
        rule = await world.create_autopilot(workspace_id, agent_id, CREATE_ISSUE)
        await world.client.autopilots.CreateTrigger(
            autopilot.CreateTriggerRequest(
                autopilot_id=rule,
                schedule=autopilot_pb2.ScheduleTrigger(cron=cron, time_zone=time_zone),
            )
        )

    async def test_a_bad_cron_names_its_field(self, world: World) -> None:
        with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_CRON") as found:
            await self.create(world, "61 * * * *", "UTC")

        (error,) = found
        assert isinstance(error, InvalidArgument)
        assert [each.field for each in error.violations] == ["schedule.cron"]
        assert "minute" in error.violations[0].description

    async def test_a_bad_zone_names_its_field(self, world: World) -> None:
        with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_TIMEZONE") as found:
            await self.create(world, "0 9 * * 1-5", "Mars/Olympus_Mons")

        (error,) = found
        assert isinstance(error, InvalidArgument)
        assert [each.field for each in error.violations] == ["schedule.time_zone"]

    async def test_the_preview_refuses_alike(self, world: World) -> None:
        preview = world.client.scheduler.PreviewSchedule
        with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_CRON"):
            await preview(scheduler.PreviewScheduleRequest(cron="@every 5m"))
        with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_TIMEZONE"):
            await preview(scheduler.PreviewScheduleRequest(cron="@daily", time_zone="Local"))

    async def test_everything_wrong_is_told_at_once(self, world: World) -> None:
        with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_ID") as found:
            await world.client.autopilots.CreateAutopilot(
                autopilot.CreateAutopilotRequest(workspace_id="nonsense", agent_id=str(uuid4()))
            )

        (error,) = found
        assert isinstance(error, InvalidArgument)
        assert {each.field for each in error.violations} >= {
            "workspace_id",
            "title",
            "execution_mode",
        }


class Places:
    """Ids of a workspace, all real."""

    def __init__(self, **ids: str) -> None:
        self.workspace = ids["workspace"]
        self.rule = ids["rule"]
        self.trigger = ids["trigger"]
        self.run = ids["run"]
        self.delivery = ids["delivery"]
        self.agent = ids["agent"]
        self.issue = ids["issue"]
        self.wakeup = ids["wakeup"]
        self.agent_run = ids["agent_run"]


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def places(world: World) -> Places:
    """Something of every kind, in a workspace of its own."""
    workspace_id = await world.create_workspace()
    agent_id = await world.create_triage_agent(workspace_id)
    rule = await world.create_autopilot(workspace_id, agent_id, CREATE_ISSUE)
    hook = await world.create_hook(rule)
    answer = await world.post_github(hook)
    run = await world.completed(answer.json["run_id"])
    (attempt,) = await world.attempts(workspace_id, run.wakeup_id)
    return Places(
        workspace=workspace_id,
        rule=rule,
        trigger=hook.trigger_id,
        run=run.run_id,
        delivery=run.delivery_id,
        agent=agent_id,
        issue=run.issue_id,
        wakeup=run.wakeup_id,
        agent_run=attempt.run_id,
    )


Call = Callable[[Client, Places], Awaitable[object]]

# Every method that takes an id, by the id it takes.
CALLS: dict[str, Call] = {
    "GetWorkspace": lambda c, p: c.workspaces.GetWorkspace(
        workspace.GetWorkspaceRequest(workspace_id=p.workspace)
    ),
    "AddMember": lambda c, p: c.workspaces.AddMember(
        workspace.AddMemberRequest(
            workspace_id=p.workspace, user_id="me", role=access_pb2.ROLE_MEMBER
        )
    ),
    "ListMembers": lambda c, p: c.workspaces.ListMembers(
        workspace.ListMembersRequest(workspace_id=p.workspace)
    ),
    "ListAutopilots": lambda c, p: c.autopilots.ListAutopilots(
        autopilot.ListAutopilotsRequest(workspace_id=p.workspace)
    ),
    "GetAutopilot": lambda c, p: c.autopilots.GetAutopilot(
        autopilot.GetAutopilotRequest(autopilot_id=p.rule)
    ),
    "PauseAutopilot": lambda c, p: c.autopilots.PauseAutopilot(
        autopilot.PauseAutopilotRequest(autopilot_id=p.rule)
    ),
    "ResumeAutopilot": lambda c, p: c.autopilots.ResumeAutopilot(
        autopilot.ResumeAutopilotRequest(autopilot_id=p.rule)
    ),
    "CreateTrigger": lambda c, p: c.autopilots.CreateTrigger(
        autopilot.CreateTriggerRequest(
            autopilot_id=p.rule, webhook=autopilot_pb2.WebhookTrigger(provider="github")
        )
    ),
    "GetTrigger": lambda c, p: c.autopilots.GetTrigger(
        autopilot.GetTriggerRequest(trigger_id=p.trigger)
    ),
    "ListTriggers": lambda c, p: c.autopilots.ListTriggers(
        autopilot.ListTriggersRequest(autopilot_id=p.rule)
    ),
    "DeleteTrigger": lambda c, p: c.autopilots.DeleteTrigger(
        autopilot.DeleteTriggerRequest(trigger_id=p.trigger)
    ),
    "RotateWebhookToken": lambda c, p: c.autopilots.RotateWebhookToken(
        autopilot.RotateWebhookTokenRequest(trigger_id=p.trigger)
    ),
    "AddSigningSecret": lambda c, p: c.autopilots.AddSigningSecret(
        autopilot.AddSigningSecretRequest(trigger_id=p.trigger, secret=b"s" * 16)
    ),
    "ListSigningSecrets": lambda c, p: c.autopilots.ListSigningSecrets(
        autopilot.ListSigningSecretsRequest(trigger_id=p.trigger)
    ),
    "RunAutopilot": lambda c, p: c.autopilots.RunAutopilot(
        autopilot.RunAutopilotRequest(autopilot_id=p.rule)
    ),
    "GetRun": lambda c, p: c.autopilots.GetRun(autopilot.GetRunRequest(run_id=p.run)),
    "WaitRun": lambda c, p: c.autopilots.WaitRun(autopilot.WaitRunRequest(run_id=p.run)),
    "CancelRun": lambda c, p: c.autopilots.CancelRun(autopilot.CancelRunRequest(run_id=p.run)),
    "ListRuns": lambda c, p: c.autopilots.ListRuns(
        autopilot.ListRunsRequest(workspace_id=p.workspace)
    ),
    "ListDeliveries": lambda c, p: c.deliveries.ListDeliveries(
        deliveries.ListDeliveriesRequest(workspace_id=p.workspace)
    ),
    "GetDelivery": lambda c, p: c.deliveries.GetDelivery(
        deliveries.GetDeliveryRequest(delivery_id=p.delivery)
    ),
    "CreateAgent": lambda c, p: c.agents.CreateAgent(
        agent_pb2.CreateAgentRequest(workspace_id=p.workspace, name="mine", adapter="echo")
    ),
    "GetAgent": lambda c, p: c.agents.GetAgent(agent_pb2.GetAgentRequest(agent_id=p.agent)),
    "ListAgents": lambda c, p: c.agents.ListAgents(
        agent_pb2.ListAgentsRequest(workspace_id=p.workspace)
    ),
    "CreateIssue": lambda c, p: c.issues.CreateIssue(
        issue_pb2.CreateIssueRequest(workspace_id=p.workspace, title="mine")
    ),
    "GetIssue": lambda c, p: c.issues.GetIssue(issue_pb2.GetIssueRequest(issue_id=p.issue)),
    "UpdateIssue": lambda c, p: c.issues.UpdateIssue(
        issue_pb2.UpdateIssueRequest(issue_id=p.issue, status=issue_pb2.ISSUE_STATUS_DONE)
    ),
    "ListIssues": lambda c, p: c.issues.ListIssues(
        issue_pb2.ListIssuesRequest(workspace_id=p.workspace)
    ),
    "GetWakeup": lambda c, p: c.wakeups.GetWakeup(wakeup_pb2.GetWakeupRequest(wakeup_id=p.wakeup)),
    "ListWakeups": lambda c, p: c.wakeups.ListWakeups(
        wakeup_pb2.ListWakeupsRequest(workspace_id=p.workspace)
    ),
    "GetAgentRun": lambda c, p: c.agent_runs.GetRun(run_pb2.GetRunRequest(run_id=p.agent_run)),
    "ListAgentRuns": lambda c, p: c.agent_runs.ListRuns(
        run_pb2.ListRunsRequest(workspace_id=p.workspace)
    ),
    "ReadRunLog": lambda c, p: c.agent_runs.ReadRunLog(
        run_pb2.ReadRunLogRequest(run_id=p.agent_run)
    ),
}


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def stranger(world: World, places: Places) -> AsyncIterator[Client]:
    """A caller who owns another workspace."""
    other = await world.create_workspace(owner="stranger")
    token = TokenMinter(world.stack.key_file("operator"), "operator").mint(
        CallerKind.USER, "stranger", roles={UUID(other): Role.OWNER}
    )
    client = Client(world.stack, token)
    yield client
    await client.close()


@pytest.mark.parametrize("name", CALLS)
async def test_unknown_and_foreign_ids_look_alike(
    world: World, places: Places, stranger: Client, name: str
) -> None:
    nowhere = Places(**{each: str(uuid4()) for each in vars(places)})

    with refused(grpc.StatusCode.NOT_FOUND, "NOT_FOUND") as unknown:
        await CALLS[name](stranger, nowhere)
    with refused(grpc.StatusCode.NOT_FOUND, "NOT_FOUND") as foreign:
        await CALLS[name](stranger, places)

    def unnamed(error: DomainError, ids: Places) -> str:
        text = error.message
        for each in vars(ids).values():
            text = text.replace(each, "…")
        return text

    assert unnamed(unknown[0], nowhere) == unnamed(foreign[0], places)


async def test_what_a_stranger_tried_has_changed_nothing(
    world: World, places: Places, stranger: Client
) -> None:
    with refused(grpc.StatusCode.NOT_FOUND, "NOT_FOUND"):
        await CALLS["DeleteTrigger"](stranger, places)

    trigger = await world.client.autopilots.GetTrigger(
        autopilot.GetTriggerRequest(trigger_id=places.trigger)
    )
    assert trigger.trigger.enabled
    explained = await stranger.explain("autopilot").Explain(
        explain_service_pb2.ExplainRequest(id=places.run)
    )
    assert list(explained.findings) == []


async def ask(client: Client, service: str) -> None:
    """Make a harmless call that every user may make."""
    await client.explain(service).Explain(explain_service_pb2.ExplainRequest(id=str(uuid4())))


class TestCredentials:
    """What a caller gets wrong about itself."""

    @pytest.mark.parametrize("service", SERVICES)
    async def test_credentials_that_do_not_hold(
        self, world: World, tmp_path: Path, service: str
    ) -> None:
        minter = TokenMinter(world.stack.key_file("operator"), "operator")
        generate_key(tmp_path / "own.pem", "operator")
        forger = TokenMinter(tmp_path / "own.pem", "operator")
        now = time.time()
        bad = {
            None: "TOKEN_MISSING",
            "nonsense": "TOKEN_INVALID",
            minter.mint(CallerKind.USER, "local", now=now - 7200): "TOKEN_EXPIRED",
            minter.mint(CallerKind.USER, "local", now=now + 7200): "TOKEN_INVALID",
            forger.mint(CallerKind.USER, "local", operator=True): "TOKEN_INVALID",
            world.stack.operator_token()[:-8] + "AAAAAAAA": "TOKEN_INVALID",
        }
        for token, reason in bad.items():
            client = Client(world.stack, token)
            with refused(grpc.StatusCode.UNAUTHENTICATED, reason):
                await ask(client, service)
            await client.close()
        await ask(world.client, service)

    async def test_what_only_services_may_call_is_closed_to_people(self, world: World) -> None:
        client = world.client
        events = EventServiceStub(client.channel("heartbeat"))
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: client.wakeups.CancelWakeups(wakeup_pb2.CancelWakeupsRequest()),
            lambda: client.agents.CheckInvocable(agent_pb2.CheckInvocableRequest()),
            lambda: DispatchServiceStub(client.channel("autopilot")).AdmitDeliveries(
                dispatch.AdmitDeliveriesRequest()
            ),
            lambda: JobHandlerServiceStub(client.channel("autopilot")).RunPlans(
                job_handler_service_pb2.RunPlansRequest()
            ),
            lambda: EndpointServiceStub(client.channel("webhook-gateway")).PutEndpoint(
                endpoint_service_pb2.PutEndpointRequest()
            ),
            lambda: events.WatchEvents(
                event_service_pb2.WatchEventsRequest(), metadata=client.credentials
            ).read(),
        ]
        for call in calls:
            with refused(grpc.StatusCode.PERMISSION_DENIED, "CALLER_NOT_ALLOWED"):
                await call()

    async def test_a_service_may_do_only_what_is_its_own(self, world: World) -> None:
        minter = TokenMinter(world.stack.key_file("scheduler"), "scheduler")
        client = Client(world.stack, minter.service_token())
        dispatcher = DispatchServiceStub(client.channel("autopilot"))
        with refused(grpc.StatusCode.PERMISSION_DENIED, "CALLER_NOT_ALLOWED"):
            await dispatcher.AdmitDeliveries(dispatch.AdmitDeliveriesRequest())
        # A key vouches for its own service alone.
        with pytest.raises(ValueError, match="may not mint"):
            minter.mint(CallerKind.SERVICE, "webhook-gateway")
        await client.close()

    async def test_roles_are_asked_for(self, world: World, places: Places) -> None:
        token = TokenMinter(world.stack.key_file("operator"), "operator").mint(
            CallerKind.USER, "member", roles={UUID(places.workspace): Role.MEMBER}
        )
        await world.client.workspaces.AddMember(
            workspace.AddMemberRequest(
                workspace_id=places.workspace, user_id="member", role=access_pb2.ROLE_MEMBER
            )
        )
        client = Client(world.stack, token)
        with refused(grpc.StatusCode.PERMISSION_DENIED, "CALLER_NOT_ALLOWED"):
            await client.workspaces.CreateWorkspace(
                workspace.CreateWorkspaceRequest(name="Mine", issue_prefix="MINE")
            )
        with refused(grpc.StatusCode.PERMISSION_DENIED, "ROLE_TOO_WEAK"):
            await client.workspaces.AddMember(
                workspace.AddMemberRequest(
                    workspace_id=places.workspace, user_id="x", role=access_pb2.ROLE_MEMBER
                )
            )
        with refused(grpc.StatusCode.PERMISSION_DENIED, "ROLE_TOO_WEAK"):
            await client.autopilots.DeleteTrigger(
                autopilot.DeleteTriggerRequest(trigger_id=places.trigger)
            )
        await client.autopilots.GetAutopilot(
            autopilot.GetAutopilotRequest(autopilot_id=places.rule)
        )
        await client.close()
