"""Following a run: everything once and in order, from anywhere, however many follow it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import grpc
import pytest
from tests.integration.heartbeat.conftest import Service, Stage
from tests.integration.heartbeat.kit import MEMBER, World
from tests.integration.heartbeat.test_processes import linger, process_in

from reveille.heartbeat.v1 import run_pb2
from reveille.heartbeat.v1.run_pb2_grpc import RunServiceStub, add_RunServiceServicer_to_server
from reveille_heartbeat.domain.tail import Position
from reveille_heartbeat.domain.values import LogStream
from reveille_heartbeat.rpc.runs import RunServicer
from reveille_heartbeat.usecases.runs.log_store import LogChunk
from reveille_heartbeat.usecases.runs.run_log import RunLog
from reveille_heartbeat.usecases.runs.run_news import ReadNews, RunNews, Seen
from reveille_heartbeat.usecases.runs.table_log import TableLog
from reveille_heartbeat.usecases.runs.watch_run import WatchRuns
from reveille_runtime.access import Role
from reveille_runtime.client import stream
from reveille_runtime.errors import (
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
)
from reveille_runtime.hints import Hint, Notifier
from reveille_runtime.lease import Lease
from reveille_runtime.rpc_errors import as_domain_errors
from reveille_testkit.rpc import Keyring, RpcRig, serving
from reveille_testkit.waiting import eventually

TALK = """
import sys
for at in range(3):
    print("line", at, flush=True)
print("oh", file=sys.stderr, flush=True)
"""


@dataclass
class Followed:
    """What a stream has brought."""

    updates: list[run_pb2.WatchRunResponse] = field(default_factory=list)

    def take(self, update: run_pb2.WatchRunResponse) -> None:
        self.updates.append(update)

    @property
    def states(self) -> list[str]:
        found: list[str] = []
        for each in self.updates:
            if each.HasField("run"):
                state = run_pb2.RunState.Name(each.run.state).removeprefix("RUN_STATE_").lower()
                if not found or found[-1] != state:
                    found.append(state)
        return found

    @property
    def events(self) -> list[int]:
        return [each.event.seq for each in self.updates if each.HasField("event")]

    def output(self, stream: Any = run_pb2.LOG_STREAM_STDOUT, start: int = 0) -> bytes:
        data = b""
        for each in self.updates:
            if each.HasField("log") and each.log.stream == stream:
                assert each.log.offset == start + len(data)
                data += each.log.data
        return data

    @property
    def ended(self) -> bool:
        return bool(self.updates) and self.updates[-1].end


async def follow(runs: Any, run_id: str, into: Followed | None = None, **more: Any) -> Followed:
    followed = into or Followed()
    request = run_pb2.WatchRunRequest(run_id=run_id, **more)
    with as_domain_errors():
        async with stream(runs.WatchRun(request)) as updates:
            async for update in updates:
                followed.take(update)
    return followed


async def test_a_run_is_followed_from_the_queue_to_its_end(world: World) -> None:
    agent = await world.script(TALK)
    woken = await world.wake(agent)
    (run,) = await world.attempts(woken.wakeup_id)

    followed = await follow(world.runs, run.run_id)

    assert followed.ended
    assert followed.updates[0].HasField("run")
    assert followed.states[-1] == "succeeded"
    assert followed.events == list(range(1, len(followed.events) + 1))
    assert followed.output() == b"line 0\nline 1\nline 2\n"
    assert followed.output(run_pb2.LOG_STREAM_STDERR) == b"oh\n"
    kinds = [each.event.type for each in followed.updates if each.HasField("event")]
    assert kinds[0] == "run.claimed"
    assert "run.succeeded" in kinds
    # Whoever asks later gets the same at once; whoever was cut off, only the rest.
    again = await follow(world.runs, run.run_id)
    assert (again.events, again.output(), again.ended) == (
        followed.events,
        followed.output(),
        True,
    )
    rest = await follow(
        world.runs,
        run.run_id,
        after_event=followed.events[-2],
        stdout_offset=len(b"line 0\n"),
        stderr_offset=2,
    )
    assert rest.states == ["succeeded"]
    assert rest.events == [followed.events[-1]]
    assert rest.output(start=7) == b"line 1\nline 2\n"
    assert rest.output(run_pb2.LOG_STREAM_STDERR, 2) == b"\n"
    silent = await follow(world.runs, run.run_id, without_log=True)
    assert (silent.output(), silent.events, silent.ended) == (b"", followed.events, True)


async def test_who_may_follow_and_what_they_may_ask(world: World) -> None:
    agent = await world.agent()
    woken = await world.wake(agent)
    (run,) = await world.attempts(woken.wakeup_id)
    member = RunServiceStub(world.client.user(MEMBER, world.workspace_id))
    assert (await follow(member, run.run_id)).ended
    stranger = RunServiceStub(world.client.user("eve", uuid4()))
    refusals = []
    for runs, run_id in ((stranger, run.run_id), (stranger, str(uuid4()))):
        with pytest.raises(NotFound) as caught:
            await follow(runs, run_id)
        refusals.append(caught.value.reason)
    assert refusals[0] == refusals[1]
    with pytest.raises(Unauthenticated):
        await follow(RunServiceStub(world.client.channel("no token")), run.run_id)
    for wrong in ({"stdout_offset": -1}, {"after_event": -1}, {"run_id": "x"}):
        with pytest.raises(InvalidArgument) as refused:
            await follow(member, **({"run_id": run.run_id} | wrong))
        assert refused.value.violations[0].field == next(iter(wrong))


async def test_a_service_that_stops_sends_its_watchers_elsewhere(
    world: World, service: Service, tmp_path: Path
) -> None:
    woken = await world.wake(await world.script(linger(tmp_path / "pid")))
    (run,) = await world.attempts(woken.wakeup_id)
    await process_in(tmp_path / "pid")
    followed = Followed()
    following = asyncio.create_task(follow(world.runs, run.run_id, followed))

    async def output() -> bytes:
        return followed.output()

    await eventually(output, "its output arrives", until=lambda seen: seen == b"ready\n")
    await service.app.stop()
    with pytest.raises(Unavailable):
        await following


class CountedNews(ReadNews):
    """Counts how often the tables are asked, and for how much."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.asked: list[int] = []

    async def __call__(self, wanted: Sequence[Seen]) -> list[RunNews | None]:
        self.asked.append(len(wanted))
        return await super().__call__(wanted)


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class OnlyWatch(RunServicer):
    """The servicer, without what is not asked of it here."""

    def __init__(self, watch: WatchRuns) -> None:
        self._watch = watch


class Watching:
    """A server of its own whose reader the test drives, and a run that the test itself executes."""

    def __init__(self, rig: RpcRig, stage: Stage, world: World, database: Any) -> None:
        self.rig = rig
        self.world = world
        self.clock = Clock()
        store = TableLog(database)
        self.read = CountedNews(database, store)
        self.log = RunLog(database, store, Notifier(database, enabled=False))
        self.hint = Hint()
        self.watch = WatchRuns(
            self.read,
            self.hint,
            rig.server.draining,
            most_bytes=256 << 10,
            patience=5.0,
            monotonic=self.clock,
        )
        rig.server.add(add_RunServiceServicer_to_server, OnlyWatch(self.watch))
        self.lease = Lease(UUID(int=0), uuid4())
        self.written = b""

    async def begin(self, rows: asyncpg.Connection[asyncpg.Record]) -> None:
        woken = await self.world.wake(await self.world.agent())
        (run,) = await self.world.attempts(woken.wakeup_id)
        self.lease = Lease(UUID(run.run_id), self.lease.token)
        await rows.execute(
            "UPDATE runs SET state = 'running', occupied = true, started_at = clock(),"
            " event_seq = event_seq + 1, lease_token = $2,"
            " lease_expires_at = clock() + '1 hour' WHERE run_id = $1",
            self.lease.id,
            self.lease.token,
        )

    @property
    def run_id(self) -> str:
        return str(self.lease.id)

    async def say(self, data: bytes) -> None:
        await self.log.append(LogChunk(self.lease, LogStream.STDOUT, len(self.written), data))
        self.written += data

    @property
    def token(self) -> str:
        return self.rig.keys.user(MEMBER, {self.world.workspace_id: Role.MEMBER})

    def stub(self) -> Any:
        return RunServiceStub(self.rig.channel(self.token))

    async def watched_by(self, count: int) -> None:
        async def look() -> int:
            return self.watch.watchers

        await eventually(look, f"{count} watch", until=lambda seen: seen == count)


@pytest.fixture
async def watching(
    stage: Stage, keys: Keyring, tmp_path: Path, rows: asyncpg.Connection[asyncpg.Record]
) -> AsyncIterator[Watching]:
    service = await stage.start(engine_concurrency=0)
    world = World(service.client, tmp_path)
    await world.put()
    rig = RpcRig(keys)
    watching = Watching(rig, stage, world, service.app.database)
    await watching.begin(rows)
    async with serving(rig):
        yield watching
        await watching.log.close()


async def test_many_watchers_of_a_run_cost_one_reader(watching: Watching) -> None:
    followed = [Followed() for _ in range(20)]
    tasks = [
        asyncio.create_task(follow(watching.stub(), watching.run_id, each)) for each in followed
    ]
    await watching.watched_by(20)
    before = len(watching.read.asked)
    for at in range(3):
        await watching.say(b"line %d\n" % at)
        await watching.watch.step()

    async def heard() -> set[bytes]:
        return {each.output() for each in followed}

    await eventually(heard, "all hear it", until=lambda seen: seen == {watching.written})
    assert watching.read.asked[before:] == [1, 1, 1]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await watching.watched_by(0)
    await watching.watch.step()
    assert len(watching.read.asked) == before + 3


class ThroughValve:
    """A client behind a valve, which takes little before it has to read."""

    def __init__(self, address: str, token: str) -> None:
        small = (("grpc.http2.lookahead_bytes", 16_384), ("grpc.http2.bdp_probe", 0))
        self.channel = grpc.aio.insecure_channel(address, options=small)
        self._runs: Any = RunServiceStub(self.channel)
        self._metadata = (("authorization", f"Bearer {token}"),)

    def WatchRun(self, request: run_pb2.WatchRunRequest) -> Any:
        return self._runs.WatchRun(request, metadata=self._metadata)


class Valve:
    """A connection in the middle whose way back can be shut: nobody reads on the other side."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self.open = asyncio.Event()
        self.open.set()
        self.address = ""
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward_reader, onward = await asyncio.open_connection(*self._target, limit=4096)
        self._writers += [writer, onward]
        with contextlib.suppress(ConnectionError):
            await asyncio.gather(
                self._pump(reader, onward, None), self._pump(onward_reader, writer, self.open)
            )

    @staticmethod
    async def _pump(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event | None
    ) -> None:
        while True:
            if gate is not None:
                await gate.wait()
            data = await reader.read(4096)
            if not data:
                writer.close()
                return
            writer.write(data)
            await writer.drain()

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


@asynccontextmanager
async def valve(target: str) -> AsyncIterator[Valve]:
    made = Valve(target)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        made.open.set()
        server.close()
        made.close()


async def _until_cut(watching: Watching, fast: Followed) -> None:
    """Say much, until the one that reads nothing has filled the tail and was cut off."""

    async def heard() -> int:
        return len(fast.output())

    at = 0
    while watching.watch.watchers == 2:
        at += 1
        assert at < 200, "nobody was cut off"
        await watching.say(b"%04d" % at * (16 << 10))
        while (await watching.watch.step()) == 0:
            pass
        if len(fast.output()) < len(watching.written):
            # Full: whoever reads is up to date with it, and then it is a matter of patience.
            await asyncio.wait_for(watching.watch.wait(0.05), 1)
            watching.clock.now += 2.6
    while len(fast.output()) < len(watching.written):
        await watching.watch.step()
        await eventually(heard, "the fast one goes on", until=lambda seen: seen > 0)


async def test_a_reader_that_is_too_slow_is_cut_off_alone_and_comes_back_where_it_was(
    watching: Watching,
) -> None:
    fast, slow = Followed(), Followed()
    quick = asyncio.create_task(follow(watching.stub(), watching.run_id, fast))
    async with valve(watching.rig.server.address) as between:
        runs = ThroughValve(between.address, watching.token)
        lagging = asyncio.create_task(follow(runs, watching.run_id, slow))
        await watching.watched_by(2)
        between.open.clear()
        await _until_cut(watching, fast)
        between.open.set()
        with pytest.raises(ResourceExhausted) as caught:
            await lagging
        assert caught.value.reason == "OVERLOADED"
        got = len(slow.output())
        assert got < len(watching.written)
        assert fast.output() == watching.written
        rest = Followed()
        back = asyncio.create_task(
            follow(
                runs,
                watching.run_id,
                rest,
                stdout_offset=got,
                after_event=max(slow.events, default=0),
            )
        )

        async def caught_up() -> bytes:
            return rest.output(start=got)

        await eventually(
            caught_up, "it catches up", until=lambda seen: slow.output() + seen == watching.written
        )
        for task in (quick, back):
            task.cancel()
        await asyncio.gather(quick, back, return_exceptions=True)
        await runs.channel.close()


async def test_nothing_more_is_read_for_one_who_takes_nothing(watching: Watching) -> None:
    """Until its patience is over, which this clock never says."""
    async with valve(watching.rig.server.address) as between:
        runs = ThroughValve(between.address, watching.token)
        lagging = asyncio.create_task(follow(runs, watching.run_id, Followed()))
        await watching.watched_by(1)
        between.open.clear()
        for _ in range(300):
            await watching.say(bytes(64 << 10))
            before = len(watching.read.asked)
            while await watching.watch.step() == 0:
                pass
            if len(watching.read.asked) == before:
                break
        else:
            pytest.fail("it is buffered without a bound")
        between.open.set()
        lagging.cancel()
        await asyncio.gather(lagging, return_exceptions=True)
        await runs.channel.close()


async def test_a_reader_that_takes_nothing_at_all_does_not_keep_its_call(
    watching: Watching,
) -> None:
    fast, slow = Followed(), Followed()
    quick = asyncio.create_task(follow(watching.stub(), watching.run_id, fast))
    async with valve(watching.rig.server.address) as between:
        runs = ThroughValve(between.address, watching.token)
        lagging = asyncio.create_task(follow(runs, watching.run_id, slow))
        await watching.watched_by(2)
        between.open.clear()
        await _until_cut(watching, fast)
        assert watching.rig.server.in_flight == 2
        watching.clock.now += 5.1
        await watching.watch.step()

        async def served() -> int:
            return watching.rig.server.in_flight

        await eventually(served, "its call has ended", until=lambda seen: seen == 1)
        for task in (quick, lagging):
            task.cancel()
        await asyncio.gather(quick, lagging, return_exceptions=True)
        await runs.channel.close()


async def test_who_begins_in_the_middle_misses_nothing_and_hears_nothing_twice(
    watching: Watching,
) -> None:
    first, second = Followed(), Followed()
    await watching.say(b"before\n")
    one = asyncio.create_task(follow(watching.stub(), watching.run_id, first))
    await watching.watched_by(1)
    await watching.say(b"while\n")
    # The second reads this from the table and again from the tail.
    two = asyncio.create_task(follow(watching.stub(), watching.run_id, second))
    await watching.watched_by(2)
    await watching.watch.step()
    await watching.say(b"after\n")
    await watching.watch.step()

    async def heard() -> set[bytes]:
        return {first.output(), second.output()}

    await eventually(heard, "both hear all", until=lambda seen: seen == {watching.written})
    for task in (one, two):
        task.cancel()
    await asyncio.gather(one, two, return_exceptions=True)


async def test_whoever_asks_for_what_is_not_there_yet_keeps_nobody_from_what_is(
    watching: Watching,
) -> None:
    await watching.say(b"here\n")
    far, near, quiet, quieter = (Followed() for _ in range(4))
    places: list[tuple[Followed, dict[str, Any]]] = [
        (far, {"stdout_offset": 1 << 40, "after_event": 1 << 30}),
        (near, {"stdout_offset": 5}),
        (quiet, {"without_log": True, "stdout_offset": 1 << 40}),
        (quieter, {"without_log": True}),
    ]
    tasks = []
    for at, (followed, place) in enumerate(places):
        tasks.append(
            asyncio.create_task(follow(watching.stub(), watching.run_id, followed, **place))
        )
        await watching.watched_by(at + 1)
    await watching.say(b"there\n")
    await watching.watch.step()

    async def heard() -> bytes:
        return near.output(start=5)

    await eventually(heard, "it hears the rest", until=lambda seen: seen == b"there\n")
    assert (far.output(), far.events, quiet.output(), quieter.output()) == (b"", [], b"", b"")
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_the_reader_rests_while_there_is_nothing_to_read(watching: Watching) -> None:
    followed = Followed()
    task = asyncio.create_task(follow(watching.stub(), watching.run_id, followed))
    await watching.watched_by(1)
    await watching.say(b"one\n")
    await watching.watch.step()

    async def heard() -> bytes:
        return followed.output()

    await eventually(heard, "it hears", until=lambda seen: seen == b"one\n")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(watching.watch.wait(60), 0.1)
    watching.hint.set()
    await asyncio.wait_for(watching.watch.wait(60), 5)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_a_position_without_output_is_behind_nothing() -> None:
    assert Position(3).covers(Position(2))
    assert not Position(3).covers(Position(3, 1))
