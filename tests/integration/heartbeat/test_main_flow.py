"""A wish becomes a run, an agent's answer becomes the wakeup's outcome, and all of it is told."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import asyncpg
import pytest
from tests.integration.heartbeat.conftest import Service, Stage
from tests.integration.heartbeat.kit import ANSWER, OWNER, World, marker, ran

from reveille.events.v1 import event_service_pb2 as events_pb
from reveille.heartbeat.v1 import issue_pb2, run_pb2, wakeup_pb2
from reveille_runtime.carrier import SpanSeed
from reveille_runtime.client import stream
from reveille_runtime.errors import Unavailable
from reveille_runtime.rpc_errors import as_domain_errors


async def test_a_wake_runs_a_process_and_completes_with_its_answer(
    world: World, tmp_path: Path
) -> None:
    agent = await world.script(marker(tmp_path) + ANSWER)
    result = await world.wake(
        agent,
        "webhook:1",
        payload=wakeup_pb2.Payload(
            content_type="application/json", body=b'{"a": 1}', facts={"event": "issues"}
        ),
    )

    assert result.state == wakeup_pb2.WAKEUP_STATE_QUEUED
    wakeup = await world.settled(result.wakeup_id)
    assert wakeup.state == wakeup_pb2.WAKEUP_STATE_COMPLETED
    run = await world.run(wakeup.run_id)
    assert run.state == run_pb2.RUN_STATE_SUCCEEDED
    assert run.summary == "done: Look at it"
    assert json.loads(run.result)["result"] == {"body": {"a": 1}}
    assert (run.exit_code, run.occupied, run.attempt) == (0, False, 1)
    assert run.responsible_user_id == OWNER
    assert await world.log(run.run_id) == "woken by autopilot_run\n"
    assert ran(tmp_path) == [run.run_id]
    assert [each.name for each in (tmp_path / "spool").iterdir()] == ["spool-id"]


async def test_an_issue_and_its_wake_are_made_together_and_the_answer_ends_the_issue(
    world: World,
) -> None:
    agent = await world.script(ANSWER)
    made = await world.issue(agent, "manual:1")

    assert made.issue.identifier == "ABC-1"
    assert made.wakeup.state == wakeup_pb2.WAKEUP_STATE_QUEUED
    wakeup = await world.settled(made.wakeup.wakeup_id)
    assert wakeup.state == wakeup_pb2.WAKEUP_STATE_COMPLETED
    assert wakeup.issue_id == made.issue.issue_id
    issue = await world.get_issue(made.issue.issue_id)
    assert issue.status == issue_pb2.ISSUE_STATUS_DONE
    assert issue.execution_run_id == ""


async def test_everything_is_told_in_the_feed_under_the_occurrence_key(world: World) -> None:
    agent = await world.agent(config={"issue_status": "done"})
    told: list[events_pb.Event] = []
    async with stream(world.events.WatchEvents(events_pb.WatchEventsRequest())) as messages:
        at = aiter(messages)
        assert (await anext(at)).HasField("bookmark")
        await world.issue(agent, "manual:2")
        while not told or told[-1].type != "wakeup.settled":
            message = await anext(at)
            if message.HasField("event"):
                told.append(message.event)

    # What an agent does is no part of the occurrence.
    told = [event for event in told if event.type != "agent.status"]
    assert {event.occurrence_key for event in told} == {"manual:2"}
    assert [event.type for event in told if event.type == "issue.updated"] == ["issue.updated"] * 2
    statuses = [
        json.loads(event.payload)["status"] for event in told if event.type == "issue.updated"
    ]
    assert statuses == ["in_progress", "done"]
    settled = json.loads(told[-1].payload)
    assert settled["state"] == "completed"
    assert settled["result"]["summary"] == "echo: Fix it"
    states = [json.loads(event.payload)["state"] for event in told if event.type.startswith("run.")]
    assert states == ["queued", "running", "succeeded"]


@pytest.mark.usefixtures("service")
async def test_the_feed_has_begun_before_anything_is_told(
    rows: asyncpg.Connection[asyncpg.Record],
) -> None:
    assert await rows.fetchval("SELECT count(*) FROM feed_epoch") == 1
    assert await rows.fetchval("SELECT count(*) FROM feed") == 0


async def test_a_stream_ends_with_the_service(service: Service, world: World) -> None:
    async with stream(world.events.WatchEvents(events_pb.WatchEventsRequest())) as messages:
        told = aiter(messages)
        await anext(told)
        stopping = asyncio.create_task(service.app.stop())
        with pytest.raises(Unavailable), as_domain_errors():
            async for _ in told:
                pass
    await stopping


async def test_one_trace_leads_from_the_callers_carrier_to_the_agents_environment(
    world: World, stage: Stage
) -> None:
    agent = await world.script("import os\nprint(os.environ['TRACEPARENT'], flush=True)\n" + ANSWER)
    caller = SpanSeed.root()
    result = await world.wake(
        agent,
        "webhook:3",
        origin=wakeup_pb2.Origin(
            occurrence_key="webhook:3",
            accountable_user_id=OWNER,
            trace_carrier=caller.carrier(),
        ),
    )
    wakeup = await world.settled(result.wakeup_id)

    send = await stage.spans.wait("send heartbeat.wakeups")
    run = await stage.spans.wait("run")
    invoked = await stage.spans.wait("invoke_agent script")
    assert {span.context.trace_id for span in (send, run, invoked)} == {caller.trace_id}
    assert send.parent is not None
    assert send.parent.span_id == caller.span_id
    assert run.parent is not None
    assert run.parent.span_id == send.context.span_id
    assert invoked.parent is not None
    assert invoked.parent.span_id == run.context.span_id
    seen = (await world.log(wakeup.run_id)).splitlines()[0]
    assert seen == f"00-{caller.trace_id:032x}-{invoked.context.span_id:016x}-01"
    assert wakeup.trace_id == f"{caller.trace_id:032x}"


async def test_the_environment_is_an_allow_list_and_the_body_is_not_in_it(
    world: World,
) -> None:
    agent = await world.script(
        "import json, os\nprint(json.dumps(dict(os.environ)), flush=True)",
        config={"env": {"COLOUR": "blue", "MY_API_TOKEN": "sesame-open-now"}},
    )
    result = await world.wake(
        agent, "webhook:4", payload=wakeup_pb2.Payload(content_type="text/plain", body=b"the body")
    )
    wakeup = await world.settled(result.wakeup_id)
    log = await world.log(wakeup.run_id)
    env = json.loads(log)

    ours = {name for name in env if name.startswith("REVEILLE_")}
    assert ours == {
        "REVEILLE_API",
        "REVEILLE_PAYLOAD_FILE",
        "REVEILLE_RESULT_FILE",
        "REVEILLE_RUN_ID",
        "REVEILLE_RUN_TOKEN",
    }
    rest = set(env) - ours
    assert rest <= {
        "PATH",
        "HOME",
        "LANG",
        "LC_ALL",
        "LC_CTYPE",
        "TZ",
        "TMPDIR",
        "PWD",
        "COLOUR",
        "MY_API_TOKEN",
        "TRACEPARENT",
    }
    assert "the body" not in log
    assert set(env["MY_API_TOKEN"]) == {"*"}
    assert set(env["REVEILLE_RUN_TOKEN"]) == {"*"}
