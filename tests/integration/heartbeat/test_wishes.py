"""Every wish leaves a row that says what became of it, however often and however late it comes."""

from __future__ import annotations

import asyncio
import signal
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from tests.integration.heartbeat.conftest import Stage
from tests.integration.heartbeat.kit import MEMBER, OWNER, World, marker, ran
from tests.integration.heartbeat.test_processes import linger, process_in

from reveille.common.v1 import reason_pb2
from reveille.events.v1 import event_service_pb2 as events_pb
from reveille.heartbeat.v1 import agent_pb2, issue_pb2, wakeup_pb2
from reveille.heartbeat.v1.wakeup_pb2_grpc import WakeupServiceStub
from reveille_heartbeat.adapters.process.identity import send
from reveille_runtime.client import stream
from reveille_runtime.errors import InvalidArgument, PermissionDenied
from reveille_runtime.rpc_errors import as_domain_errors


@pytest.fixture
async def idle(stage: Stage) -> World:
    """A workspace whose queue nobody serves."""
    service = await stage.start(engine_concurrency=0, runtime_presence=3600)
    world = World(service.client, stage.folder)
    await world.put()
    return world


async def send_as(
    world: World, service: str, *wishes: wakeup_pb2.Wakeup
) -> list[wakeup_pb2.WakeupResult]:
    """Send wishes as another service than autopilot."""
    stub: Any = WakeupServiceStub(world.client.channel(world.client.keys.service(service)))
    answer = await stub.EnqueueWakeups(wakeup_pb2.EnqueueWakeupsRequest(wakeups=wishes))
    return list(answer.results)


async def test_each_refusal_is_a_row_with_its_reason(idle: World) -> None:
    agent = await idle.agent()
    made = await idle.issue(agent, "manual:closed")
    await idle.issues.UpdateIssue(
        issue_pb2.UpdateIssueRequest(
            issue_id=made.issue.issue_id, status=issue_pb2.ISSUE_STATUS_DONE
        )
    )
    cases = {
        reason_pb2.REASON_WORKSPACE_INACTIVE: idle.wish(agent, "k:1", workspace_id=str(uuid4())),
        reason_pb2.REASON_AGENT_NOT_FOUND: idle.wish(agent, "k:2", agent_id=str(uuid4())),
        reason_pb2.REASON_ISSUE_NOT_FOUND: idle.wish(agent, "k:3", issue_id=str(uuid4())),
        reason_pb2.REASON_ISSUE_CLOSED: idle.wish(agent, "k:4", issue_id=made.issue.issue_id),
    }
    results = await idle.enqueue(*cases.values())

    assert [each.reason for each in results] == list(cases)
    for result in results:
        assert result.state == wakeup_pb2.WAKEUP_STATE_SKIPPED
        wakeup = await idle.wakeup(result.wakeup_id)
        assert wakeup.HasField("finish_time")
        assert wakeup.message
        assert await idle.attempts(result.wakeup_id) == []


async def test_a_wish_for_which_nobody_answers_is_refused(
    idle: World, rows: asyncpg.Connection[asyncpg.Record]
) -> None:
    await rows.execute("UPDATE workspaces SET default_responsible_user_id = ''")
    agent = await idle.agent()

    result = await idle.wake(agent, origin=wakeup_pb2.Origin(occurrence_key="k"))
    assert result.reason == reason_pb2.REASON_RESPONSIBLE_USER_UNRESOLVED


async def test_a_refusal_is_told_in_the_feed(idle: World) -> None:
    agent = await idle.agent()
    async with stream(
        idle.events.WatchEvents(events_pb.WatchEventsRequest(types=["wakeup.settled"]))
    ) as messages:
        at = aiter(messages)
        await anext(at)
        await idle.enqueue(idle.wish(agent, "webhook:9", agent_id=str(uuid4())))
        message = await anext(at)

    assert message.event.occurrence_key == "webhook:9"
    assert b'"state":"skipped"' in message.event.payload


async def test_one_key_makes_one_wakeup_however_many_ask_at_once(idle: World) -> None:
    agent = await idle.agent()
    answers = await asyncio.gather(*(idle.wake(agent, "webhook:1") for _ in range(20)))

    assert len({each.wakeup_id for each in answers}) == 1
    assert sum(not each.existed for each in answers) == 1
    assert len(await idle.attempts(answers[0].wakeup_id)) == 1


async def test_a_batch_with_one_key_twice_makes_one_wakeup(idle: World) -> None:
    agent = await idle.agent()
    first, second, other = await idle.enqueue(
        idle.wish(agent, "webhook:1"), idle.wish(agent, "webhook:1"), idle.wish(agent, "webhook:2")
    )

    assert (first.wakeup_id, first.existed, second.existed) == (second.wakeup_id, False, True)
    assert other.wakeup_id != first.wakeup_id


async def test_one_key_makes_one_issue_however_many_ask_at_once(idle: World) -> None:
    agent = await idle.agent()
    answers = await asyncio.gather(*(idle.issue(agent, "manual:1") for _ in range(10)))

    assert {each.issue.identifier for each in answers} == {"ABC-1"}
    assert len({each.wakeup.wakeup_id for each in answers}) == 1
    assert sum(not each.wakeup.existed for each in answers) == 1


async def test_a_key_that_made_a_wakeup_never_makes_an_issue(idle: World) -> None:
    agent = await idle.agent()
    result = await idle.wake(agent, "manual:1")
    made = await idle.issue(agent, "manual:1")

    assert not made.HasField("issue")
    assert (made.wakeup.wakeup_id, made.wakeup.existed) == (result.wakeup_id, True)


async def test_only_autopilot_may_make_occurrence_keys(idle: World) -> None:
    agent = await idle.agent()
    with pytest.raises(PermissionDenied) as refused, as_domain_errors():
        await send_as(idle, "scheduler", idle.wish(agent, "schedule:1"))

    assert refused.value.reason == "CALLER_NOT_ALLOWED"


async def test_another_callers_key_is_its_own_and_counts_once(idle: World) -> None:
    agent = await idle.agent()
    wish = idle.wish(agent, idempotency_key="nightly", issue_id="")
    answers = await asyncio.gather(*(send_as(idle, "scheduler", wish) for _ in range(10)))
    (elsewhere,) = await send_as(idle, "webhook-gateway", wish)

    ids = {each.wakeup_id for (each,) in answers}
    assert len(ids) == 1
    assert elsewhere.wakeup_id not in ids
    for caller, made in (("scheduler", *ids), ("webhook-gateway", elsewhere.wakeup_id)):
        (again,) = await send_as(idle, caller, wish)
        assert (again.wakeup_id, again.existed) == (made, True)


async def test_wishes_without_a_key_join_the_one_that_waits_and_end_with_it(
    idle: World, stage: Stage
) -> None:
    code = (
        "import json, os, pathlib\n"
        "p = json.loads(pathlib.Path(os.environ['REVEILLE_PAYLOAD_FILE']).read_text())\n"
        "print(p['wake']['prompt'], *[j['prompt'] for j in p['joined']])\n"
    )
    agent = await idle.script(code)
    keyed = await idle.wake(agent, "webhook:1", prompt="keyed")
    first, second = await idle.enqueue(
        idle.wish(agent, prompt="one"), idle.wish(agent, prompt="two")
    )
    third = await idle.wake(agent, prompt="three")

    assert first.state == wakeup_pb2.WAKEUP_STATE_QUEUED
    for each in (second, third):
        assert each.state == wakeup_pb2.WAKEUP_STATE_COALESCED
        assert (await idle.wakeup(each.wakeup_id)).joined_wakeup_id == first.wakeup_id
    await stage.start()
    ended = [await idle.settled(each.wakeup_id) for each in (keyed, first, second, third)]
    assert {each.state for each in ended} == {wakeup_pb2.WAKEUP_STATE_COMPLETED}
    assert await idle.log(ended[1].run_id) == "one two three\n"
    assert await idle.log(ended[0].run_id) == "keyed\n"


async def test_a_wish_without_a_key_waits_for_the_run_that_holds_its_issue(
    world: World, stage: Stage
) -> None:
    folder = stage.folder
    agent = await world.script(linger(folder / "pid"), max_concurrent_runs=5)
    other = await world.script(marker(folder), "other")
    made = await world.issue(agent, "manual:1")
    await process_in(folder / "pid")

    waiting = await world.wake(other, issue_id=made.issue.issue_id)
    later = await world.wake(other, issue_id=made.issue.issue_id)
    assert waiting.state == wakeup_pb2.WAKEUP_STATE_DEFERRED
    assert waiting.reason == reason_pb2.REASON_ISSUE_BUSY
    assert later.state == wakeup_pb2.WAKEUP_STATE_COALESCED
    assert (await world.wakeup(waiting.wakeup_id)).coalesced_count == 1
    (run,) = await world.attempts(made.wakeup.wakeup_id)
    issue = await world.get_issue(made.issue.issue_id)
    assert issue.execution_run_id == run.run_id
    process = await process_in(folder / "pid")
    send(process, signal.SIGKILL)
    for each in (waiting, later):
        assert (await world.settled(each.wakeup_id)).state == wakeup_pb2.WAKEUP_STATE_COMPLETED
    assert len(ran(folder)) == 1


async def test_a_deferred_wake_that_no_run_would_promote_is_found_by_the_sweep(
    idle: World, stage: Stage, rows: asyncpg.Connection[asyncpg.Record]
) -> None:
    agent = await idle.agent()
    made = await idle.issue(agent, "manual:1")
    waiting = await idle.wake(agent, issue_id=made.issue.issue_id)
    assert waiting.state == wakeup_pb2.WAKEUP_STATE_DEFERRED
    answer = await idle.cancel("manual:1")
    assert answer.state == wakeup_pb2.WAKEUP_STATE_CANCELLED
    # Cancelling the key cancelled its issue, and what was asked for on it.
    assert (await idle.settled(waiting.wakeup_id)).state == wakeup_pb2.WAKEUP_STATE_CANCELLED

    second = await idle.issue(agent, "manual:2")
    stranded = await idle.wake(agent, issue_id=second.issue.issue_id)
    await rows.execute(
        "UPDATE runs SET state = 'cancelled', finished_at = clock(), follow_up_done_at = clock()"
        " WHERE issue_id = $1",
        second.issue.issue_id,
    )
    await stage.start()
    assert (await idle.settled(stranded.wakeup_id)).state == wakeup_pb2.WAKEUP_STATE_COMPLETED


async def test_a_late_wish_finds_its_key_cancelled_and_leaves_its_row(idle: World) -> None:
    agent = await idle.agent()
    first = await idle.cancel("webhook:1")
    assert (first.recorded, first.wakeup_id) == (True, "")
    assert first.state == wakeup_pb2.WAKEUP_STATE_CANCELLED

    results = await asyncio.gather(*(idle.wake(agent, "webhook:1") for _ in range(5)))
    assert {each.state for each in results} == {wakeup_pb2.WAKEUP_STATE_CANCELLED}
    assert len({each.wakeup_id for each in results}) == 1
    await idle.cancel("manual:1")
    made = await idle.issue(agent, "manual:1")
    assert not made.HasField("issue")
    assert made.wakeup.state == wakeup_pb2.WAKEUP_STATE_CANCELLED
    assert (await idle.cancel("manual:1")).wakeup_id == made.wakeup.wakeup_id


async def test_a_cancellation_and_an_enqueue_at_once_agree(idle: World) -> None:
    agent = await idle.agent()
    for number in range(10):
        key = f"webhook:{number}"
        result, answer = await asyncio.gather(idle.wake(agent, key), idle.cancel(key))
        wakeup = await idle.wakeup(result.wakeup_id)

        assert wakeup.state == wakeup_pb2.WAKEUP_STATE_CANCELLED
        assert answer.recorded or answer.wakeup_id == result.wakeup_id
        assert all(not run.occupied for run in await idle.attempts(result.wakeup_id))


async def test_a_cancelled_key_keeps_an_outcome_that_was_there_first(world: World) -> None:
    agent = await world.agent()
    result = await world.wake(agent, "webhook:1")
    await world.settled(result.wakeup_id)

    answer = await world.cancel("webhook:1")
    assert (answer.state, answer.recorded) == (wakeup_pb2.WAKEUP_STATE_COMPLETED, False)


async def test_a_refused_batch_does_nothing(idle: World) -> None:
    agent = await idle.agent()
    with pytest.raises(InvalidArgument) as refused, as_domain_errors():
        await idle.enqueue(
            idle.wish(agent, "webhook:1"),
            idle.wish(agent, "webhook:2", agent_id="nobody", title="", source=0),
        )

    assert {each.field for each in refused.value.violations} == {
        "wakeups[1].agent_id",
        "wakeups[1].title",
        "wakeups[1].source",
    }
    listed = await idle.wakeups.ListWakeups(
        wakeup_pb2.ListWakeupsRequest(workspace_id=str(idle.workspace_id))
    )
    assert list(listed.wakeups) == []


async def test_whether_an_agent_may_be_woken_is_answered_by_the_first_failing_check(
    idle: World, rows: asyncpg.Connection[asyncpg.Record]
) -> None:
    private = await idle.agent("private", invocation_rule=agent_pb2.INVOCATION_RULE_PRIVATE)
    everyone = await idle.agent("everyone")
    listed = await idle.agent(
        "listed",
        invocation_rule=agent_pb2.INVOCATION_RULE_MEMBERS,
        invocation_user_ids=[MEMBER],
    )

    def question(agent: agent_pb2.Agent, user: str, **more: Any) -> agent_pb2.InvocableQuestion:
        given: dict[str, Any] = {
            "workspace_id": str(idle.workspace_id),
            "agent_id": agent.agent_id,
            "principal_user_id": user,
            "principal_is_member": True,
        }
        return agent_pb2.InvocableQuestion(**(given | more))

    async def ask(*questions: agent_pb2.InvocableQuestion) -> list[int]:
        answer = await idle.agents_as_service.CheckInvocable(
            agent_pb2.CheckInvocableRequest(questions=questions)
        )
        assert {each.owner_user_id for each in answer.answers} <= {OWNER, ""}
        return [each.reason for each in answer.answers]

    other = uuid4()
    await rows.execute(
        "INSERT INTO workspaces (workspace_id, issue_prefix, revision) VALUES ($1, 'OTH', 1)", other
    )
    no = reason_pb2.REASON_INVOCATION_NOT_ALLOWED
    fine = reason_pb2.REASON_UNSPECIFIED
    assert await ask(
        question(private, OWNER),
        question(private, MEMBER),
        question(everyone, MEMBER),
        question(everyone, MEMBER, principal_is_member=False),
        question(listed, MEMBER),
        question(listed, "somebody"),
        question(private, ""),
        question(everyone, MEMBER, agent_id=str(uuid4())),
        question(everyone, MEMBER, workspace_id=str(other)),
        question(everyone, MEMBER, workspace_id=str(uuid4())),
    ) == [
        fine,
        no,
        fine,
        no,
        fine,
        no,
        fine,
        reason_pb2.REASON_TARGET_UNAVAILABLE,
        reason_pb2.REASON_TARGET_UNAVAILABLE,
        reason_pb2.REASON_WORKSPACE_INACTIVE,
    ]
    below = await idle.agent("below", manager_agent_id=private.agent_id)
    assert await ask(question(below, MEMBER), question(private, MEMBER)) == [fine, no]
    await rows.execute(
        "UPDATE agents SET state = 'archived', archived_at = clock() WHERE name = 'private'"
    )
    assert await ask(question(below, MEMBER), question(everyone, MEMBER)) == [
        reason_pb2.REASON_AGENT_NOT_INVOKABLE,
        fine,
    ]
    await rows.execute("UPDATE runtimes SET presence_expires_at = clock() - interval '1 s'")
    assert await ask(
        question(everyone, MEMBER), question(everyone, MEMBER, runtime_must_be_online=True)
    ) == [fine, reason_pb2.REASON_RUNTIME_OFFLINE]
