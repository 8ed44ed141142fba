"""Rules, triggers, secrets: who may publish, what is recorded, and what the neighbours are told."""

from __future__ import annotations

import asyncio
import hashlib
from datetime import UTC, datetime, timedelta
from typing import TypeAlias
from uuid import UUID, uuid4

import asyncpg
import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from tests.integration.autopilot.conftest import (
    ADMIN,
    CREATOR,
    MEMBER,
    STRANGER,
    Service,
    edit_rule,
    make_autopilot,
    make_schedule,
    make_webhook,
    refused,
)
from tests.integration.autopilot.peers import World

from reveille.autopilot.v1 import autopilot_pb2 as rule_pb
from reveille.autopilot.v1 import autopilot_service_pb2 as pb
from reveille.autopilot.v1 import workspace_service_pb2 as workspace_pb
from reveille.common.v1 import access_pb2
from reveille.common.v1.access_pb2 import ROLE_ADMIN, ROLE_MEMBER, ROLE_OWNER
from reveille.explain.v1 import explain_service_pb2 as explain_pb
from reveille.webhook.v1 import endpoint_service_pb2 as endpoint_pb
from reveille_autopilot.store import triggers
from reveille_runtime import paging
from reveille_runtime.requests import fingerprint

Rows: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


async def versions(rows: Rows, autopilot_id: str) -> list[asyncpg.Record]:
    return await rows.fetch(
        "SELECT sequence, change, publisher_user_id, status, triggers FROM rule_versions"
        " WHERE autopilot_id = $1 ORDER BY sequence",
        UUID(autopilot_id),
    )


async def test_a_workspace_is_made_once_with_its_owner_and_heartbeat_knows_it(
    service: Service, world: World
) -> None:
    stub = service.workspaces()
    request = workspace_pb.CreateWorkspaceRequest(
        name="Acme", issue_prefix="ACME", owner_user_id="owner", request_id="r"
    )
    first, again = await asyncio.gather(
        stub.CreateWorkspace(request), stub.CreateWorkspace(request)
    )
    assert first == again
    workspace_id = first.workspace.workspace_id
    assert world.workspaces[workspace_id].issue_prefix == "ACME"
    assert world.workspaces[workspace_id].default_responsible_user_id == "owner"
    members = await stub.ListMembers(workspace_pb.ListMembersRequest(workspace_id=workspace_id))
    assert [(member.user_id, member.role) for member in members.members] == [("owner", 3)]

    request.name = "Other"
    async with refused(grpc.StatusCode.INVALID_ARGUMENT, "REQUEST_ID_REUSED"):
        await stub.CreateWorkspace(request)
    request.request_id = "another"
    async with refused(grpc.StatusCode.ALREADY_EXISTS, "ALREADY_EXISTS") as seen:
        await stub.CreateWorkspace(request)
    assert seen[0].metadata["field"] == "issue_prefix"


async def test_only_operators_make_workspaces_and_everybody_lists_their_own(
    service: Service, workspace_id: UUID
) -> None:
    async with refused(grpc.StatusCode.PERMISSION_DENIED, "CALLER_NOT_ALLOWED"):
        await service.workspaces(CREATOR, operator=False).CreateWorkspace(
            workspace_pb.CreateWorkspaceRequest(name="Mine", issue_prefix="MINE")
        )
    lists = [
        await service.workspaces(user, operator=operator).ListWorkspaces(
            workspace_pb.ListWorkspacesRequest()
        )
        for user, operator in ((CREATOR, False), (STRANGER, False), ("root", True))
    ]
    assert [len(each.workspaces) for each in lists] == [1, 0, 1]
    async with refused(grpc.StatusCode.NOT_FOUND, "NOT_FOUND"):
        await service.workspaces(STRANGER, operator=False).GetWorkspace(
            workspace_pb.GetWorkspaceRequest(workspace_id=str(workspace_id))
        )


async def test_members_are_the_managers_affair_and_owners_the_owners(
    service: Service, workspace_id: UUID
) -> None:
    def adding(user_id: str, role: access_pb2.Role.ValueType) -> workspace_pb.AddMemberRequest:
        return workspace_pb.AddMemberRequest(
            workspace_id=str(workspace_id), user_id=user_id, role=role
        )

    async with refused(grpc.StatusCode.PERMISSION_DENIED, "ROLE_TOO_WEAK"):
        await service.workspaces(MEMBER, operator=False).AddMember(adding("new", ROLE_MEMBER))
    admin = service.workspaces(ADMIN, operator=False)
    await admin.AddMember(adding("new", ROLE_ADMIN))
    for user_id, role in (("new", ROLE_OWNER), ("owner", ROLE_MEMBER)):
        async with refused(grpc.StatusCode.PERMISSION_DENIED, "ROLE_TOO_WEAK"):
            await admin.AddMember(adding(user_id, role))
    promoted = await service.workspaces("owner", operator=False).AddMember(
        adding("new", ROLE_OWNER)
    )
    assert promoted.member.role == 3


async def test_everything_that_is_wrong_with_a_rule_is_told_at_once(
    service: Service, workspace_id: UUID
) -> None:
    async with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD") as seen:
        await service.as_user(CREATOR).CreateAutopilot(
            pb.CreateAutopilotRequest(
                workspace_id="nonsense",
                title="x" * 201,
                issue_title_template="Daily {{ date }} by {{user}}",
                agent_id="",
                request_id="r" * 129,
            )
        )
    assert {violation.field for violation in seen[0].violations} == {
        "workspace_id",
        "title",
        "issue_title_template",
        "agent_id",
        "execution_mode",
        "request_id",
    }
    template = next(v for v in seen[0].violations if v.field == "issue_title_template")
    assert "{{user}}" in template.description


async def test_a_rule_needs_an_agent_of_its_workspace(
    service: Service, world: World, workspace_id: UUID
) -> None:
    def creating(agent_id: UUID) -> pb.CreateAutopilotRequest:
        return pb.CreateAutopilotRequest(
            workspace_id=str(workspace_id),
            title="T",
            agent_id=str(agent_id),
            execution_mode=rule_pb.EXECUTION_MODE_RUN_ONLY,
        )

    stub = service.as_user(CREATOR)
    for agent_id in (uuid4(), world.add_agent(uuid4())):
        async with refused(grpc.StatusCode.NOT_FOUND, "NOT_FOUND") as seen:
            await stub.CreateAutopilot(creating(agent_id))
        assert seen[0].metadata["field"] == "agent_id"
    world.away = {"GetAgent"}
    async with refused(grpc.StatusCode.UNAVAILABLE, "DEPENDENCY_UNAVAILABLE"):
        await stub.CreateAutopilot(creating(world.add_agent(workspace_id)))


async def test_every_edit_appends_a_version_and_moves_responsibility(
    service: Service, autopilot: rule_pb.Autopilot, rows: Rows
) -> None:
    schedule = await make_schedule(service, autopilot.autopilot_id)
    hook = (await make_webhook(service, autopilot.autopilot_id)).trigger
    admin = service.as_user(ADMIN)
    await admin.RotateWebhookToken(pb.RotateWebhookTokenRequest(trigger_id=hook.trigger_id))
    shown = [
        (await admin.GetTrigger(pb.GetTriggerRequest(trigger_id=each))).trigger
        for each in (schedule.trigger_id, hook.trigger_id)
    ]
    # Editing one trigger moves that one alone.
    assert [each.publisher_user_id for each in shown] == [CREATOR, ADMIN]
    await admin.PauseAutopilot(pb.PauseAutopilotRequest(autopilot_id=autopilot.autopilot_id))
    again = await admin.PauseAutopilot(
        pb.PauseAutopilotRequest(autopilot_id=autopilot.autopilot_id)
    )
    shown = list(
        (
            await admin.ListTriggers(pb.ListTriggersRequest(autopilot_id=autopilot.autopilot_id))
        ).triggers
    )
    assert [each.publisher_user_id for each in shown] == [ADMIN, ADMIN]
    await admin.DeleteTrigger(pb.DeleteTriggerRequest(trigger_id=schedule.trigger_id))
    await admin.DeleteTrigger(pb.DeleteTriggerRequest(trigger_id=schedule.trigger_id))

    recorded = await versions(rows, autopilot.autopilot_id)
    assert [(row["change"], row["publisher_user_id"]) for row in recorded] == [
        ("created", CREATOR),
        ("trigger_created", CREATOR),
        ("trigger_created", CREATOR),
        ("token_rotated", ADMIN),
        ("paused", ADMIN),
        ("trigger_deleted", ADMIN),
    ]
    assert [len(row["triggers"]) for row in recorded] == [0, 1, 2, 2, 2, 1]
    assert recorded[4]["status"] == "paused"
    assert again.autopilot.etag == "v5"


async def test_versions_can_neither_be_changed_nor_removed(
    autopilot: rule_pb.Autopilot, rows: Rows
) -> None:
    for statement in (
        "UPDATE rule_versions SET prompt = ''",
        "DELETE FROM rule_versions",
        "TRUNCATE rule_versions",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await rows.execute(statement)
    assert await rows.fetchval("SELECT count(*) FROM rule_versions") == 1
    assert autopilot.etag == "v1"


async def test_a_stale_etag_is_refused(service: Service, autopilot: rule_pb.Autopilot) -> None:
    await make_schedule(service, autopilot.autopilot_id)
    async with refused(grpc.StatusCode.ABORTED, "ETAG_MISMATCH"):
        await service.as_user(CREATOR).PauseAutopilot(
            pb.PauseAutopilotRequest(autopilot_id=autopilot.autopilot_id, etag=autopilot.etag)
        )


async def test_members_read_and_only_writers_write(
    service: Service, autopilot: rule_pb.Autopilot
) -> None:
    hook = (await make_webhook(service, autopilot.autopilot_id)).trigger
    member, stranger = service.as_user(MEMBER), service.as_user(STRANGER)
    read = await member.GetAutopilot(pb.GetAutopilotRequest(autopilot_id=autopilot.autopilot_id))
    assert read.autopilot.title == "Triage"
    writes = [
        ("PauseAutopilot", pb.PauseAutopilotRequest(autopilot_id=autopilot.autopilot_id)),
        ("ResumeAutopilot", pb.ResumeAutopilotRequest(autopilot_id=autopilot.autopilot_id)),
        (
            "CreateTrigger",
            pb.CreateTriggerRequest(
                autopilot_id=autopilot.autopilot_id,
                schedule=rule_pb.ScheduleTrigger(cron="@daily"),
            ),
        ),
        ("DeleteTrigger", pb.DeleteTriggerRequest(trigger_id=hook.trigger_id)),
        ("RotateWebhookToken", pb.RotateWebhookTokenRequest(trigger_id=hook.trigger_id)),
        (
            "AddSigningSecret",
            pb.AddSigningSecretRequest(trigger_id=hook.trigger_id, secret=b"s" * 16),
        ),
        (
            "RemoveSigningSecret",
            pb.RemoveSigningSecretRequest(trigger_id=hook.trigger_id, secret_id=str(uuid4())),
        ),
    ]
    for method, request in writes:
        async with refused(grpc.StatusCode.PERMISSION_DENIED, "ROLE_TOO_WEAK"):
            await getattr(member, method)(request)
        async with refused(grpc.StatusCode.NOT_FOUND, "NOT_FOUND"):
            await getattr(stranger, method)(request)
    async with refused(grpc.StatusCode.NOT_FOUND, "NOT_FOUND"):
        await stranger.GetTrigger(pb.GetTriggerRequest(trigger_id=hook.trigger_id))


async def test_a_webhooks_address_is_shown_once_and_kept_as_a_hash(
    service: Service, world: World, autopilot: rule_pb.Autopilot, rows: Rows
) -> None:
    stub = service.as_user(CREATOR)
    request = pb.CreateTriggerRequest(
        autopilot_id=autopilot.autopilot_id,
        webhook=rule_pb.WebhookTrigger(
            provider="github",
            event_filters=[rule_pb.EventFilter(event="issues", actions=["opened"])],
        ),
        request_id="r",
    )
    made = await stub.CreateTrigger(request)
    assert made.endpoint_ready
    assert made.trigger.synced
    assert made.hook_url == "https://hooks.example.test" + made.hook_path
    token = made.hook_path.removeprefix("/hooks/")
    assert token.startswith("awt_")
    assert len(token) == 4 + 43
    endpoint = world.endpoints[made.trigger.trigger_id]
    assert endpoint.token_sha256 == hashlib.sha256(token.encode()).digest()
    assert endpoint.max_body_bytes == 262_144

    # A repeat shows it again, for ten minutes; nothing that rests does.
    assert await stub.CreateTrigger(request) == made
    dump = await rows.fetch("SELECT to_jsonb(t)::text AS row FROM triggers t")
    kept = await rows.fetch("SELECT response FROM requests WHERE method = 'CreateTrigger'")
    assert all(token not in row["row"] for row in dump)
    assert all(token.encode() not in row["response"] for row in kept)
    assert len(await versions(rows, autopilot.autopilot_id)) == 2
    service.move_clock(601)
    for _ in range(2):
        async with refused(grpc.StatusCode.FAILED_PRECONDITION, "REQUEST_ANSWER_EXPIRED"):
            await stub.CreateTrigger(request)
        # Then it is wiped, and the id stays known.
        await service.tick("requests")
    assert await rows.fetchval("SELECT count(*) FROM requests WHERE response IS NULL") == 1


async def test_what_a_hook_does_otherwise_is_passed_to_the_gateway(
    service: Service, world: World, autopilot: rule_pb.Autopilot, rows: Rows
) -> None:
    stub = service.as_user(CREATOR)
    options = endpoint_pb.EndpointOptions(
        rate_per_minute=10,
        excluded_senders=["our-bot"],
        content_policy=endpoint_pb.CONTENT_POLICY_REFUSE,
    )
    made = await stub.CreateTrigger(
        pb.CreateTriggerRequest(
            autopilot_id=autopilot.autopilot_id,
            webhook=rule_pb.WebhookTrigger(provider="github", options=options),
        )
    )
    assert made.trigger.webhook.options == options
    assert world.endpoints[made.trigger.trigger_id].options == options

    made.trigger.webhook.options.rate_per_minute = 20
    changed = await stub.UpdateTrigger(
        pb.UpdateTriggerRequest(
            trigger=made.trigger, update_mask=FieldMask(paths=["webhook.options"])
        )
    )
    assert changed.trigger.webhook.options.rate_per_minute == 20
    assert world.endpoints[made.trigger.trigger_id].options.rate_per_minute == 20

    async with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD"):
        await stub.CreateTrigger(
            pb.CreateTriggerRequest(
                autopilot_id=autopilot.autopilot_id,
                webhook=rule_pb.WebhookTrigger(
                    provider="github",
                    options=endpoint_pb.EndpointOptions(own_markers=["x" * 20_001]),
                ),
            )
        )


async def test_rotation_gives_a_new_address_and_may_leave_the_old_one_a_grace(
    service: Service, world: World, autopilot: rule_pb.Autopilot
) -> None:
    hook = await make_webhook(service, autopilot.autopilot_id)
    before = world.endpoints[hook.trigger.trigger_id]
    stub = service.as_user(CREATOR)
    request = pb.RotateWebhookTokenRequest(trigger_id=hook.trigger.trigger_id)
    request.grace.FromTimedelta(timedelta(hours=1))
    rotated = await stub.RotateWebhookToken(request)
    assert rotated.endpoint_ready
    assert rotated.hook_path != hook.hook_path
    after = world.endpoints[hook.trigger.trigger_id]
    assert after.previous_token_sha256 == before.token_sha256
    left = after.previous_token_expire_time.ToDatetime(tzinfo=UTC) - datetime.now(UTC)
    assert timedelta(minutes=59) < left <= timedelta(hours=1)

    await stub.RotateWebhookToken(pb.RotateWebhookTokenRequest(trigger_id=hook.trigger.trigger_id))
    assert not world.endpoints[hook.trigger.trigger_id].previous_token_sha256
    schedule = await make_schedule(service, autopilot.autopilot_id)
    async with refused(grpc.StatusCode.FAILED_PRECONDITION, "WRONG_STATE"):
        await stub.RotateWebhookToken(pb.RotateWebhookTokenRequest(trigger_id=schedule.trigger_id))


async def test_a_schedule_is_known_to_the_scheduler_and_follows_every_edit(
    service: Service, world: World, autopilot: rule_pb.Autopilot
) -> None:
    await service.tick("job")
    trigger = await make_schedule(service, autopilot.autopilot_id, "0 9 * * MON-FRI")
    scope = world.scopes[trigger.trigger_id]
    assert (scope.job_name, scope.kind) == ("autopilot_schedule_dispatch", "autopilot_trigger")
    assert (scope.cron, scope.time_zone, scope.enabled) == (
        "0 9 * * MON-FRI",
        "Europe/Berlin",
        True,
    )
    assert trigger.schedule.HasField("next_fire_time")
    job = world.jobs["autopilot_schedule_dispatch"]
    assert job.handler == "autopilot"
    assert [wait.seconds for wait in job.retry_backoff] == [60, 300, 900]

    stub = service.as_user(CREATOR)
    await stub.PauseAutopilot(pb.PauseAutopilotRequest(autopilot_id=autopilot.autopilot_id))
    await service.tick("autopilot.scopes")
    assert not world.scopes[trigger.trigger_id].enabled
    shown = await stub.GetTrigger(pb.GetTriggerRequest(trigger_id=trigger.trigger_id))
    assert not shown.trigger.schedule.HasField("next_fire_time")
    service.move_clock(7200)
    await stub.ResumeAutopilot(pb.ResumeAutopilotRequest(autopilot_id=autopilot.autopilot_id))
    await service.tick("autopilot.scopes")
    resumed = world.scopes[trigger.trigger_id]
    assert resumed.enabled
    # What fell due while it was paused does not count.
    moved = resumed.effective_from.ToDatetime() - scope.effective_from.ToDatetime()
    assert moved >= timedelta(hours=2)
    await stub.DeleteTrigger(pb.DeleteTriggerRequest(trigger_id=trigger.trigger_id))
    assert trigger.trigger_id in world.tombstones


async def test_a_bad_schedule_is_refused_with_each_field_and_its_reason(
    service: Service, autopilot: rule_pb.Autopilot
) -> None:
    async def refuse(reason: str, cron: str, zone: str) -> set[tuple[str, str]]:
        async with refused(grpc.StatusCode.INVALID_ARGUMENT, reason) as seen:
            await make_schedule(service, autopilot.autopilot_id, cron, zone)
        return {(violation.field, violation.reason) for violation in seen[0].violations}

    cron = ("schedule.cron", "INVALID_CRON")
    zone = ("schedule.time_zone", "INVALID_TIMEZONE")
    assert await refuse("INVALID_CRON", "61 * * * *", "UTC") == {cron}
    assert await refuse("INVALID_CRON", "", "UTC") == {cron}
    assert await refuse("INVALID_CRON", "0 0 30 2 *", "UTC") == {cron}
    assert await refuse("INVALID_TIMEZONE", "0 9 * * *", "Local") == {zone}
    assert await refuse("INVALID_CRON", "H * * * *", "Mars/Olympus") == {cron, zone}

    async with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_CRON") as seen:
        await make_schedule(service, autopilot.autopilot_id, "61 * * * *", "Mars/Olympus")
    assert [violation.description for violation in seen[0].violations] == [
        "minute: '61' is out of range; use 0-59",
        "'Mars/Olympus' is not a time zone; use an IANA name such as Europe/Berlin, or UTC",
    ]


async def test_a_sender_that_the_gateway_does_not_know_is_refused_by_name(
    service: Service, world: World, rows: Rows, autopilot: rule_pb.Autopilot
) -> None:
    async with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD") as seen:
        await make_webhook(service, autopilot.autopilot_id, provider="gitbub")
    (violation,) = seen[0].violations
    assert violation.field == "webhook.provider"
    assert violation.description == "must be one of: generic, github"
    assert await rows.fetchval("SELECT count(*) FROM triggers") == 0
    assert len(await versions(rows, autopilot.autopilot_id)) == 1

    # A name that was known once needs no second question.
    await make_webhook(service, autopilot.autopilot_id)
    await make_webhook(service, autopilot.autopilot_id)
    assert world.calls["CheckEndpoint"] == 2


async def test_options_that_the_gateway_refuses_are_refused_by_their_field(
    service: Service, rows: Rows, autopilot: rule_pb.Autopilot
) -> None:
    options = endpoint_pb.EndpointOptions(rate_per_minute=-1)
    stub = service.as_user(CREATOR)
    async with refused(grpc.StatusCode.INVALID_ARGUMENT, "OUT_OF_BOUNDS") as created:
        await stub.CreateTrigger(
            pb.CreateTriggerRequest(
                autopilot_id=autopilot.autopilot_id,
                webhook=rule_pb.WebhookTrigger(provider="github", options=options),
            )
        )
    assert await rows.fetchval("SELECT count(*) FROM triggers") == 0

    hook = await make_webhook(service, autopilot.autopilot_id)
    before = hook.trigger.etag
    hook.trigger.webhook.options.CopyFrom(options)
    mask = FieldMask(paths=["webhook.options"])
    async with refused(grpc.StatusCode.INVALID_ARGUMENT, "OUT_OF_BOUNDS") as updated:
        await stub.UpdateTrigger(pb.UpdateTriggerRequest(trigger=hook.trigger, update_mask=mask))
    for (error,) in (created, updated):
        assert [each.field for each in error.violations] == ["webhook.options.rate_per_minute"]
    now = await stub.GetTrigger(pb.GetTriggerRequest(trigger_id=hook.trigger.trigger_id))
    assert now.trigger.etag == before


async def test_a_webhook_that_the_gateway_refuses_later_says_so(
    service: Service, world: World, rows: Rows, autopilot: rule_pb.Autopilot
) -> None:
    world.away = {"webhook"}
    made = await make_webhook(service, autopilot.autopilot_id, provider="gitbub")
    assert not made.endpoint_ready
    world.away = set()
    await service.tick("autopilot.endpoints")

    words = "endpoint.provider: must be one of: generic, github"
    stub = service.as_user(CREATOR)
    request = pb.GetTriggerRequest(trigger_id=made.trigger.trigger_id)
    shown = (await stub.GetTrigger(request)).trigger
    assert (shown.synced, shown.sync_error) == (False, words)
    told = await service.explainer(CREATOR).Explain(
        explain_pb.ExplainRequest(id=made.trigger.trigger_id)
    )
    assert f"The gateway refuses it: {words}" in told.findings[0].text

    # It rests; a change of the row is offered at once, and being taken clears the refusal.
    asked = world.calls["PutEndpoint"]
    await service.tick("autopilot.endpoints")
    assert world.calls["PutEndpoint"] == asked
    await rows.execute("UPDATE triggers SET provider = 'github', revision = revision + 1")
    await service.tick("autopilot.endpoints")
    shown = (await stub.GetTrigger(request)).trigger
    assert (shown.synced, shown.sync_error) == (True, "")
    assert await rows.fetchval("SELECT sync_error FROM triggers") == ""


async def test_a_refusal_is_about_the_revision_that_was_sent(
    service: Service, world: World, rows: Rows, autopilot: rule_pb.Autopilot
) -> None:
    hook = await make_webhook(service, autopilot.autopilot_id)
    trigger_id = UUID(hook.trigger.trigger_id)
    database = service.app.database
    assert database is not None
    for revision in (1, 7):
        # Confirmed meanwhile, or changed meanwhile.
        async with database.session() as tx:
            await triggers.note_refused(tx, [trigger_id], [revision], ["no"])
    assert await rows.fetchval("SELECT sync_error FROM triggers") == ""


async def test_a_trigger_whose_receiver_is_away_is_sent_once_it_is_back(
    service: Service, world: World, autopilot: rule_pb.Autopilot
) -> None:
    world.away = {"webhook", "scheduler"}
    hook, schedule = await asyncio.gather(
        make_webhook(service, autopilot.autopilot_id),
        make_schedule(service, autopilot.autopilot_id),
    )
    assert hook.hook_path
    assert not hook.endpoint_ready
    assert not schedule.synced
    world.away = set()
    await service.tick("autopilot.endpoints")
    await service.tick("autopilot.scopes")
    assert hook.trigger.trigger_id in world.endpoints
    assert schedule.trigger_id in world.scopes
    shown = await service.as_user(CREATOR).GetTrigger(
        pb.GetTriggerRequest(trigger_id=hook.trigger.trigger_id)
    )
    assert shown.trigger.synced


async def test_a_scheduler_that_forgot_the_job_is_told_again(
    service: Service, world: World, autopilot: rule_pb.Autopilot
) -> None:
    await service.tick("job")
    world.jobs.clear()
    trigger = await make_schedule(service, autopilot.autopilot_id)
    assert trigger.synced
    assert trigger.trigger_id in world.scopes
    assert "autopilot_schedule_dispatch" in world.jobs


async def test_signing_secrets_pass_through_and_rest_nowhere(
    service: Service, world: World, autopilot: rule_pb.Autopilot, rows: Rows
) -> None:
    hook = await make_webhook(service, autopilot.autopilot_id)
    trigger_id = hook.trigger.trigger_id
    stub = service.as_user(CREATOR)
    request = pb.AddSigningSecretRequest(
        trigger_id=trigger_id, secret=b"a-signing-secret-abcd", request_id="r"
    )
    added = await stub.AddSigningSecret(request)
    assert added.signing_secret.hint == "abcd"
    assert await stub.AddSigningSecret(request) == added
    assert list(world.secrets[trigger_id]) == [added.signing_secret.secret_id]
    for table in ("requests", "triggers", "rule_versions"):
        dump = await rows.fetch(f"SELECT to_jsonb(t)::text AS row FROM {table} t")
        assert all("a-signing-secret" not in row["row"] for row in dump)
    # Whoever guesses the secret must not find the guess confirmed by what is kept of the request.
    kept = await rows.fetch("SELECT fingerprint FROM requests")
    assert fingerprint(request) not in [row["fingerprint"] for row in kept]
    other = pb.AddSigningSecretRequest(
        trigger_id=trigger_id, secret=b"another-secret-abcd", request_id="r"
    )
    async with refused(grpc.StatusCode.INVALID_ARGUMENT, "REQUEST_ID_REUSED"):
        await stub.AddSigningSecret(other)

    listed = await service.as_user(MEMBER).ListSigningSecrets(
        pb.ListSigningSecretsRequest(trigger_id=trigger_id)
    )
    assert list(listed.signing_secrets) == [added.signing_secret]
    removal = pb.RemoveSigningSecretRequest(
        trigger_id=trigger_id, secret_id=added.signing_secret.secret_id
    )
    await stub.RemoveSigningSecret(removal)
    assert not world.secrets[trigger_id]
    async with refused(grpc.StatusCode.NOT_FOUND, "NOT_FOUND"):
        await stub.RemoveSigningSecret(removal)
    recorded = await versions(rows, autopilot.autopilot_id)
    assert [row["change"] for row in recorded][2:] == ["secret_added", "secret_removed"]
    async with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD"):
        await stub.AddSigningSecret(
            pb.AddSigningSecretRequest(trigger_id=trigger_id, secret=b"short")
        )
    late = pb.AddSigningSecretRequest(trigger_id=trigger_id, secret=b"a-signing-secret-abcd")
    late.expire_time.FromDatetime(datetime(2020, 1, 1, tzinfo=UTC))
    async with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD") as seen:
        await stub.AddSigningSecret(late)
    assert [each.field for each in seen[0].violations] == ["expire_time"]
    assert not world.secrets[trigger_id]


async def test_a_secret_that_could_not_be_handed_over_is_added_by_the_repeat(
    service: Service, world: World, autopilot: rule_pb.Autopilot, rows: Rows
) -> None:
    hook = await make_webhook(service, autopilot.autopilot_id)
    stub = service.as_user(CREATOR)
    request = pb.AddSigningSecretRequest(
        trigger_id=hook.trigger.trigger_id, secret=b"a-signing-secret-abcd", request_id="r"
    )
    world.away = {"AddSecret"}
    async with refused(grpc.StatusCode.UNAVAILABLE, "DEPENDENCY_UNAVAILABLE"):
        await stub.AddSigningSecret(request)
    recorded = await versions(rows, autopilot.autopilot_id)
    assert "secret_added" not in [row["change"] for row in recorded]
    world.away = set()
    added = await stub.AddSigningSecret(request)
    assert list(world.secrets[hook.trigger.trigger_id]) == [added.signing_secret.secret_id]
    recorded = await versions(rows, autopilot.autopilot_id)
    assert [row["change"] for row in recorded].count("secret_added") == 1


async def test_two_editors_at_once_each_leave_a_version(
    service: Service, world: World, workspace_id: UUID, rows: Rows
) -> None:
    autopilot = await make_autopilot(service, world, workspace_id)
    await asyncio.gather(*(make_schedule(service, autopilot.autopilot_id) for _ in range(8)))
    recorded = await versions(rows, autopilot.autopilot_id)
    assert [row["sequence"] for row in recorded] == list(range(1, 10))
    assert [len(row["triggers"]) for row in recorded] == list(range(9))


async def test_rules_and_triggers_are_listed_by_page(
    service: Service, world: World, workspace_id: UUID
) -> None:
    rules = [await make_autopilot(service, world, workspace_id) for _ in range(3)]
    stub = service.as_user(MEMBER)
    first = await stub.ListAutopilots(
        pb.ListAutopilotsRequest(workspace_id=str(workspace_id), page_size=2)
    )
    rest = await stub.ListAutopilots(
        pb.ListAutopilotsRequest(
            workspace_id=str(workspace_id), page_size=2, page_token=first.next_page_token
        )
    )
    seen = [rule.autopilot_id for rule in (*first.autopilots, *rest.autopilots)]
    assert seen == [rule.autopilot_id for rule in reversed(rules)]
    triggers = [await make_schedule(service, rules[0].autopilot_id) for _ in range(3)]
    page = await stub.ListTriggers(
        pb.ListTriggersRequest(autopilot_id=rules[0].autopilot_id, page_size=2)
    )
    more = await stub.ListTriggers(
        pb.ListTriggersRequest(
            autopilot_id=rules[0].autopilot_id, page_size=2, page_token=page.next_page_token
        )
    )
    assert [each.trigger_id for each in (*page.triggers, *more.triggers)] == [
        each.trigger_id for each in triggers
    ]


async def test_a_page_of_long_rules_ends_where_its_message_is_full(
    service: Service, world: World, workspace_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = [await make_autopilot(service, world, workspace_id) for _ in range(2)]
    for rule in rules:
        await edit_rule(service, rule, prompt="x" * 3_000)
    triggers = [await make_schedule(service, rules[0].autopilot_id) for _ in range(2)]
    stub, autopilot_id = service.as_user(MEMBER), rules[0].autopilot_id

    # What alone is longer than a page still comes.
    monkeypatch.setattr(paging, "MAX_BYTES", 100)
    listed = pb.ListAutopilotsRequest(workspace_id=str(workspace_id))
    for rule in reversed(rules):
        page = await stub.ListAutopilots(listed)
        assert [each.autopilot_id for each in page.autopilots] == [rule.autopilot_id]
        assert [each.autopilot_id for each in page.summaries] == [rule.autopilot_id]
        listed.page_token = page.next_page_token
    assert not listed.page_token

    asked = pb.ListTriggersRequest(autopilot_id=autopilot_id)
    for trigger in triggers:
        shown = await stub.ListTriggers(asked)
        assert [each.trigger_id for each in shown.triggers] == [trigger.trigger_id]
        asked.page_token = shown.next_page_token
    assert not asked.page_token

    monkeypatch.setattr(paging, "MAX_BYTES", 8_000)
    told = pb.ListRuleVersionsRequest(autopilot_id=autopilot_id)
    for sequences in ([4, 3], [2, 1]):
        history = await stub.ListRuleVersions(told)
        assert [each.sequence for each in history.rule_versions] == sequences
        told.page_token = history.next_page_token
    assert not told.page_token
