"""People: who may change what, who follows a rule, and what becomes of those who leave."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg
import grpc
import pytest
from tests.integration.autopilot.conftest import (
    ADMIN,
    CREATOR,
    MEMBER,
    STRANGER,
    Service,
    blocked,
    edit_rule,
    make_autopilot,
    make_schedule,
    make_webhook,
    plan,
    refused,
    run_now,
    run_plan,
    whole_second,
)
from tests.integration.autopilot.peers import World

from reveille.autopilot.v1 import autopilot_pb2 as rule_pb
from reveille.autopilot.v1 import autopilot_service_pb2 as pb
from reveille.autopilot.v1 import run_pb2
from reveille.autopilot.v1 import workspace_service_pb2 as workspace_pb
from reveille.common.v1.access_pb2 import ROLE_ADMIN, ROLE_MEMBER, ROLE_OWNER
from reveille.heartbeat.v1 import workspace_replica_service_pb2 as replica_pb
from reveille_testkit.database import TestDatabase

Rows: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
WEAK = grpc.StatusCode.PERMISSION_DENIED, "ROLE_TOO_WEAK"
UNKNOWN = grpc.StatusCode.NOT_FOUND, "NOT_FOUND"


def granting(rule: rule_pb.Autopilot, user_id: str) -> pb.AddCollaboratorRequest:
    return pb.AddCollaboratorRequest(autopilot_id=rule.autopilot_id, user_id=user_id)


async def test_every_write_is_refused_to_a_plain_member_and_unknown_to_a_stranger(
    service: Service, autopilot: rule_pb.Autopilot
) -> None:
    rule, hook = autopilot, await make_webhook(service, autopilot.autopilot_id)
    of_rule: dict[str, Any] = {"autopilot_id": rule.autopilot_id}
    of_trigger: dict[str, Any] = {"trigger_id": hook.trigger.trigger_id}
    edit = pb.UpdateAutopilotRequest(autopilot=rule_pb.Autopilot(title="x", etag="v1", **of_rule))
    edit.update_mask.paths.append("title")
    of_hook = pb.UpdateTriggerRequest(trigger=rule_pb.Trigger(label="x", etag="t1", **of_trigger))
    of_hook.update_mask.paths.append("label")
    secret = pb.AddSigningSecretRequest(secret=b"0" * 16, **of_trigger)
    removed = pb.RemoveSigningSecretRequest(secret_id=rule.autopilot_id, **of_trigger)
    writes: list[tuple[str, Any]] = [
        ("UpdateAutopilot", edit),
        ("PauseAutopilot", pb.PauseAutopilotRequest(**of_rule)),
        ("ResumeAutopilot", pb.ResumeAutopilotRequest(**of_rule)),
        ("ArchiveAutopilot", pb.ArchiveAutopilotRequest(**of_rule)),
        ("RunAutopilot", pb.RunAutopilotRequest(**of_rule)),
        ("AddCollaborator", granting(rule, MEMBER)),
        ("RemoveCollaborator", pb.RemoveCollaboratorRequest(user_id=MEMBER, **of_rule)),
        (
            "CreateTrigger",
            pb.CreateTriggerRequest(schedule=rule_pb.ScheduleTrigger(cron="@daily"), **of_rule),
        ),
        ("UpdateTrigger", of_hook),
        ("DeleteTrigger", pb.DeleteTriggerRequest(**of_trigger)),
        ("RotateWebhookToken", pb.RotateWebhookTokenRequest(**of_trigger)),
        ("AddSigningSecret", secret),
        ("RemoveSigningSecret", removed),
    ]
    for name, request in writes:
        async with refused(*WEAK):
            await getattr(service.as_user(MEMBER), name)(request)
        async with refused(*UNKNOWN):
            await getattr(service.as_user(STRANGER), name)(request)


async def test_a_collaborator_changes_the_rule_and_lets_nobody_in(
    service: Service, autopilot: rule_pb.Autopilot, rows: Rows
) -> None:
    user, member = service.as_user(CREATOR), service.as_user(MEMBER)
    granted = (await user.AddCollaborator(granting(autopilot, MEMBER))).collaborator
    assert (granted.user_id, granted.granted_by_user_id) == (MEMBER, CREATOR)
    again = (await service.as_user(ADMIN).AddCollaborator(granting(autopilot, MEMBER))).collaborator
    assert (again.granted_by_user_id, again.create_time) == (ADMIN, granted.create_time)
    seen = (
        await member.GetAutopilot(pb.GetAutopilotRequest(autopilot_id=autopilot.autopilot_id))
    ).summary
    assert (seen.can_write, seen.can_manage_access) == (True, False)
    await edit_rule(service, autopilot, MEMBER, prompt="By a collaborator.")
    run = await run_now(service, autopilot.autopilot_id, MEMBER)
    assert (run.state, run.originator_user_id) == (run_pb2.RUN_STATE_RUNNING, MEMBER)
    async with refused(*WEAK):
        await member.AddCollaborator(granting(autopilot, ADMIN))
    async with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD"):
        await user.AddCollaborator(granting(autopilot, STRANGER))
    listed = await member.ListCollaborators(
        pb.ListCollaboratorsRequest(autopilot_id=autopilot.autopilot_id)
    )
    assert [each.user_id for each in listed.collaborators] == [MEMBER]
    leaving = pb.RemoveCollaboratorRequest(autopilot_id=autopilot.autopilot_id, user_id=MEMBER)
    async with refused(*WEAK):
        await member.RemoveCollaborator(leaving)
    for _ in range(2):
        await user.RemoveCollaborator(leaving)
    async with refused(*WEAK):
        await edit_rule(service, autopilot, MEMBER, prompt="Too late.")
    # Who may change it is no part of what it says.
    assert await rows.fetchval("SELECT count(*) FROM rule_versions") == 2


async def test_followers_are_members_kept_as_a_list_and_subscribe_to_created_issues(
    service: Service, world: World, workspace_id: UUID, rows: Rows
) -> None:
    async with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD"):
        await make_autopilot(service, world, workspace_id, subscriber_user_ids=[MEMBER, STRANGER])
    assert await rows.fetchval("SELECT count(*) FROM autopilots") == 0
    rule = await make_autopilot(
        service, world, workspace_id, issue=True, subscriber_user_ids=[MEMBER, ADMIN, MEMBER]
    )
    assert list(rule.subscriber_user_ids) == [ADMIN, MEMBER]
    run = await run_now(service, rule.autopilot_id)
    issue = world.made[run.occurrence_key].issue
    assert issue is not None
    assert list(issue.subscriber_user_ids) == [ADMIN, MEMBER]
    # Another edit keeps them; a refused one changes nothing at all.
    await edit_rule(service, rule, title="Renamed")
    assert list(rule.subscriber_user_ids) == [ADMIN, MEMBER]
    etag = rule.etag
    async with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD"):
        await edit_rule(service, rule, title="Again", subscriber_user_ids=[STRANGER])
    stored = await rows.fetchrow("SELECT title, rule_sequence FROM autopilots")
    assert stored is not None
    assert (stored["title"], rule.etag) == ("Renamed", etag)
    # The list is replaced, which no version records; an empty one clears it.
    await edit_rule(service, rule, subscriber_user_ids=[])
    assert not rule.subscriber_user_ids
    assert rule.etag != etag
    assert await rows.fetchval("SELECT count(*) FROM rule_versions") == stored["rule_sequence"]
    run = await run_now(service, rule.autopilot_id)
    issue = world.made[run.occurrence_key].issue
    assert issue is not None
    assert not issue.subscriber_user_ids


async def test_a_list_tells_what_a_rule_has_and_did(
    service: Service, world: World, workspace_id: UUID
) -> None:
    busy = await make_autopilot(service, world, workspace_id)
    idle = await make_autopilot(service, world, workspace_id)
    first = await make_schedule(service, busy.autopilot_id, "0 9 * * *", "UTC")
    await make_schedule(service, busy.autopilot_id, "0 0 1 1 *", "UTC")
    await make_webhook(service, busy.autopilot_id)
    run = await run_now(service, busy.autopilot_id)
    listed = await service.as_user(MEMBER).ListAutopilots(
        pb.ListAutopilotsRequest(workspace_id=str(workspace_id))
    )
    known = {each.autopilot_id: each for each in listed.summaries}
    assert [each.autopilot_id for each in listed.autopilots] == [
        each.autopilot_id for each in listed.summaries
    ]
    told = known[busy.autopilot_id]
    assert list(told.trigger_kinds) == [
        rule_pb.TRIGGER_KIND_SCHEDULE,
        rule_pb.TRIGGER_KIND_WEBHOOK,
    ]
    assert told.next_fire_time == first.schedule.next_fire_time
    assert (told.last_run_id, told.last_run_state) == (run.run_id, run_pb2.RUN_STATE_RUNNING)
    assert (told.can_write, told.can_manage_access) == (False, False)
    nothing = known[idle.autopilot_id]
    assert (list(nothing.trigger_kinds), nothing.last_run_id) == ([], "")
    assert not nothing.HasField("next_fire_time")


async def test_who_leaves_a_workspace_takes_every_right_along(
    service: Service, world: World, workspace_id: UUID, autopilot: rule_pb.Autopilot
) -> None:
    trigger = await make_schedule(service, autopilot.autopilot_id)
    await service.as_user(CREATOR).AddCollaborator(granting(autopilot, MEMBER))
    leave = service.workspaces(CREATOR, operator=False).RemoveMember
    request = workspace_pb.RemoveMemberRequest(workspace_id=str(workspace_id), user_id=CREATOR)
    await leave(request)
    async with refused(*UNKNOWN):
        await run_now(service, autopilot.autopilot_id)
    # What the creator published goes on in another's name.
    await run_plan(service, plan(trigger, whole_second()))
    assert world.only().wakeup is not None
    listed = await service.as_service().ListRuns(pb.ListRunsRequest(workspace_id=str(workspace_id)))
    assert listed.runs[0].accountable_user_id == "agent-owner"
    owners = service.workspaces("owner", operator=False)
    await owners.RemoveMember(
        workspace_pb.RemoveMemberRequest(workspace_id=str(workspace_id), user_id=MEMBER)
    )
    await owners.AddMember(
        workspace_pb.AddMemberRequest(
            workspace_id=str(workspace_id), user_id=MEMBER, role=ROLE_MEMBER
        )
    )
    async with refused(*WEAK):
        await run_now(service, autopilot.autopilot_id, MEMBER)


async def test_who_leaves_just_then_is_let_in_nowhere_and_follows_nothing(
    service: Service,
    workspace_id: UUID,
    autopilot: rule_pb.Autopilot,
    database: TestDatabase,
    rows: Rows,
) -> None:
    """What was granted behind the back of the one who leaves would be theirs on their return."""
    holder = await database.connect("reveille_autopilot_app")
    async with holder.transaction():
        await holder.execute("DELETE FROM members WHERE user_id = $1", MEMBER)
        calls = [
            asyncio.ensure_future(call)
            for call in (
                service.as_user(CREATOR).AddCollaborator(granting(autopilot, MEMBER)),
                edit_rule(service, autopilot, subscriber_user_ids=[MEMBER]),
            )
        ]
        await blocked(rows, len(calls))
    for each in calls:
        async with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD"):
            await each
    for table in ("collaborators", "subscribers"):
        assert await rows.fetchval(f"SELECT count(*) FROM {table}") == 0


Change = Callable[[Any, str], Awaitable[Any]]


async def _demote(stub: Any, workspace_id: str) -> Any:
    return await stub.UpdateMember(
        workspace_pb.UpdateMemberRequest(
            workspace_id=workspace_id, user_id="owner", role=ROLE_ADMIN
        )
    )


async def _add_as_less(stub: Any, workspace_id: str) -> Any:
    return await stub.AddMember(
        workspace_pb.AddMemberRequest(workspace_id=workspace_id, user_id="owner", role=ROLE_MEMBER)
    )


async def _remove(stub: Any, workspace_id: str) -> Any:
    return await stub.RemoveMember(
        workspace_pb.RemoveMemberRequest(workspace_id=workspace_id, user_id="owner")
    )


async def test_one_owner_always_stays_and_owners_are_the_owners_affair(
    service: Service, world: World, workspace_id: UUID
) -> None:
    owner = service.workspaces("owner", operator=False)
    changes: tuple[Change, ...] = (_demote, _add_as_less, _remove)
    for change in changes:
        async with refused(*WEAK):
            await change(service.workspaces(ADMIN, operator=False), str(workspace_id))
        async with refused(grpc.StatusCode.FAILED_PRECONDITION, "WRONG_STATE"):
            await change(owner, str(workspace_id))
    promoted = await owner.UpdateMember(
        workspace_pb.UpdateMemberRequest(
            workspace_id=str(workspace_id), user_id=ADMIN, role=ROLE_OWNER
        )
    )
    assert promoted.member.role == ROLE_OWNER
    assert world.workspaces[str(workspace_id)].default_responsible_user_id == "owner"
    await _remove(owner, str(workspace_id))
    # Where nobody else could be named, the owner who left answered; another one does now.
    assert world.workspaces[str(workspace_id)].default_responsible_user_id == ADMIN
    async with refused(*UNKNOWN):
        await owner.GetWorkspace(workspace_pb.GetWorkspaceRequest(workspace_id=str(workspace_id)))
    with pytest.raises(grpc.aio.AioRpcError):
        await service.workspaces(MEMBER, operator=False).UpdateMember(
            workspace_pb.UpdateMemberRequest(
                workspace_id=str(workspace_id), user_id=MEMBER, role=ROLE_ADMIN
            )
        )


async def test_who_is_removed_while_they_wait_for_the_workspace_changes_nothing_in_it(
    service: Service, workspace_id: UUID, database: TestDatabase, rows: Rows
) -> None:
    """An administrator on the way out would bring themselves back in."""
    admin = service.workspaces(ADMIN, operator=False)
    of_it = {"workspace_id": str(workspace_id)}
    read = await admin.GetWorkspace(workspace_pb.GetWorkspaceRequest(**of_it))
    renamed = workspace_pb.UpdateWorkspaceRequest(workspace=read.workspace)
    renamed.workspace.name = "Mine"
    renamed.update_mask.paths.append("name")
    holder = await database.connect("reveille_autopilot_app")
    async with holder.transaction():
        await holder.execute("SELECT FROM workspaces WHERE id = $1 FOR UPDATE", workspace_id)
        calls = [
            asyncio.ensure_future(call)
            for call in (
                admin.AddMember(
                    workspace_pb.AddMemberRequest(user_id=ADMIN, role=ROLE_ADMIN, **of_it)
                ),
                admin.UpdateMember(
                    workspace_pb.UpdateMemberRequest(user_id=MEMBER, role=ROLE_ADMIN, **of_it)
                ),
                admin.RemoveMember(workspace_pb.RemoveMemberRequest(user_id=CREATOR, **of_it)),
                admin.UpdateWorkspace(renamed),
            )
        ]
        await blocked(rows, len(calls))
        await holder.execute("DELETE FROM members WHERE user_id = $1", ADMIN)
    for call in calls:
        async with refused(*UNKNOWN):
            await call
    left = await rows.fetch("SELECT user_id FROM members WHERE role <> 'owner' ORDER BY user_id")
    assert [row["user_id"] for row in left] == [CREATOR, MEMBER]


async def test_a_workspace_is_changed_by_its_managers_and_heartbeat_hears_of_it(
    service: Service, world: World, workspace_id: UUID
) -> None:
    admin = service.workspaces(ADMIN, operator=False)
    read = await admin.GetWorkspace(
        workspace_pb.GetWorkspaceRequest(workspace_id=str(workspace_id))
    )
    request = workspace_pb.UpdateWorkspaceRequest(workspace=read.workspace)
    request.workspace.name = "Acme and sons"
    request.workspace.default_responsible_user_id = ADMIN
    request.update_mask.paths.extend(["name", "default_responsible_user_id"])
    async with refused(*WEAK):
        await service.workspaces(MEMBER, operator=False).UpdateWorkspace(request)
    changed = (await admin.UpdateWorkspace(request)).workspace
    assert (changed.name, changed.issue_prefix) == ("Acme and sons", "ACME")
    assert world.workspaces[str(workspace_id)].default_responsible_user_id == ADMIN
    async with refused(grpc.StatusCode.ABORTED, "ETAG_MISMATCH"):
        await admin.UpdateWorkspace(request)
    request.workspace.etag = changed.etag
    request.workspace.default_responsible_user_id = STRANGER
    async with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD"):
        await admin.UpdateWorkspace(request)


async def test_work_in_a_workspace_is_paused_for_a_while_and_archived_for_good(
    service: Service, world: World, workspace_id: UUID
) -> None:
    admin = service.workspaces(ADMIN, operator=False)
    read = workspace_pb.GetWorkspaceRequest(workspace_id=str(workspace_id))

    async def move(status: workspace_pb.WorkspaceStatus.ValueType) -> int:
        workspace = (await admin.GetWorkspace(read)).workspace
        workspace.status = status
        request = workspace_pb.UpdateWorkspaceRequest(workspace=workspace)
        request.update_mask.paths.append("status")
        assert (await admin.UpdateWorkspace(request)).workspace.status == status
        return world.workspaces[str(workspace_id)].status

    assert await move(workspace_pb.WORKSPACE_STATUS_PAUSED) == replica_pb.WORKSPACE_STATUS_PAUSED
    assert await move(workspace_pb.WORKSPACE_STATUS_ACTIVE) == replica_pb.WORKSPACE_STATUS_ACTIVE
    archived = replica_pb.WORKSPACE_STATUS_ARCHIVED
    assert await move(workspace_pb.WORKSPACE_STATUS_ARCHIVED) == archived
    async with refused(grpc.StatusCode.FAILED_PRECONDITION, "WRONG_STATE"):
        await move(workspace_pb.WORKSPACE_STATUS_ACTIVE)
    assert world.workspaces[str(workspace_id)].status == archived
