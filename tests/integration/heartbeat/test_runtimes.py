"""Runtimes: present while they say so, and gone for everybody at once."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import asyncpg
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct
from tests.integration.heartbeat.conftest import Service, Stage
from tests.integration.heartbeat.kit import MEMBER, World, events_of, refused, waiting_for_locks

from reveille.heartbeat.v1 import agent_pb2
from reveille.heartbeat.v1 import runtime_pb2 as pb
from reveille.heartbeat.v1.agent_pb2_grpc import AgentServiceStub
from reveille_runtime.access import CallerKind, Role
from reveille_runtime.errors import (
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
)


async def prepared(stage: Stage) -> tuple[Service, World]:
    """A workspace whose queue nobody serves."""
    service = await stage.start(engine_concurrency=0, sweep_interval=3600)
    world = World(service.client, stage.folder)
    await world.put()
    return service, world


async def register(world: World, name: str = "far", **metadata: Any) -> pb.Runtime:
    told = Struct()
    told.update(metadata)
    answer = await world.agents.RegisterRuntime(
        pb.RegisterRuntimeRequest(workspace_id=str(world.workspace_id), name=name, metadata=told)
    )
    runtime: pb.Runtime = answer.runtime
    return runtime


async def listed(world: World) -> dict[str, pb.Runtime]:
    answer = await world.agents.ListRuntimes(
        pb.ListRuntimesRequest(workspace_id=str(world.workspace_id))
    )
    return {each.name: each for each in answer.runtimes}


def binding(agent: agent_pb2.Agent, runtime_id: str) -> agent_pb2.UpdateAgentRequest:
    return agent_pb2.UpdateAgentRequest(
        agent=agent_pb2.Agent(agent_id=agent.agent_id, runtime_id=runtime_id),
        update_mask=FieldMask(paths=["runtime_id"]),
    )


async def test_a_runtime_is_online_for_as_long_as_its_report_holds(stage: Stage) -> None:
    service, world = await prepared(stage)
    made = await register(world, "far", cpu=4)
    assert (made.kind, made.online) == (pb.RUNTIME_KIND_REMOTE, False)
    assert await register(world, "far", cpu=8) == made

    def report(**more: Any) -> Any:
        return world.agents.ReportRuntime(
            pb.ReportRuntimeRequest(runtime_id=made.runtime_id, **more)
        )

    there = (await report(presence=Duration(seconds=30))).runtime
    assert (there.online, MessageToDict(there.metadata)) == (True, {"cpu": 4.0})
    told = (await report(unusable_reason="no program", metadata={"cpu": 8})).runtime
    assert (told.online, told.unusable_reason) == (False, "no program")
    assert MessageToDict(told.metadata) == {"cpu": 8.0}
    assert (await report(presence=Duration(seconds=30))).runtime.online
    service.move_clock(31)
    assert not (await listed(world))["far"].online
    assert (await report()).runtime.online
    assert not (await report(presence=Duration(seconds=0))).runtime.online


async def test_what_cannot_be_said_of_a_runtime_is_refused(stage: Stage) -> None:
    _, world = await prepared(stage)
    made = await register(world)
    local = (await listed(world))["local"]
    assert (local.kind, local.online) == (pb.RUNTIME_KIND_LOCAL, True)

    for call, error in (
        (register(world, ""), InvalidArgument),
        (register(world, "big", text="x" * 20_000), InvalidArgument),
        (register(world, "local"), FailedPrecondition),
        (
            world.agents.ReportRuntime(pb.ReportRuntimeRequest(runtime_id=local.runtime_id)),
            FailedPrecondition,
        ),
        (
            world.agents.ReportRuntime(
                pb.ReportRuntimeRequest(
                    runtime_id=made.runtime_id, presence=Duration(nanos=1_000_000)
                )
            ),
            InvalidArgument,
        ),
        (
            world.agents.ReportRuntime(
                pb.ReportRuntimeRequest(runtime_id=made.runtime_id, presence=Duration(seconds=3601))
            ),
            InvalidArgument,
        ),
        (
            world.agents.ReportRuntime(pb.ReportRuntimeRequest(runtime_id=str(uuid4()))),
            NotFound,
        ),
    ):
        assert isinstance(await refused(call), error)


async def test_a_runtime_speaks_for_itself_alone(stage: Stage) -> None:
    _, world = await prepared(stage)
    mine, other = await register(world, "mine"), await register(world, "other")
    keys = world.client.keys
    token = keys.minter("operator").mint(
        CallerKind.RUNTIME, mine.runtime_id, workspace_id=world.workspace_id
    )
    me = AgentServiceStub(world.client.channel(token))

    answer = await me.ReportRuntime(pb.ReportRuntimeRequest(runtime_id=mine.runtime_id))
    assert answer.runtime.online
    foreign = me.ReportRuntime(pb.ReportRuntimeRequest(runtime_id=other.runtime_id))
    assert isinstance(await refused(foreign), NotFound)
    ask = pb.ListRuntimesRequest(workspace_id=str(world.workspace_id))
    assert isinstance(await refused(me.ListRuntimes(ask)), PermissionDenied)


async def test_a_removed_runtime_leaves_its_agents_without_one_and_tells_of_it(
    stage: Stage,
) -> None:
    _, world = await prepared(stage)
    made = await register(world)
    bound = await world.agent("bound", runtime_id=made.runtime_id)
    await world.agent("elsewhere")
    admin: Any = AgentServiceStub(world.client.user("ada", world.workspace_id, Role.ADMIN))
    ask = pb.DeleteRuntimeRequest(runtime_id=made.runtime_id)

    member = AgentServiceStub(world.client.user(MEMBER, world.workspace_id))
    assert isinstance(await refused(member.DeleteRuntime(ask)), PermissionDenied)
    local = pb.DeleteRuntimeRequest(runtime_id=(await listed(world))["local"].runtime_id)
    assert isinstance(await refused(admin.DeleteRuntime(local)), FailedPrecondition)
    async with events_of(world, "runtime.deleted") as told:
        gone = await admin.DeleteRuntime(ask)
        assert await told() == {"runtime_id": made.runtime_id, "agent_ids": [bound.agent_id]}
    assert list(gone.unbound_agent_ids) == [bound.agent_id]
    assert isinstance(await refused(admin.DeleteRuntime(ask)), NotFound)
    shown = await world.agents.GetAgent(agent_pb2.GetAgentRequest(agent_id=bound.agent_id))
    assert shown.agent.runtime_id == ""
    back = await world.agents.UpdateAgent(binding(bound, ""))
    assert back.agent.runtime_id == (await listed(world))["local"].runtime_id


async def test_an_agent_that_is_just_being_bound_is_unbound_or_keeps_the_runtime(
    stage: Stage, rows: asyncpg.Connection[asyncpg.Record]
) -> None:
    _, world = await prepared(stage)
    made = await register(world)
    agent = await world.agent("ann")
    admin: Any = AgentServiceStub(world.client.user("ada", world.workspace_id, Role.ADMIN))
    # The removal has looked, seen nobody, and waits for the runtime's row.
    async with rows.transaction():
        await rows.execute("SELECT runtime_id FROM runtimes WHERE name = 'far' FOR KEY SHARE")
        deleting = asyncio.ensure_future(
            admin.DeleteRuntime(pb.DeleteRuntimeRequest(runtime_id=made.runtime_id))
        )
        await waiting_for_locks(rows, 1)
        await rows.execute(
            "UPDATE agents SET runtime_id = $1 WHERE agent_id = $2",
            made.runtime_id,
            agent.agent_id,
        )
    gone = await deleting

    assert list(gone.unbound_agent_ids) == [agent.agent_id]
