"""Squads: woken through their leader, and told of when that changes."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from tests.integration.heartbeat.conftest import Stage
from tests.integration.heartbeat.kit import (
    MEMBER,
    World,
    events_of,
    refused,
    waiting_for_locks,
)

from reveille.common.v1 import reason_pb2
from reveille.heartbeat.v1 import agent_pb2, runtime_pb2
from reveille.heartbeat.v1 import squad_pb2 as pb
from reveille.heartbeat.v1.agent_pb2_grpc import AgentServiceStub
from reveille_runtime.errors import (
    Aborted,
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
)


@pytest.fixture
async def idle(stage: Stage) -> World:
    """A workspace whose queue nobody serves."""
    service = await stage.start(engine_concurrency=0, sweep_interval=3600)
    world = World(service.client, stage.folder)
    await world.put()
    return world


def changed(squad: pb.Squad, *paths: str, etag: str = "", **values: Any) -> pb.UpdateSquadRequest:
    return pb.UpdateSquadRequest(
        squad=pb.Squad(squad_id=squad.squad_id, etag=etag, **values),
        update_mask=FieldMask(paths=paths),
    )


async def test_a_squad_is_made_once_read_listed_and_changed(idle: World) -> None:
    ann, bob, cid = [await idle.agent(name) for name in ("ann", "bob", "cid")]
    members = [bob.agent_id, cid.agent_id]
    squad = await idle.squad("night", ann, members, request_id="one")
    again = await idle.squad("night", ann, members, request_id="one")
    await idle.squad("day", bob)

    assert again == squad
    assert sorted(squad.member_agent_ids) == sorted(members)
    read = await idle.agents.GetSquad(pb.GetSquadRequest(squad_id=squad.squad_id))
    assert read.squad == squad
    ask = pb.ListSquadsRequest(workspace_id=str(idle.workspace_id), page_size=1)
    first = await idle.agents.ListSquads(ask)
    ask.page_token = first.next_page_token
    second = await idle.agents.ListSquads(ask)
    assert [each.name for page in (first, second) for each in page.squads] == ["day", "night"]
    assert second.next_page_token == ""

    async with events_of(idle, "squad.updated") as told:
        # The new leader was a member, and is one no more.
        after = await idle.agents.UpdateSquad(
            changed(squad, "name", "leader_agent_id", name="late", leader_agent_id=bob.agent_id)
        )
        assert await told() == {
            "squad_id": squad.squad_id,
            "leader_agent_id": bob.agent_id,
            "leader_has_runtime": True,
        }
    assert (after.squad.name, after.squad.leader_agent_id) == ("late", bob.agent_id)
    assert list(after.squad.member_agent_ids) == [cid.agent_id]
    alone = await idle.agents.UpdateSquad(changed(squad, "member_agent_ids"))
    assert list(alone.squad.member_agent_ids) == []


async def test_a_squad_that_cannot_be_is_refused(idle: World) -> None:
    ann, bob = await idle.agent("ann"), await idle.agent("bob")
    squad = await idle.squad("night", ann)
    await idle.squad("day", bob)
    other = World(idle.client, idle.folder)
    await other.put(prefix="XYZ")
    foreign = await other.agent("far away")
    await idle.agents.ArchiveAgent(
        agent_pb2.ArchiveAgentRequest(agent_id=(await idle.agent("old")).agent_id)
    )
    listed = await idle.agents.ListAgents(
        agent_pb2.ListAgentsRequest(workspace_id=str(idle.workspace_id))
    )
    old = next(each for each in listed.agents if each.name == "old")

    for call, error in (
        (idle.squad("night", bob), AlreadyExists),
        (idle.squad("", bob), InvalidArgument),
        (idle.squad("new", bob, [bob.agent_id]), InvalidArgument),
        (idle.squad("new", foreign), NotFound),
        (idle.squad("new", bob, [str(uuid4())]), NotFound),
        (idle.squad("new", old), FailedPrecondition),
        (idle.agents.UpdateSquad(changed(squad)), InvalidArgument),
        (idle.agents.UpdateSquad(changed(squad, "state")), InvalidArgument),
        (idle.agents.UpdateSquad(changed(squad, "name", name="day")), AlreadyExists),
        (
            idle.agents.UpdateSquad(
                changed(squad, "member_agent_ids", member_agent_ids=[ann.agent_id])
            ),
            InvalidArgument,
        ),
        (
            idle.agents.UpdateSquad(
                changed(squad, "leader_agent_id", leader_agent_id=old.agent_id)
            ),
            FailedPrecondition,
        ),
        (idle.agents.UpdateSquad(changed(squad, "name", etag="0", name="x")), Aborted),
        (idle.agents.GetSquad(pb.GetSquadRequest(squad_id=str(uuid4()))), NotFound),
    ):
        assert isinstance(await refused(call), error)
    stranger = AgentServiceStub(idle.client.user("eve", uuid4()))
    for call in (
        stranger.GetSquad(pb.GetSquadRequest(squad_id=squad.squad_id)),
        stranger.UpdateSquad(changed(squad, "name", name="x")),
        stranger.ListSquads(pb.ListSquadsRequest(workspace_id=str(idle.workspace_id))),
    ):
        assert isinstance(await refused(call), NotFound)


async def test_a_squad_is_paused_resumed_and_archived_once(idle: World) -> None:
    ann = await idle.agent("ann")
    squad = await idle.squad("night", ann)
    paused = await idle.move_squad("Pause", squad, reason="holidays")
    assert (paused.state, paused.pause_reason) == (pb.SQUAD_STATE_PAUSED, "holidays")
    assert await idle.move_squad("Pause", squad, reason="again") == paused
    resumed = await idle.move_squad("Resume", squad)
    assert (resumed.state, resumed.pause_reason) == (pb.SQUAD_STATE_ACTIVE, "")
    assert isinstance(await refused(idle.move_squad("Archive", squad, etag="0")), Aborted)

    async with events_of(idle, "squad.archived") as told:
        archived = await idle.move_squad("Archive", squad, etag=resumed.etag)
        assert await told() == {"squad_id": squad.squad_id, "leader_agent_id": ann.agent_id}
    assert archived.state == pb.SQUAD_STATE_ARCHIVED
    assert await idle.move_squad("Archive", squad) == archived
    for call in (
        idle.move_squad("Pause", squad),
        idle.move_squad("Resume", squad),
        idle.agents.UpdateSquad(changed(squad, "name", name="x")),
    ):
        error = await refused(call)
        assert (type(error), error.reason) == (FailedPrecondition, "WRONG_STATE")


async def test_a_leader_is_not_archived_while_a_squad_gets_it(
    idle: World, rows: asyncpg.Connection[asyncpg.Record]
) -> None:
    ann = await idle.agent("ann")
    async with rows.transaction():
        await rows.execute("SELECT agent_id FROM agents FOR UPDATE")
        both = [
            asyncio.ensure_future(idle.squad("night", ann)),
            asyncio.ensure_future(
                idle.agents.ArchiveAgent(agent_pb2.ArchiveAgentRequest(agent_id=ann.agent_id))
            ),
        ]
        await waiting_for_locks(rows, 2)
    answers = await asyncio.gather(*both, return_exceptions=True)

    assert sum(not isinstance(each, BaseException) for each in answers) == 1
    led = await rows.fetchval(
        "SELECT count(*) FROM squads s JOIN agents a ON a.agent_id = s.leader_agent_id"
        " WHERE a.state = 'archived'"
    )
    assert led == 0


async def test_whether_a_squad_may_be_woken_is_its_leaders_answer(idle: World) -> None:
    private = agent_pb2.INVOCATION_RULE_PRIVATE
    ann, bob = await idle.agent("ann", invocation_rule=private), await idle.agent("bob")
    squad = await idle.squad("night", ann)

    async def ask(user: str, **more: Any) -> agent_pb2.InvocableAnswer:
        given: dict[str, Any] = {
            "workspace_id": str(idle.workspace_id),
            "squad_id": squad.squad_id,
            "principal_user_id": user,
            "principal_is_member": True,
            "runtime_must_be_online": True,
        }
        question = agent_pb2.InvocableQuestion(**(given | more))
        answer = await idle.agents_as_service.CheckInvocable(
            agent_pb2.CheckInvocableRequest(questions=[question])
        )
        found: agent_pb2.InvocableAnswer = answer.answers[0]
        return found

    refusal = await ask(MEMBER)
    assert refusal.reason == reason_pb2.REASON_INVOCATION_NOT_ALLOWED
    assert refusal.agent_id == ann.agent_id
    await idle.agents.UpdateSquad(changed(squad, "leader_agent_id", leader_agent_id=bob.agent_id))
    fine = await ask(MEMBER)
    assert (fine.reason, fine.agent_id) == (reason_pb2.REASON_UNSPECIFIED, bob.agent_id)
    foreign = await ask(MEMBER, project_id=str(uuid4()))
    assert foreign.reason == reason_pb2.REASON_PROJECT_UNAVAILABLE
    for squad_id in (str(uuid4()), ""):
        given = {"squad_id": squad_id, "agent_id": "" if squad_id else str(uuid4())}
        assert (await ask(MEMBER, **given)).reason == reason_pb2.REASON_TARGET_UNAVAILABLE
    both = await refused(ask(MEMBER, agent_id=bob.agent_id))
    assert isinstance(both, InvalidArgument)

    runtime = (
        await idle.agents.RegisterRuntime(
            runtime_pb2.RegisterRuntimeRequest(workspace_id=str(idle.workspace_id), name="far")
        )
    ).runtime
    await idle.agents.UpdateAgent(
        agent_pb2.UpdateAgentRequest(
            agent=agent_pb2.Agent(agent_id=bob.agent_id, runtime_id=runtime.runtime_id),
            update_mask=FieldMask(paths=["runtime_id"]),
        )
    )
    assert (await ask(MEMBER)).reason == reason_pb2.REASON_RUNTIME_OFFLINE
    assert (await ask(MEMBER, runtime_must_be_online=False)).reason == 0
    await idle.agents.ReportRuntime(
        runtime_pb2.ReportRuntimeRequest(
            runtime_id=runtime.runtime_id, unusable_reason="the program is missing"
        )
    )
    broken = await ask(MEMBER, runtime_must_be_online=False)
    assert broken.reason == reason_pb2.REASON_RUNTIME_UNUSABLE
    assert "the program is missing" in broken.message
    await idle.agents.PauseAgent(agent_pb2.PauseAgentRequest(agent_id=bob.agent_id))
    assert (await ask(MEMBER)).reason == reason_pb2.REASON_AGENT_NOT_INVOKABLE
    await idle.move_squad("Archive", squad)
    assert (await ask(MEMBER)).reason == reason_pb2.REASON_TARGET_UNAVAILABLE
