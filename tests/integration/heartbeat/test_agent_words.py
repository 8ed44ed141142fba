"""What an adapter tells beside output: events are kept and told, progress is one value."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from tests.integration.heartbeat.kit import World
from tests.integration.heartbeat.test_watching import Followed, follow

from reveille.events.v1 import event_service_pb2 as events_pb
from reveille_heartbeat.adapters.contract import AdapterResult, AgentContext, Reporter
from reveille_heartbeat.adapters.echo import EchoAdapter
from reveille_heartbeat.domain.outcome import End, EndKind
from reveille_heartbeat.domain.values import LogStream
from reveille_heartbeat.usecases.runs.agent_signs import AgentSigns
from reveille_heartbeat.usecases.runs.agent_words import AgentWords
from reveille_heartbeat.usecases.runs.log_store import PIECE
from reveille_runtime.client import stream
from reveille_runtime.lease import Lease
from reveille_testkit.waiting import eventually

SECRET = "sesame-open-now"
WITH_TOKEN = (
    "UPDATE agents SET adapter_config = jsonb_build_object('env',"
    " jsonb_build_object('MY_TOKEN', $1::text))"
)
DONE = AdapterResult(End(EndKind.EXITED, 0))


def plays(patch: pytest.MonkeyPatch, part: Any) -> None:
    """Let the echo adapter do what a test wants of an adapter."""

    async def run(self: EchoAdapter, context: AgentContext, reporter: Reporter) -> AdapterResult:
        await part(context, reporter)
        return DONE

    patch.setattr(EchoAdapter, "execute", run)


async def told_events(world: World, wake: Any) -> list[events_pb.Event]:
    """Collect `run.event` from before the wake until the wakeup is settled."""
    request = events_pb.WatchEventsRequest(types=["run.event", "wakeup.settled"])
    told: list[events_pb.Event] = []
    async with stream(world.events.WatchEvents(request)) as messages:
        at = aiter(messages)
        assert (await anext(at)).HasField("bookmark")
        await wake()
        while not told or told[-1].type != "wakeup.settled":
            message = await anext(at)
            if message.HasField("event"):
                told.append(message.event)
    return told[:-1]


async def test_events_are_kept_in_order_bounded_without_secrets_and_told_in_the_feed(
    world: World, monkeypatch: pytest.MonkeyPatch, rows: asyncpg.Connection[asyncpg.Record]
) -> None:
    async def part(context: AgentContext, reporter: Reporter) -> None:
        assert SECRET in context.secrets
        await reporter.event("tool_call", f"with {SECRET}", {"name": "grep", "token": SECRET})
        await reporter.event("x" * 200, "m" * 20_000, {"lines": ["l" * 100] * 1000})
        await reporter.event("large", "", {"text": "t" * 10_000})

    plays(monkeypatch, part)
    agent = await world.agent()
    await rows.execute(WITH_TOKEN, SECRET)
    woken: list[str] = []

    async def wake() -> None:
        woken.append((await world.wake(agent, "webhook:7")).wakeup_id)

    told = await told_events(world, wake)

    (run,) = await world.attempts(woken[0])
    followed = await follow(world.runs, run.run_id)
    kept = [
        each.event
        for each in followed.updates
        if each.HasField("event") and each.event.type.startswith("adapter.")
    ]
    assert [each.type for each in kept[::2]] == ["adapter.tool_call", "adapter.large"]
    facts = json.loads(kept[0].facts_json)
    assert facts["name"] == "grep"
    assert set(facts["token"]) == {"*"}
    assert set(kept[0].message.removeprefix("with ")) == {"*"}
    assert kept[1].type.endswith("more characters]")
    assert kept[1].message.endswith("… [3616 more characters]")
    assert len(json.loads(kept[1].facts_json)["lines"]) == 51
    payloads: list[Mapping[str, Any]] = [json.loads(each.payload) for each in told]
    assert [each["seq"] for each in payloads] == [each.seq for each in kept]
    assert {each.occurrence_key for each in told} == {"webhook:7"}
    assert (payloads[0]["facts"]["name"], payloads[0]["truncated"]) == ("grep", False)
    assert (payloads[2]["facts"], payloads[2]["truncated"]) == (None, True)
    assert all(len(each.payload) < 16_384 for each in told)


async def test_an_adapters_own_error_is_told_without_secrets(
    world: World, monkeypatch: pytest.MonkeyPatch, rows: asyncpg.Connection[asyncpg.Record]
) -> None:
    async def part(context: AgentContext, reporter: Reporter) -> None:
        raise ValueError(f"401 for {SECRET}")

    plays(monkeypatch, part)
    agent = await world.agent()
    await rows.execute(WITH_TOKEN, SECRET)
    wakeup = await world.settled((await world.wake(agent)).wakeup_id)

    run = await world.run(wakeup.run_id)
    assert run.message == f"the adapter failed: 401 for {'*' * len(SECRET)}"


async def test_progress_is_overwritten_and_what_comes_too_fast_is_written_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = asyncio.Event()
    written: list[Mapping[str, str]] = []
    true_write = AgentWords.progress

    async def count(self: AgentWords, lease: Lease, parts: Mapping[str, str]) -> None:
        written.append(parts)
        await true_write(self, lease, parts)

    async def part(context: AgentContext, reporter: Reporter) -> None:
        for at in range(100):
            reporter.progress(f"step {at}", phase="testing", tool="pytest")
        await go.wait()

    monkeypatch.setattr(AgentWords, "progress", count)
    plays(monkeypatch, part)
    woken = await world.wake(await world.agent())
    (first,) = await world.attempts(woken.wakeup_id)
    followed = Followed()
    following = asyncio.create_task(follow(world.runs, first.run_id, followed))

    async def look() -> list[str]:
        return [each.run.progress for each in followed.updates if each.HasField("run")]

    # Who follows is told what is so when they look: it has to be so until then.
    await eventually(look, "progress", until=lambda seen: "testing: step 99 (pytest)" in seen)
    go.set()
    await following
    assert len(written) == 1
    # Nobody is doing anything any more.
    assert (await look())[-1] == ""


async def test_a_chunk_of_any_size_is_kept_in_pieces_and_in_order(
    world: World, monkeypatch: pytest.MonkeyPatch, rows: asyncpg.Connection[asyncpg.Record]
) -> None:
    data = bytes(range(256)) * 1000

    async def part(context: AgentContext, reporter: Reporter) -> None:
        await reporter.log(LogStream.STDOUT, 0, data)
        await reporter.log(LogStream.STDOUT, len(data), b"the end")

    plays(monkeypatch, part)
    woken = await world.wake(await world.agent())
    wakeup = await world.settled(woken.wakeup_id)

    followed = await follow(world.runs, wakeup.run_id)
    assert followed.output() == data + b"the end"
    sizes = await rows.fetch("SELECT length(data) AS size FROM run_log_chunks")
    assert max(row["size"] for row in sizes) == PIECE


async def test_who_lost_the_run_tells_nothing_more(
    world: World, monkeypatch: pytest.MonkeyPatch, rows: asyncpg.Connection[asyncpg.Record]
) -> None:
    refused = asyncio.Event()

    async def part(context: AgentContext, reporter: Reporter) -> None:
        await rows.execute("UPDATE runs SET lease_token = $1", uuid4())
        try:
            await reporter.event("late", "")
        finally:
            refused.set()

    plays(monkeypatch, part)
    woken = await world.wake(await world.agent())
    await asyncio.wait_for(refused.wait(), 10)
    (run, *_) = await world.attempts(woken.wakeup_id)
    assert not await rows.fetchval(
        "SELECT count(*) FROM run_events WHERE run_id = $1 AND type = 'adapter.late'",
        UUID(run.run_id),
    )


async def test_the_last_sign_of_life_is_brought_at_the_end_and_seldom_before(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    brought = 0
    true_heard = AgentSigns.heard

    async def count(self: AgentSigns, lease: Lease, seconds_ago: float) -> None:
        nonlocal brought
        brought += 1
        await true_heard(self, lease, seconds_ago)

    monkeypatch.setattr(AgentSigns, "heard", count)
    lines = "for at in range(50):\n    print(at, flush=True)\n"
    woken = await world.wake(await world.script(lines))
    wakeup = await world.settled(woken.wakeup_id)

    run = await world.run(wakeup.run_id)
    assert run.start_time.ToDatetime() < run.last_output_time.ToDatetime()
    assert run.last_output_time.ToDatetime() <= run.finish_time.ToDatetime()
    # The last one comes with the outcome.
    assert brought == 0
