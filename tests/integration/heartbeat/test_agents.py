"""Agents as their keepers change, stop and archive them."""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias
from uuid import uuid4

import asyncpg
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.json_format import MessageToDict
from tests.integration.heartbeat.conftest import Stage
from tests.integration.heartbeat.kit import (
    MEMBER,
    OWNER,
    World,
    events_of,
    refused,
    waiting_for_locks,
)
from tests.integration.heartbeat.replica import Replicas
from tests.integration.heartbeat.test_processes import linger, process_in

from reveille.common.v1 import reason_pb2
from reveille.heartbeat.v1 import agent_pb2 as pb
from reveille.heartbeat.v1 import run_pb2, wakeup_pb2
from reveille.heartbeat.v1.agent_pb2_grpc import AgentServiceStub
from reveille_heartbeat import crash_points
from reveille_heartbeat.usecases.agents import move_agent
from reveille_runtime.access import Role
from reveille_runtime.errors import (
    Aborted,
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    Unavailable,
)
from reveille_testkit.waiting import eventually

Rows: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


@pytest.fixture
async def idle(stage: Stage) -> World:
    """A workspace whose queue nobody serves."""
    service = await stage.start(engine_concurrency=0, sweep_interval=3600)
    world = World(service.client, stage.folder)
    await world.put()
    return world


def as_user(world: World, user: str, role: Role = Role.MEMBER) -> Any:
    return AgentServiceStub(world.client.user(user, world.workspace_id, role))


def changed(agent: pb.Agent, *paths: str, etag: str = "", **values: Any) -> pb.UpdateAgentRequest:
    return pb.UpdateAgentRequest(
        agent=pb.Agent(agent_id=agent.agent_id, etag=etag, **values),
        update_mask=FieldMask(paths=paths),
    )


async def test_an_update_changes_what_its_mask_names_and_nothing_else(idle: World) -> None:
    agent = await idle.agent("ann", config={"summary": "hi"}, max_concurrent_runs=3)
    policy = pb.HeartbeatPolicy(
        timer_enabled=True,
        timer_interval=Duration(seconds=60),
        max_daily_runs=0,
        max_daily_cost_cents=500,
        wake_on_demand=False,
        cooldown=Duration(seconds=5),
    )
    request = changed(
        agent, "name", "heartbeat", name="bob", max_concurrent_runs=9, heartbeat=policy
    )
    after = (await idle.agents.UpdateAgent(request)).agent

    assert (after.name, after.max_concurrent_runs) == ("bob", 3)
    assert MessageToDict(after.adapter_config) == {"summary": "hi"}
    assert after.heartbeat.timer_interval.seconds == 60
    assert (after.heartbeat.max_daily_runs, after.heartbeat.wake_on_demand) == (0, False)
    assert after.heartbeat.max_turn_continuations == 2
    assert after.etag != agent.etag

    part = changed(
        after,
        "heartbeat.max_daily_runs",
        "start_limit",
        heartbeat=pb.HeartbeatPolicy(timer_enabled=False),
        start_limit=Duration(seconds=7),
    )
    last = (await idle.agents.UpdateAgent(part)).agent
    assert not last.heartbeat.HasField("max_daily_runs")
    assert (last.heartbeat.timer_enabled, last.heartbeat.max_daily_cost_cents) == (True, 500)
    assert last.start_limit.seconds == 7
    assert (await idle.agents.GetAgent(pb.GetAgentRequest(agent_id=agent.agent_id))).agent == last


async def test_an_update_that_changes_nothing_leaves_the_agent_as_it_was(idle: World) -> None:
    config = {"command": ["true"], "env": {"API_KEY": "of today"}}
    agent = await idle.agent("ann", "process", config)
    assert MessageToDict(agent.adapter_config)["env"] == {"API_KEY": "********"}

    async def written(key: str) -> pb.Agent:
        other = {**config, "env": {"API_KEY": key}}
        request = changed(agent, "adapter_config", etag=agent.etag, adapter_config=other)
        answer: pb.Agent = (await idle.agents.UpdateAgent(request)).agent
        return answer

    assert await written("of today") == agent
    # Which is how somebody who is not shown a secret learns whether it is another.
    assert (await written("of tomorrow")).etag != agent.etag


async def test_what_an_update_may_not_say_is_refused_by_name(idle: World) -> None:
    agent = await idle.agent("ann")
    await idle.agent("bob")
    policy = pb.HeartbeatPolicy
    cases: list[tuple[tuple[str, ...], dict[str, Any], str]] = [
        ((), {}, "update_mask"),
        (("create_time",), {}, "update_mask"),
        (("heartbeat.nothing",), {}, "update_mask"),
        (("name",), {"name": " "}, "name"),
        (("max_concurrent_runs",), {"max_concurrent_runs": 51}, "max_concurrent_runs"),
        (("owner_user_id",), {}, "owner_user_id"),
        (("start_limit",), {"start_limit": Duration()}, "start_limit"),
        (("adapter",), {"adapter": "nothing"}, "adapter"),
        (("adapter_config",), {"adapter_config": {"fail": 1}}, "adapter_config.fail"),
        (("invocation_user_ids",), {"invocation_user_ids": ["max"]}, "invocation_user_ids"),
        (("manager_agent_id",), {"manager_agent_id": "x"}, "manager_agent_id"),
        (("manager_agent_id",), {"manager_agent_id": agent.agent_id}, "manager_agent_id"),
        (
            ("heartbeat",),
            {"heartbeat": policy(timer_interval=Duration(nanos=5_000_000))},
            "heartbeat.timer_interval",
        ),
        (("heartbeat",), {"heartbeat": policy(max_daily_runs=-1)}, "heartbeat.max_daily_runs"),
        (
            ("heartbeat",),
            {"heartbeat": policy(max_turn_continuations=11)},
            "heartbeat.max_turn_continuations",
        ),
    ]
    for paths, values, field in cases:
        error = await refused(idle.agents.UpdateAgent(changed(agent, *paths, **values)))
        assert isinstance(error, InvalidArgument), (paths, error)
        where = field if field == "update_mask" else f"agent.{field}"
        assert [each.field for each in error.violations] == [where]
    for field in ("manager_agent_id", "runtime_id"):
        unknown = changed(agent, field, **{field: str(uuid4())})
        assert isinstance(await refused(idle.agents.UpdateAgent(unknown)), NotFound)
    taken = await refused(idle.agents.UpdateAgent(changed(agent, "name", name="bob")))
    assert isinstance(taken, AlreadyExists)
    stale = await refused(idle.agents.UpdateAgent(changed(agent, "name", etag="0", name="x")))
    assert (type(stale), stale.reason) == (Aborted, "ETAG_MISMATCH")
    shown = await idle.agents.GetAgent(pb.GetAgentRequest(agent_id=agent.agent_id))
    assert shown.agent == agent


async def test_secrets_that_were_starred_are_kept_when_they_are_written_back(
    idle: World, rows: Rows
) -> None:
    env = {"API_TOKEN": "hush-hush", "COLOUR": "blue"}
    agent = await idle.script("", config={"env": env})
    shown = MessageToDict(agent.adapter_config)
    shown["env"] |= {"COLOUR": "red", "OTHER_TOKEN": "new-secret"}
    request = changed(agent, "adapter_config", adapter_config=shown)
    await idle.agents.UpdateAgent(request)

    (kept,) = await rows.fetch("SELECT adapter_config ->> 'env' AS env FROM agents")
    for words in ('"hush-hush"', '"red"', '"new-secret"'):
        assert words in kept["env"]


async def test_owner_and_administrators_change_an_agent_and_only_its_owner_opens_a_private_one(
    idle: World,
) -> None:
    agent = await idle.agent("ann", invocation_rule=pb.INVOCATION_RULE_PRIVATE)
    member, admin = as_user(idle, MEMBER), as_user(idle, "ada", Role.ADMIN)
    stranger = AgentServiceStub(idle.client.user("eve", uuid4()))
    ask = pb.PauseAgentRequest(agent_id=agent.agent_id)

    for call in (
        member.UpdateAgent(changed(agent, "name", name="mine")),
        member.PauseAgent(ask),
        member.ResumeAgent(pb.ResumeAgentRequest(agent_id=agent.agent_id)),
        member.ArchiveAgent(pb.ArchiveAgentRequest(agent_id=agent.agent_id)),
        admin.UpdateAgent(
            changed(agent, "invocation_rule", invocation_rule=pb.INVOCATION_RULE_WORKSPACE)
        ),
        admin.UpdateAgent(changed(agent, "owner_user_id", owner_user_id="ada")),
    ):
        error = await refused(call)
        assert (type(error), error.reason) == (PermissionDenied, "ROLE_TOO_WEAK")
    assert isinstance(await refused(stranger.PauseAgent(ask)), NotFound)

    assert (await admin.UpdateAgent(changed(agent, "name", name="anna"))).agent.name == "anna"
    opened = await idle.agents.UpdateAgent(
        changed(
            agent,
            "invocation_rule",
            "invocation_user_ids",
            invocation_rule=pb.INVOCATION_RULE_MEMBERS,
            invocation_user_ids=[MEMBER],
        )
    )
    assert list(opened.agent.invocation_user_ids) == [MEMBER]
    given = await admin.UpdateAgent(
        changed(
            agent,
            "invocation_rule",
            "owner_user_id",
            invocation_rule=pb.INVOCATION_RULE_WORKSPACE,
            owner_user_id="ada",
        )
    )
    assert (given.agent.owner_user_id, list(given.agent.invocation_user_ids)) == ("ada", [])


async def test_a_chain_of_managers_that_closes_is_refused(idle: World) -> None:
    chief = await idle.agent("chief")
    boss = await idle.agent("boss", manager_agent_id=chief.agent_id)
    agent = await idle.agent("ann", manager_agent_id=boss.agent_id)
    assert agent.manager_agent_id == boss.agent_id

    ring = changed(chief, "manager_agent_id", manager_agent_id=agent.agent_id)
    error = await refused(idle.agents.UpdateAgent(ring))
    assert isinstance(error, InvalidArgument)
    assert "comes back" in error.message
    freed = await idle.agents.UpdateAgent(changed(agent, "manager_agent_id"))
    assert freed.agent.manager_agent_id == ""


async def test_two_edits_at_once_cannot_close_a_ring_between_them(idle: World, rows: Rows) -> None:
    ann, bob = await idle.agent("ann"), await idle.agent("bob")
    # Both have looked at the chain above, and wait for its locks.
    async with rows.transaction():
        await rows.execute("SELECT agent_id FROM agents FOR UPDATE")
        both = [
            asyncio.ensure_future(
                idle.agents.UpdateAgent(
                    changed(one, "manager_agent_id", manager_agent_id=other.agent_id)
                )
            )
            for one, other in ((ann, bob), (bob, ann))
        ]
        await waiting_for_locks(rows, 2)
    answers = await asyncio.gather(*both, return_exceptions=True)

    assert sum(isinstance(each, pb.UpdateAgentResponse) for each in answers) == 1
    above = await rows.fetch("SELECT manager_agent_id FROM agents WHERE manager_agent_id IS NULL")
    assert len(above) == 1


async def test_a_pause_ends_what_is_at_work_and_what_waits_and_may_be_repeated(
    stage: Stage,
) -> None:
    service = await stage.start()
    world = World(service.client, stage.folder)
    await world.put()
    agent = await world.script(linger(stage.folder / "pid"))
    at_work = await world.issue(agent, "manual:1")
    await process_in(stage.folder / "pid")
    waiting = await world.wake(agent, "manual:2")
    behind = await world.wake(agent, issue_id=at_work.issue.issue_id)

    async with events_of(world, "agent.status") as told:
        ask = pb.PauseAgentRequest(agent_id=agent.agent_id, reason="holidays", etag=agent.etag)
        paused = await world.agents.PauseAgent(ask)
        assert (await told()) == {
            "agent_id": agent.agent_id,
            "status": "paused",
            "previous": "running",
        }
    assert (paused.agent.status, paused.agent.pause_reason) == (pb.AGENT_STATUS_PAUSED, "holidays")
    assert paused.cancelled_wakeups == 3
    for wakeup_id in (at_work.wakeup.wakeup_id, waiting.wakeup_id, behind.wakeup_id):
        wakeup = await world.settled(wakeup_id)
        assert wakeup.state == wakeup_pb2.WAKEUP_STATE_CANCELLED
        assert wakeup.reason == reason_pb2.REASON_AGENT_PAUSED
        assert wakeup.message == "agent script was paused"
    (run,) = await world.attempts(at_work.wakeup.wakeup_id)
    assert run.state == run_pb2.RUN_STATE_CANCELLED

    again = await world.agents.PauseAgent(pb.PauseAgentRequest(agent_id=agent.agent_id))
    assert (again.agent, again.cancelled_wakeups) == (paused.agent, 0)
    stale = await refused(world.agents.PauseAgent(ask))
    assert (type(stale), stale.reason) == (Aborted, "ETAG_MISMATCH")
    resumed = await world.agents.ResumeAgent(pb.ResumeAgentRequest(agent_id=agent.agent_id))
    assert (resumed.agent.status, resumed.agent.pause_reason) == (pb.AGENT_STATUS_IDLE, "")
    twice = await world.agents.ResumeAgent(pb.ResumeAgentRequest(agent_id=agent.agent_id))
    assert twice.agent == resumed.agent


async def test_an_archived_agent_stays_archived_and_leads_nobody(idle: World) -> None:
    agent = await idle.agent("ann")
    waiting = await idle.wake(agent, "manual:1")
    squad = await idle.squad("night shift", agent)
    ask = pb.ArchiveAgentRequest(agent_id=agent.agent_id)
    leads = await refused(idle.agents.ArchiveAgent(ask))
    assert (type(leads), leads.reason) == (FailedPrecondition, "WRONG_STATE")
    assert "night shift" in leads.message
    await idle.move_squad("Archive", squad)

    async with events_of(idle, "agent.archived") as told:
        archived = await idle.agents.ArchiveAgent(ask)
        assert (await told()) == {"agent_id": agent.agent_id}
    assert archived.agent.status == pb.AGENT_STATUS_ARCHIVED
    assert archived.cancelled_wakeups == 1
    wakeup = await idle.wakeup(waiting.wakeup_id)
    assert wakeup.reason == reason_pb2.REASON_AGENT_ARCHIVED
    assert (await idle.agents.ArchiveAgent(ask)).agent == archived.agent
    for call in (
        idle.agents.PauseAgent(pb.PauseAgentRequest(agent_id=agent.agent_id)),
        idle.agents.ResumeAgent(pb.ResumeAgentRequest(agent_id=agent.agent_id)),
        idle.agents.UpdateAgent(changed(agent, "name", name="x")),
    ):
        error = await refused(call)
        assert (type(error), error.reason) == (FailedPrecondition, "WRONG_STATE")


async def test_a_pause_that_died_half_way_is_finished_by_its_repeat(
    stage: Stage, replicas: Replicas
) -> None:
    quiet = await stage.start(engine_concurrency=0, recovery_interval=3600, sweep_interval=3600)
    world = World(quiet.client, stage.folder)
    await world.put()
    agent = await world.agent("ann")
    waiting = await world.wake(agent, "manual:1")
    doomed = await replicas.start(
        crash_point=crash_points.AGENT_STOPPED_AFTER_COMMIT, engine_concurrency=0
    )
    client = await replicas.client(doomed)
    there = AgentServiceStub(client.user(OWNER, world.workspace_id))
    ask = pb.PauseAgentRequest(agent_id=agent.agent_id)
    assert isinstance(await refused(there.PauseAgent(ask)), Unavailable)
    assert await doomed.ended() == 137, doomed.log.read_text()

    again = await world.agents.PauseAgent(ask)
    assert (again.agent.status, again.cancelled_wakeups) == (pb.AGENT_STATUS_PAUSED, 1)
    wakeup = await world.wakeup(waiting.wakeup_id)
    assert wakeup.state == wakeup_pb2.WAKEUP_STATE_CANCELLED


async def test_what_comes_after_a_resume_is_not_cancelled_by_the_pause_before(
    idle: World, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = await idle.agent("ann")
    before = await idle.wake(agent, "manual:1")
    resumed: list[wakeup_pb2.WakeupResult] = []

    # Between the commit of the pause and what waits, somebody else changes their mind.
    async def meanwhile(*_: Any) -> None:
        if not resumed:
            resumed.append(wakeup_pb2.WakeupResult())
            await idle.agents.ResumeAgent(pb.ResumeAgentRequest(agent_id=agent.agent_id))
            resumed[0] = await idle.wake(agent, "manual:2")

    monkeypatch.setattr(move_agent, "tell_of_ends", meanwhile)
    paused = await idle.agents.PauseAgent(pb.PauseAgentRequest(agent_id=agent.agent_id))
    assert paused.cancelled_wakeups == 0
    for wakeup_id in (before.wakeup_id, resumed[0].wakeup_id):
        wakeup = await idle.wakeup(wakeup_id)
        assert wakeup.state == wakeup_pb2.WAKEUP_STATE_QUEUED


async def test_what_an_agent_does_is_told_when_its_runs_begin_and_end(stage: Stage) -> None:
    service = await stage.start()
    world = World(service.client, stage.folder)
    await world.put()
    agent = await world.script(linger(stage.folder / "pid"), max_concurrent_runs=2)
    other = await world.agent("fails", config={"fail": True})

    def change(of: pb.Agent, status: str, previous: str) -> dict[str, str]:
        return {"agent_id": of.agent_id, "status": status, "previous": previous}

    async with events_of(world, "agent.status") as told:
        await world.wake(agent, "manual:1")
        await process_in(stage.folder / "pid")
        assert await told() == change(agent, "running", "idle")
        # A second run makes no difference, and neither does the end of one of the two.
        second = await world.wake(agent, "manual:2")
        await eventually(
            lambda: world.attempts(second.wakeup_id),
            "the second runs",
            until=lambda runs: runs[0].state == run_pb2.RUN_STATE_RUNNING,
        )
        await world.cancel("manual:2")
        await world.settled(second.wakeup_id)
        await world.wake(other, "manual:3")
        assert await told() == change(other, "running", "idle")
        assert await told() == change(other, "error", "running")
        await world.cancel("manual:1")
        assert await told() == change(agent, "idle", "running")


async def test_a_failure_that_is_tried_again_is_no_error_of_the_agent(
    stage: Stage, rows: Rows
) -> None:
    service = await stage.start()
    world = World(service.client, stage.folder)
    await world.put()
    agent = await world.agent("ann", config={"fail": True})
    result = await world.wake(agent, "manual:1")
    await world.settled(result.wakeup_id)
    look = pb.GetAgentRequest(agent_id=agent.agent_id)

    async def status() -> int:
        shown: pb.Agent = (await world.agents.GetAgent(look)).agent
        return shown.status

    assert await status() == pb.AGENT_STATUS_ERROR
    await rows.execute("UPDATE runs SET failure_class = 'quota'")
    assert await status() == pb.AGENT_STATUS_IDLE
    await rows.execute(
        "UPDATE runs SET failure_class = 'other';"
        "UPDATE wakeup_requests SET state = 'claimed', finished_at = NULL"
    )
    assert await status() == pb.AGENT_STATUS_IDLE
    await rows.execute("UPDATE wakeup_requests SET state = 'failed', finished_at = clock()")
    await world.agents.PauseAgent(pb.PauseAgentRequest(agent_id=agent.agent_id))
    assert await status() == pb.AGENT_STATUS_PAUSED
