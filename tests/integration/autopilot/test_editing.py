"""Edits: masks, etags, versions, and who answers for what afterwards."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias
from uuid import UUID, uuid4

import asyncpg
import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from tests.integration.autopilot.conftest import (
    ADMIN,
    CREATOR,
    Service,
    edit_rule,
    edit_trigger,
    make_autopilot,
    make_schedule,
    make_webhook,
    plan,
    refused,
    run_now,
    run_plan,
    whole_second,
)
from tests.integration.autopilot.peers import Gate, World

from reveille.autopilot.v1 import autopilot_pb2 as rule_pb
from reveille.autopilot.v1 import autopilot_service_pb2 as pb
from reveille.autopilot.v1 import rule_version_pb2 as version_pb
from reveille.autopilot.v1 import run_pb2
from reveille.common.v1 import reason_pb2

Rows: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
BOTH = grpc.StatusCode.FAILED_PRECONDITION, "WRONG_STATE"


async def history(service: Service, autopilot_id: str) -> list[version_pb.RuleVersion]:
    response = await service.as_user(CREATOR).ListRuleVersions(
        pb.ListRuleVersionsRequest(autopilot_id=autopilot_id)
    )
    return list(response.rule_versions)


async def publishers(service: Service, autopilot_id: str) -> set[str]:
    response = await service.as_user(CREATOR).ListTriggers(
        pb.ListTriggersRequest(autopilot_id=autopilot_id)
    )
    return {trigger.publisher_user_id for trigger in response.triggers}


async def test_an_edit_changes_what_its_mask_names_and_an_empty_value_clears(
    service: Service, world: World, workspace_id: UUID
) -> None:
    rule = await make_autopilot(service, world, workspace_id, issue=True, project_id=str(uuid4()))
    before = rule_pb.Autopilot()
    before.CopyFrom(rule)
    await edit_rule(service, rule, issue_title_template="", project_id="", prompt="")
    assert (rule.issue_title_template, rule.project_id, rule.prompt) == ("", "", "")
    assert (rule.title, rule.agent_id) == (before.title, before.agent_id)
    assert rule.etag != before.etag
    # Equal values change nothing: neither the etag nor the history.
    same = rule.etag
    await edit_rule(service, rule, prompt="", title=before.title)
    assert rule.etag == same
    assert len(await history(service, rule.autopilot_id)) == 2


BAD_EDITS: tuple[tuple[dict[str, Any], list[str], str], ...] = (
    ({"title": ""}, ["title"], "autopilot.title"),
    ({"title": "x"}, [], "update_mask"),
    ({"creator_user_id": "me"}, ["creator_user_id"], "update_mask"),
    ({"status": rule_pb.AUTOPILOT_STATUS_ACTIVE}, ["status"], "update_mask"),
    ({"agent_id": ""}, ["agent_id"], "autopilot.agent_id"),
    ({"execution_mode": 99}, ["execution_mode"], "autopilot.execution_mode"),
    ({"overlap_policy": 99}, ["overlap_policy"], "autopilot.overlap_policy"),
    (
        {"issue_title_template": "{{}}"},
        ["issue_title_template"],
        "autopilot.issue_title_template",
    ),
    ({"title": "x", "etag": ""}, ["title"], "autopilot.etag"),
)


async def test_a_bad_edit_is_refused_by_the_name_of_its_field(
    service: Service, autopilot: rule_pb.Autopilot
) -> None:
    for values, paths, field in BAD_EDITS:
        given = {"autopilot_id": autopilot.autopilot_id, "etag": autopilot.etag} | values
        request = pb.UpdateAutopilotRequest(autopilot=rule_pb.Autopilot(**given))
        request.update_mask.paths.extend(paths)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await service.as_user(CREATOR).UpdateAutopilot(request)
        assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert field in str(raised.value.details())


async def test_two_members_editing_at_once_never_overwrite_each_other(
    service: Service, world: World, autopilot: rule_pb.Autopilot, rows: Rows
) -> None:
    ann, bob = rule_pb.Autopilot(), rule_pb.Autopilot()
    ann.CopyFrom(autopilot)
    bob.CopyFrom(autopilot)
    results = await asyncio.gather(
        edit_rule(service, ann, CREATOR, prompt="by the creator"),
        edit_rule(service, bob, ADMIN, prompt="by the administrator"),
        return_exceptions=True,
    )
    lost = [each for each in results if isinstance(each, BaseException)]
    assert len(lost) == 1
    assert isinstance(lost[0], grpc.aio.AioRpcError)
    assert lost[0].code() is grpc.StatusCode.ABORTED
    # Responsibility follows the edit that was committed.
    stored = await rows.fetchrow("SELECT prompt FROM autopilots")
    newest, _ = await history(service, autopilot.autopilot_id)
    assert stored is not None
    assert stored["prompt"] == newest.prompt == f"by the {_words(newest.publisher_user_id)}"
    # A run in between does not make an edit stale.
    won = next(each for each in results if isinstance(each, rule_pb.Autopilot))
    await run_now(service, autopilot.autopilot_id)
    await edit_rule(service, won, title="Another title")


def _words(user_id: str) -> str:
    return {CREATOR: "creator", ADMIN: "administrator"}[user_id]


async def test_which_edit_moves_responsibility_for_which_triggers(
    service: Service, autopilot: rule_pb.Autopilot
) -> None:
    rule = autopilot
    morning = await make_schedule(service, rule.autopilot_id)
    evening = await make_schedule(service, rule.autopilot_id, "0 18 * * *")
    rule.CopyFrom(await _read(service, rule.autopilot_id))
    # A title or a project is cosmetic: recorded, but nobody takes over.
    await edit_rule(service, rule, ADMIN, title="New", project_id=str(uuid4()))
    assert await publishers(service, rule.autopilot_id) == {CREATOR}
    # A trigger's own settings move that one; a label, or equal values, move none.
    await edit_trigger(service, morning, user_id=ADMIN, label="mornings")
    assert (morning.label, morning.publisher_user_id) == ("mornings", CREATOR)
    await edit_trigger(service, morning, user_id=ADMIN, enabled=True)
    assert morning.publisher_user_id == CREATOR
    await edit_trigger(
        service,
        morning,
        "schedule.cron",
        user_id=ADMIN,
        schedule=rule_pb.ScheduleTrigger(cron="30 9 * * *"),
    )
    assert morning.publisher_user_id == ADMIN
    assert morning.schedule.time_zone == "Europe/Berlin"
    assert await publishers(service, rule.autopilot_id) == {ADMIN, CREATOR}
    # The text moves all.
    rule.CopyFrom(await _read(service, rule.autopilot_id))
    await edit_rule(service, rule, ADMIN, prompt="Look twice.")
    assert await publishers(service, rule.autopilot_id) == {ADMIN}
    told = [
        version_pb.RuleChange.Name(each.change)
        for each in await history(service, rule.autopilot_id)
    ]
    assert [each.removeprefix("RULE_CHANGE_") for each in told] == [
        "UPDATED",
        "TRIGGER_UPDATED",
        "RENAMED",
        "TRIGGER_CREATED",
        "TRIGGER_CREATED",
        "CREATED",
    ]
    newest = (await history(service, rule.autopilot_id))[0]
    assert {trigger.schedule.cron for trigger in newest.triggers} == {"30 9 * * *", "0 18 * * *"}
    assert evening.trigger_id in {trigger.trigger_id for trigger in newest.triggers}


async def test_a_run_tells_the_text_that_was_in_force_and_who_published_it(
    service: Service, world: World, autopilot: rule_pb.Autopilot
) -> None:
    rule = autopilot
    world.before["EnqueueWakeups"] = gate = Gate()
    running = asyncio.ensure_future(run_now(service, rule.autopilot_id))
    await gate.reached.wait()
    # In the middle of the dispatch the text changes: the run keeps what it was admitted with.
    await edit_rule(service, rule, ADMIN, prompt="Something else.", title="Renamed")
    gate.release.set()
    run = await running
    made = world.only().wakeup
    assert made is not None
    assert (made.prompt, made.title) == ("Look at what came in.", "Triage")
    version = (
        await service.as_user(CREATOR).GetRuleVersion(
            pb.GetRuleVersionRequest(rule_version_id=run.rule_version_id)
        )
    ).rule_version
    assert (version.prompt, version.title, version.publisher_user_id) == (
        "Look at what came in.",
        "Triage",
        CREATOR,
    )
    async with refused(grpc.StatusCode.NOT_FOUND, "NOT_FOUND"):
        await service.as_user("stranger").GetRuleVersion(
            pb.GetRuleVersionRequest(rule_version_id=run.rule_version_id)
        )


async def test_an_archived_rule_stays_and_is_never_changed_again(
    service: Service, world: World, autopilot: rule_pb.Autopilot, rows: Rows
) -> None:
    rule, user = autopilot, service.as_user(CREATOR)
    trigger = await make_schedule(service, rule.autopilot_id)
    hook = (await make_webhook(service, rule.autopilot_id)).trigger
    run = await run_now(service, rule.autopilot_id)
    archive = pb.ArchiveAutopilotRequest(autopilot_id=rule.autopilot_id)
    archived = (await user.ArchiveAutopilot(archive)).autopilot
    assert archived.status == rule_pb.AUTOPILOT_STATUS_ARCHIVED
    assert (await user.ArchiveAutopilot(archive)).autopilot.etag == archived.etag
    async with refused(*BOTH):
        await edit_rule(service, archived, prompt="x")
    async with refused(*BOTH):
        await user.ResumeAutopilot(pb.ResumeAutopilotRequest(autopilot_id=rule.autopilot_id))
    async with refused(*BOTH):
        await user.RotateWebhookToken(pb.RotateWebhookTokenRequest(trigger_id=hook.trigger_id))
    listing = pb.ListAutopilotsRequest(workspace_id=rule.workspace_id)
    assert not (await user.ListAutopilots(listing)).autopilots
    listing.statuses.append(rule_pb.AUTOPILOT_STATUS_ARCHIVED)
    assert len((await user.ListAutopilots(listing)).autopilots) == 1
    # Its schedule is off at the scheduler, its triggers, versions and runs are still there.
    await service.tick("autopilot.scopes")
    assert not world.scopes[trigger.trigger_id].enabled
    assert await rows.fetchval("SELECT count(*) FROM triggers WHERE deleted_at IS NULL") == 2
    assert (await service.run_of(run.run_id)).state == run_pb2.RUN_STATE_RUNNING
    skipped = await run_now(service, rule.autopilot_id)
    assert skipped.reason == reason_pb2.REASON_AUTOPILOT_ARCHIVED
    (result,) = await run_plan(service, plan(trigger, whole_second()))
    assert b"autopilot_archived" in result.result


async def test_a_trigger_edit_is_judged_as_a_whole(
    service: Service, autopilot: rule_pb.Autopilot
) -> None:
    trigger = await make_schedule(service, autopilot.autopilot_id)
    hook = (await make_webhook(service, autopilot.autopilot_id)).trigger
    bad: list[tuple[rule_pb.Trigger, list[str], dict[str, Any], str]] = [
        (
            trigger,
            ["schedule.cron"],
            {"schedule": rule_pb.ScheduleTrigger(cron="")},
            "schedule.cron",
        ),
        (
            trigger,
            ["schedule.time_zone"],
            {"schedule": rule_pb.ScheduleTrigger(time_zone="Local")},
            "schedule.time_zone",
        ),
        (trigger, ["webhook.max_body_bytes"], {}, "webhook.max_body_bytes"),
        (
            hook,
            ["schedule.cron"],
            {"schedule": rule_pb.ScheduleTrigger(cron="@daily")},
            "schedule.cron",
        ),
        (hook, ["webhook.provider"], {}, "update_mask"),
        (
            hook,
            ["webhook.event_filters"],
            {"webhook": rule_pb.WebhookTrigger(event_filters=[rule_pb.EventFilter(event=" ")])},
            "webhook.event_filters[0].event",
        ),
    ]
    for target, paths, values, field in bad:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await edit_trigger(service, target, *paths, **values)
        assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert field in str(raised.value.details())
    # What an answer tells beside its settings may come back with them.
    assert trigger.schedule.HasField("next_fire_time")
    trigger.schedule.cron = "0 10 * * *"
    await edit_trigger(service, trigger, "schedule.cron", schedule=trigger.schedule)
    assert trigger.schedule.cron == "0 10 * * *"
    # Filters are replaced as a list, and cleared by an empty one; the address stays as it is.
    wanted = rule_pb.WebhookTrigger(event_filters=[rule_pb.EventFilter(event="push")])
    await edit_trigger(service, hook, "webhook.event_filters", webhook=wanted)
    assert [each.event for each in hook.webhook.event_filters] == ["push"]
    await edit_trigger(service, hook, "webhook.event_filters")
    assert not hook.webhook.event_filters
    stale = rule_pb.Trigger(trigger_id=hook.trigger_id, etag="t1")
    async with refused(grpc.StatusCode.ABORTED, "ETAG_MISMATCH"):
        await edit_trigger(service, stale, label="late")


async def test_what_falls_due_before_a_schedule_is_changed_or_switched_on_does_not_count(
    service: Service, world: World, autopilot: rule_pb.Autopilot
) -> None:
    trigger = await make_schedule(service, autopilot.autopilot_id)
    made = world.scopes[trigger.trigger_id].effective_from.ToDatetime()
    service.move_clock(1000)
    await edit_trigger(service, trigger, label="only a name")
    assert world.scopes[trigger.trigger_id].effective_from.ToDatetime() == made
    await edit_trigger(
        service, trigger, "schedule.cron", schedule=rule_pb.ScheduleTrigger(cron="* * * * *")
    )
    changed = world.scopes[trigger.trigger_id].effective_from.ToDatetime()
    assert changed - made > timedelta(seconds=900)
    await edit_trigger(service, trigger, enabled=False)
    assert not world.scopes[trigger.trigger_id].enabled
    service.move_clock(2000)
    await edit_trigger(service, trigger, enabled=True)
    scope = world.scopes[trigger.trigger_id]
    assert scope.enabled
    assert scope.effective_from.ToDatetime() - changed > timedelta(seconds=900)


async def test_a_trigger_fires_once_at_its_instant_or_again_and_again(
    service: Service, world: World, autopilot: rule_pb.Autopilot
) -> None:
    at = whole_second(datetime.now(UTC) + timedelta(days=1))
    user = service.as_user(CREATOR)

    def once(moment: datetime, cron: str = "", nanos: int = 0) -> pb.CreateTriggerRequest:
        stamp = Timestamp()
        stamp.FromDatetime(moment)
        stamp.nanos += nanos
        return pb.CreateTriggerRequest(
            autopilot_id=autopilot.autopilot_id,
            schedule=rule_pb.ScheduleTrigger(run_at=stamp, cron=cron),
        )

    for bad in (
        once(at - timedelta(days=2)),
        once(at + timedelta(milliseconds=1)),
        once(at, nanos=1),
        once(at, "@daily"),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await user.CreateTrigger(bad)
        assert "schedule.run_at" in str(raised.value.details())
    trigger = (await user.CreateTrigger(once(at))).trigger
    assert trigger.schedule.next_fire_time.ToDatetime(tzinfo=UTC) == at
    scope = world.scopes[trigger.trigger_id]
    assert scope.run_at.ToDatetime(tzinfo=UTC) == at
    assert (scope.cron, scope.max_lateness.ToTimedelta()) == ("", timedelta(hours=24))
    (result,) = await run_plan(service, plan(trigger, at))
    assert b"run_id" in result.result
    # Switched on when its instant has passed, it would never fire.
    await edit_trigger(service, trigger, enabled=False)
    service.move_clock(2 * 86_400)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await edit_trigger(service, trigger, enabled=True)
    assert "schedule.run_at" in str(raised.value.details())
    # A cron takes the instant's place.
    await edit_trigger(
        service, trigger, "schedule.cron", schedule=rule_pb.ScheduleTrigger(cron="0 9 * * *")
    )
    assert not trigger.schedule.HasField("run_at")
    assert world.scopes[trigger.trigger_id].cron == "0 9 * * *"


async def test_the_target_of_a_rule_is_one_that_can_work(
    service: Service, world: World, workspace_id: UUID
) -> None:
    rule = await make_autopilot(service, world, workspace_id)
    unbound, gone, private = (world.add_agent(workspace_id) for _ in range(3))
    world.refusals = {
        str(unbound): reason_pb2.REASON_AGENT_RUNTIME_REQUIRED,
        str(gone): reason_pb2.REASON_TARGET_UNAVAILABLE,
        str(private): reason_pb2.REASON_INVOCATION_NOT_ALLOWED,
    }
    for agent in (unbound, gone):
        async with refused(*BOTH):
            await make_autopilot(service, world, workspace_id, agent_id=str(agent))
        async with refused(*BOTH):
            await edit_rule(service, rule, agent_id=str(agent))
    # Who may wake an agent is judged at each run; a squad with a private leader is refused at once.
    await edit_rule(service, rule, agent_id=str(private))
    squad = world.add_squad(workspace_id, private)
    async with refused(grpc.StatusCode.PERMISSION_DENIED, "INVOCATION_NOT_ALLOWED"):
        await make_autopilot(service, world, workspace_id, squad_id=str(squad))
    async with refused(grpc.StatusCode.PERMISSION_DENIED, "INVOCATION_NOT_ALLOWED"):
        await edit_rule(service, rule, squad_id=str(squad))
    async with refused(grpc.StatusCode.NOT_FOUND, "NOT_FOUND"):
        await edit_rule(service, rule, squad_id=str(uuid4()))
    # Paused, it may wait for a runtime; but not be resumed before there is one.
    user = service.as_user(CREATOR)
    paused = pb.PauseAutopilotRequest(autopilot_id=rule.autopilot_id)
    rule.CopyFrom((await user.PauseAutopilot(paused)).autopilot)
    await edit_rule(service, rule, agent_id=str(unbound))
    async with refused(*BOTH):
        await user.ResumeAutopilot(pb.ResumeAutopilotRequest(autopilot_id=rule.autopilot_id))
    world.refusals = {}
    resumed = await user.ResumeAutopilot(pb.ResumeAutopilotRequest(autopilot_id=rule.autopilot_id))
    assert resumed.autopilot.status == rule_pb.AUTOPILOT_STATUS_ACTIVE


async def test_a_squads_leader_works_and_its_issue_stays_with_the_squad(
    service: Service, world: World, workspace_id: UUID
) -> None:
    leader = world.add_agent(workspace_id)
    squad = world.add_squad(workspace_id, leader)
    wakes = await make_autopilot(service, world, workspace_id, squad_id=str(squad))
    project = str(uuid4())
    issues = await make_autopilot(
        service, world, workspace_id, squad_id=str(squad), issue=True, project_id=project
    )
    run = await run_now(service, wakes.autopilot_id)
    assert (run.squad_id, run.agent_id) == (str(squad), str(leader))
    woken = world.made[run.occurrence_key].wakeup
    assert woken is not None
    assert woken.agent_id == str(leader)
    run = await run_now(service, issues.autopilot_id)
    made = world.made[run.occurrence_key].issue
    assert made is not None
    assert (made.assignee_squad_id, made.assignee_agent_id) == (str(squad), "")
    assert (made.project_id, run.project_id) == (project, project)
    assert world.questions[-1].project_id == project
    plain = await run_now(
        service, (await make_autopilot(service, world, workspace_id)).autopilot_id
    )
    assert plain.squad_id == ""


async def test_the_database_holds_who_answers_for_a_run_and_what_was_published(
    service: Service, autopilot: rule_pb.Autopilot, rows: Rows
) -> None:
    await run_now(service, autopilot.autopilot_id)
    for change in (
        "UPDATE runs SET originator_user_id = 'somebody else'",
        "UPDATE runs SET accountable_user_id = NULL, attribution_source = NULL",
        "UPDATE runs SET attribution_source = NULL",
    ):
        with pytest.raises(asyncpg.CheckViolationError):
            await rows.execute(change)
    for change in (
        "UPDATE rule_versions SET prompt = 'never said'",
        "DELETE FROM rule_versions",
        "TRUNCATE rule_versions",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await rows.execute(change)


async def _read(service: Service, autopilot_id: str) -> rule_pb.Autopilot:
    response = await service.as_user(CREATOR).GetAutopilot(
        pb.GetAutopilotRequest(autopilot_id=autopilot_id)
    )
    rule: rule_pb.Autopilot = response.autopilot
    return rule
