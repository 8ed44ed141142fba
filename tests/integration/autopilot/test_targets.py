"""What becomes of rules when runtimes, squads and agents change, by events and by reconcile."""

from __future__ import annotations

from typing import Any, TypeAlias
from uuid import UUID, uuid4

import asyncpg
import grpc
import pytest
from tests.integration.autopilot.conftest import (
    CREATOR,
    MEMBER,
    Service,
    Stage,
    keep_up,
    make_autopilot,
    make_schedule,
    refused,
    run_now,
    until,
)
from tests.integration.autopilot.peers import Made, World

from reveille.autopilot.v1 import autopilot_pb2 as rule_pb
from reveille.autopilot.v1 import autopilot_service_pb2 as pb
from reveille.autopilot.v1 import rule_version_pb2 as version_pb
from reveille.autopilot.v1 import run_pb2
from reveille.common.v1 import reason_pb2
from reveille.events.v1 import event_service_pb2 as event_pb
from reveille.heartbeat.v1 import squad_pb2, wakeup_pb2
from reveille_autopilot.domain.models import Autopilot
from reveille_autopilot.usecases import publish as publishing
from reveille_autopilot.usecases import system
from reveille_runtime.db import Tx

Rows: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
UNBOUND = reason_pb2.REASON_AGENT_RUNTIME_REQUIRED


async def read(service: Service, rule: rule_pb.Autopilot) -> rule_pb.Autopilot:
    response = await service.as_user(CREATOR).GetAutopilot(
        pb.GetAutopilotRequest(autopilot_id=rule.autopilot_id)
    )
    found: rule_pb.Autopilot = response.autopilot
    return found


async def paused(service: Service, rule: rule_pb.Autopilot) -> None:
    async def look() -> bool:
        return (await read(service, rule)).status == rule_pb.AUTOPILOT_STATUS_PAUSED

    await until(look, "it is paused")


async def newest(service: Service, rule: rule_pb.Autopilot) -> version_pb.RuleVersion:
    response = await service.as_user(CREATOR).ListRuleVersions(
        pb.ListRuleVersionsRequest(autopilot_id=rule.autopilot_id, page_size=1)
    )
    found: version_pb.RuleVersion = response.rule_versions[0]
    return found


def completed(world: World, made: Made) -> event_pb.Event:
    """Give the event of an outcome that no look at the wakeup finds: only the feed tells of it."""
    state = made.state
    event = world.settled(made, wakeup_pb2.WAKEUP_STATE_COMPLETED)
    made.state = state
    return event


def refuse_to_publish(monkeypatch: pytest.MonkeyPatch, refused_rule: rule_pb.Autopilot) -> None:
    async def publish(tx: Tx, rule: Autopilot, *given: Any, **more: Any) -> Any:
        if str(rule.id) == refused_rule.autopilot_id:
            raise RuntimeError("it cannot be published")
        return await publishing.publish(tx, rule, *given, **more)

    monkeypatch.setattr(system, "publish", publish)


async def test_a_deleted_runtime_pauses_what_its_agents_work_for_and_nothing_resumes_by_itself(
    service: Service, world: World, workspace_id: UUID, rows: Rows
) -> None:
    agent, other = world.add_agent(workspace_id), world.add_agent(workspace_id)
    squad = world.add_squad(workspace_id, agent)
    by_agent = await make_autopilot(
        service, world, workspace_id, agent_id=str(agent), subscriber_user_ids=[MEMBER]
    )
    by_squad = await make_autopilot(service, world, workspace_id, squad_id=str(squad))
    unconcerned = await make_autopilot(service, world, workspace_id, agent_id=str(other))
    trigger = await make_schedule(service, by_agent.autopilot_id)
    world.refusals = {str(agent): UNBOUND}
    gone = world.target_event("runtime.deleted", workspace_id, uuid4(), agent_ids=[str(agent)])
    await world.emit(gone, gone)
    for rule in (by_agent, by_squad):
        await paused(service, rule)
        found = await read(service, rule)
        assert found.pause_reason == UNBOUND
        # Published by nobody, and once although the event came twice.
        version = await newest(service, rule)
        assert (version.change, version.publisher_user_id) == (version_pb.RULE_CHANGE_PAUSED, "")
    assert (await newest(service, by_squad)).sequence == 2
    assert (await read(service, unconcerned)).status == rule_pb.AUTOPILOT_STATUS_ACTIVE
    await service.tick("autopilot.scopes")
    assert not world.scopes[trigger.trigger_id].enabled
    # Its creator and its followers are told; its triggers are nobody else's for that.
    notices = await rows.fetch("SELECT payload FROM feed WHERE type = 'autopilot.notice'")
    told = {
        payload["autopilot_id"]: payload["user_ids"]
        for payload in (row["payload"] for row in notices)
    }
    assert told[by_agent.autopilot_id] == [CREATOR, MEMBER]
    assert len(notices) == 2
    assert await rows.fetchval("SELECT publisher_user_id FROM triggers") == CREATOR
    resume = pb.ResumeAutopilotRequest(autopilot_id=by_agent.autopilot_id)
    async with refused(grpc.StatusCode.FAILED_PRECONDITION, "WRONG_STATE"):
        await service.as_user(CREATOR).ResumeAutopilot(resume)
    world.refusals = {}
    resumed = (await service.as_user(CREATOR).ResumeAutopilot(resume)).autopilot
    assert (resumed.status, resumed.pause_reason) == (
        rule_pb.AUTOPILOT_STATUS_ACTIVE,
        reason_pb2.REASON_UNSPECIFIED,
    )


async def test_a_new_leader_without_a_runtime_pauses_that_squads_rules_only(
    service: Service, world: World, workspace_id: UUID
) -> None:
    leader, unbound = world.add_agent(workspace_id), world.add_agent(workspace_id)
    rotated, steady = (world.add_squad(workspace_id, leader) for _ in range(2))
    concerned = await make_autopilot(service, world, workspace_id, squad_id=str(rotated))
    others = await make_autopilot(service, world, workspace_id, squad_id=str(steady))
    world.refusals = {str(unbound): UNBOUND}
    world.squads[str(rotated)].leader_agent_id = str(unbound)
    await world.emit(world.target_event("squad.updated", workspace_id, rotated))
    await paused(service, concerned)
    assert (await read(service, concerned)).pause_reason == UNBOUND
    assert (await read(service, others)).status == rule_pb.AUTOPILOT_STATUS_ACTIVE


async def test_an_archived_squads_rules_go_to_its_leader_in_force_or_not(
    service: Service, world: World, workspace_id: UUID
) -> None:
    leader = world.add_agent(workspace_id)
    squad = world.add_squad(workspace_id, leader)
    active, resting = [
        await make_autopilot(service, world, workspace_id, squad_id=str(squad)) for _ in range(2)
    ]
    await service.as_user(CREATOR).PauseAutopilot(
        pb.PauseAutopilotRequest(autopilot_id=resting.autopilot_id)
    )
    world.squads[str(squad)].state = squad_pb2.SQUAD_STATE_ARCHIVED
    archived = world.target_event("squad.archived", workspace_id, squad)
    await world.emit(archived)

    async def both_handed_over() -> bool:
        found = [await read(service, rule) for rule in (active, resting)]
        return [each.agent_id for each in found] == [str(leader)] * 2

    await until(both_handed_over, "the leader works for both")
    found = await read(service, active)
    assert (found.squad_id, found.status) == ("", rule_pb.AUTOPILOT_STATUS_ACTIVE)
    version = await newest(service, active)
    assert (version.change, version.publisher_user_id) == (version_pb.RULE_CHANGE_RETARGETED, "")
    assert (await read(service, resting)).status == rule_pb.AUTOPILOT_STATUS_PAUSED
    assert (await run_now(service, active.autopilot_id)).state == run_pb2.RUN_STATE_RUNNING
    # Again, it changes nothing.
    await world.emit(archived)
    await world.emit(world.target_event("squad.updated", workspace_id, squad))
    assert (await newest(service, active)).sequence == version.sequence


async def test_a_paused_rule_of_a_squad_that_was_archived_unheard_goes_to_its_leader_by_the_hour(
    service: Service, world: World, workspace_id: UUID
) -> None:
    leader = world.add_agent(workspace_id)
    archived, steady = (world.add_squad(workspace_id, leader) for _ in range(2))
    resting, other, gone = [
        await make_autopilot(service, world, workspace_id, squad_id=str(each))
        for each in (archived, steady, archived)
    ]
    user = service.as_user(CREATOR)
    for rule in (resting, other):
        await user.PauseAutopilot(pb.PauseAutopilotRequest(autopilot_id=rule.autopilot_id))
    await user.ArchiveAutopilot(pb.ArchiveAutopilotRequest(autopilot_id=gone.autopilot_id))
    world.squads[str(archived)].state = squad_pb2.SQUAD_STATE_ARCHIVED
    await keep_up(service, "autopilot_monitor")
    found = await read(service, resting)
    assert (found.agent_id, found.squad_id) == (str(leader), "")
    assert found.status == rule_pb.AUTOPILOT_STATUS_PAUSED
    assert (await newest(service, resting)).change == version_pb.RULE_CHANGE_RETARGETED
    # What can work, or never will again, stays as it is.
    for rule in (other, gone):
        assert (await read(service, rule)).squad_id == rule.squad_id
    await user.ResumeAutopilot(pb.ResumeAutopilotRequest(autopilot_id=resting.autopilot_id))


async def test_an_archived_agent_pauses_its_rules_also_when_the_event_was_missed(
    service: Service, stage: Stage, world: World, workspace_id: UUID, rows: Rows
) -> None:
    agent, later = world.add_agent(workspace_id), world.add_agent(workspace_id)
    told = await make_autopilot(service, world, workspace_id, agent_id=str(agent))
    missed = await make_autopilot(service, world, workspace_id, agent_id=str(later))
    world.refusals[str(agent)] = reason_pb2.REASON_TARGET_UNAVAILABLE
    # Heartbeat cannot be asked for a moment: the event is handled again, not forgotten.
    world.away = {"CheckInvocable"}
    await world.emit(world.target_event("agent.archived", workspace_id, agent))
    await until(lambda: world.calls["CheckInvocable"] >= 4, "it is asked again")
    assert (await read(service, told)).status == rule_pb.AUTOPILOT_STATUS_ACTIVE
    world.away = set()
    await paused(service, told)
    assert (await read(service, told)).pause_reason == reason_pb2.REASON_TARGET_UNAVAILABLE
    await service.close()
    # Nobody hears of the second one, and the place in the feed is lost.
    world.refusals[str(later)] = reason_pb2.REASON_TARGET_UNAVAILABLE
    await rows.execute("DELETE FROM cursors")
    other = await stage.start()
    await paused(other, missed)


async def test_a_rule_that_cannot_be_judged_holds_nobody_up_and_is_judged_by_a_later_look(
    service: Service, world: World, workspace_id: UUID
) -> None:
    unjudged, archived = world.add_agent(workspace_id), world.add_agent(workspace_id)
    stuck = await make_autopilot(service, world, workspace_id, agent_id=str(unjudged))
    other = await make_autopilot(service, world, workspace_id, agent_id=str(archived))
    working = await make_autopilot(service, world, workspace_id)
    running = await run_now(service, working.autopilot_id)
    made = world.only()
    world.broken = {str(unjudged)}
    gone = [str(unjudged), str(archived)]
    world.refusals = dict.fromkeys(gone, UNBOUND)
    asked = world.calls["CheckInvocable"]
    # Both are asked about in one call.
    await world.emit(world.target_event("runtime.deleted", workspace_id, uuid4(), agent_ids=gone))
    await until(lambda: world.calls["CheckInvocable"] > asked, "it is asked about")
    # What comes while that is handled waits for it.
    await world.emit(completed(world, made))
    assert (await service.ended(running.run_id)).state == run_pb2.RUN_STATE_COMPLETED
    await paused(service, other)
    assert (await read(service, stuck)).status == rule_pb.AUTOPILOT_STATUS_ACTIVE
    # An error at the gate is neither a pass nor a skip.
    async with refused(grpc.StatusCode.UNAVAILABLE, "DEPENDENCY_UNAVAILABLE"):
        await run_now(service, stuck.autopilot_id)
    # No event tells of it again.
    world.broken = set()
    await keep_up(service, "autopilot_monitor")
    assert (await read(service, stuck)).pause_reason == UNBOUND


async def test_rules_that_cannot_be_changed_stop_no_reconcile_nor_the_events_after_it(
    service: Service,
    stage: Stage,
    world: World,
    workspace_id: UUID,
    rows: Rows,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leader = world.add_agent(workspace_id)
    squads = [world.add_squad(workspace_id, leader) for _ in range(3)]
    made = [
        await make_autopilot(service, world, workspace_id, squad_id=str(each)) for each in squads
    ]
    # They are looked at in the order of their ids.
    unread, unpublished, other = sorted(made, key=lambda rule: rule.autopilot_id)
    working = await make_autopilot(service, world, workspace_id)
    running = await run_now(service, working.autopilot_id)
    await service.close()
    # While nobody hears of it, the squads are archived, and the place in the feed is lost.
    for squad in squads:
        world.squads[str(squad)].state = squad_pb2.SQUAD_STATE_ARCHIVED
    await rows.execute("DELETE FROM cursors")
    world.broken = {unread.squad_id}
    refuse_to_publish(monkeypatch, unpublished)
    again = await stage.start()

    async def handed_over() -> bool:
        return (await read(again, other)).agent_id == str(leader)

    await until(handed_over, "the leader works for the one that can be changed")
    await world.emit(completed(world, world.only()))
    assert (await again.ended(running.run_id)).state == run_pb2.RUN_STATE_COMPLETED
    for rule in (unread, unpublished):
        assert (await read(again, rule)).squad_id == rule.squad_id
    monkeypatch.undo()
    world.broken = set()
    await keep_up(again, "autopilot_monitor")
    for rule in (unread, unpublished):
        assert (await read(again, rule)).agent_id == str(leader)


async def test_a_paused_rule_that_cannot_be_handed_over_keeps_no_other_of_its_squad_from_it(
    service: Service, world: World, workspace_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = world.add_agent(workspace_id)
    squad = world.add_squad(workspace_id, leader)
    made = [
        await make_autopilot(service, world, workspace_id, squad_id=str(squad)) for _ in range(2)
    ]
    for rule in made:
        await service.as_user(CREATOR).PauseAutopilot(
            pb.PauseAutopilotRequest(autopilot_id=rule.autopilot_id)
        )
    unpublished, other = sorted(made, key=lambda rule: rule.autopilot_id)
    refuse_to_publish(monkeypatch, unpublished)
    world.squads[str(squad)].state = squad_pb2.SQUAD_STATE_ARCHIVED
    await world.emit(world.target_event("squad.archived", workspace_id, squad))

    async def handed_over() -> bool:
        return (await read(service, other)).agent_id == str(leader)

    await until(handed_over, "the leader works for the one that can be changed")
    assert (await read(service, unpublished)).squad_id == str(squad)


async def test_a_change_that_the_database_interrupted_is_made_by_the_same_event(
    service: Service, world: World, workspace_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = world.add_agent(workspace_id)
    rule = await make_autopilot(service, world, workspace_id, agent_id=str(agent))
    world.refusals = {str(agent): reason_pb2.REASON_TARGET_UNAVAILABLE}
    pause = system.SystemChanges.pause
    interruptions = [ConnectionResetError("the database is gone")]

    async def interrupted_once(changes: system.SystemChanges, *given: Any) -> bool:
        if interruptions:
            raise interruptions.pop()
        return await pause(changes, *given)

    monkeypatch.setattr(system.SystemChanges, "pause", interrupted_once)
    await world.emit(world.target_event("agent.archived", workspace_id, agent))
    await paused(service, rule)
    assert not interruptions
