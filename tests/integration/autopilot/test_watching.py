"""Watching: the runs of a workspace as they change, and the feed of rules and runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg
import grpc
from tests.integration.autopilot.conftest import (
    CREATOR,
    MEMBER,
    STRANGER,
    Service,
    Stage,
    edit_rule,
    make_autopilot,
    make_webhook,
    refused,
    run_now,
)
from tests.integration.autopilot.peers import World

from reveille.autopilot.v1 import autopilot_pb2 as rule_pb
from reveille.autopilot.v1 import autopilot_service_pb2 as pb
from reveille.autopilot.v1 import run_pb2
from reveille.events.v1 import event_service_pb2 as event_pb
from reveille.events.v1.event_service_pb2_grpc import EventServiceStub
from reveille.heartbeat.v1 import wakeup_pb2
from reveille_runtime.feed import Cursor

Rows: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


@asynccontextmanager
async def watching(
    service: Service, workspace_id: UUID, **more: Any
) -> AsyncIterator[AsyncIterator[pb.WatchRunsResponse]]:
    request = pb.WatchRunsRequest(workspace_id=str(workspace_id), **more)
    call = service.as_user(MEMBER).WatchRuns(request)
    try:
        async with asyncio.timeout(20):
            yield aiter(call)
    finally:
        call.cancel()


async def following(
    stream: AsyncIterator[pb.WatchRunsResponse],
) -> tuple[run_pb2.AutopilotRun, str]:
    """Give the next change, over bookmarks."""
    while True:
        message = await anext(stream)
        if message.HasField("run"):
            return message.run, message.cursor


async def test_a_watcher_gets_a_snapshot_then_changes_and_goes_on_where_it_was(
    service: Service, world: World, workspace_id: UUID, autopilot: rule_pb.Autopilot
) -> None:
    open_run = await run_now(service, autopilot.autopilot_id)
    done = await run_now(service, autopilot.autopilot_id)
    await world.emit(
        world.settled(world.made[done.occurrence_key], wakeup_pb2.WAKEUP_STATE_COMPLETED)
    )
    await service.ended(done.run_id)
    other = await make_autopilot(service, world, workspace_id)
    async with watching(service, workspace_id, autopilot_id=autopilot.autopilot_id) as stream:
        first = await anext(stream)
        assert (first.run.run_id, first.cursor) == (open_run.run_id, "")
        assert (first.run.prompt, first.run.result) == ("", b"")
        bookmark = await anext(stream)
        assert not bookmark.HasField("run")
        await run_now(service, other.autopilot_id)
        await world.emit(
            world.settled(world.made[open_run.occurrence_key], wakeup_pb2.WAKEUP_STATE_FAILED)
        )
        changed, cursor = await following(stream)
        assert (changed.run_id, changed.state) == (open_run.run_id, run_pb2.RUN_STATE_FAILED)
    later = await run_now(service, autopilot.autopilot_id)
    async with watching(
        service, workspace_id, autopilot_id=autopilot.autopilot_id, cursor=cursor
    ) as stream:
        while True:
            changed, _ = await following(stream)
            # What was not settled for good may come again; nothing is left out.
            if changed.run_id == later.run_id:
                break
            assert changed.run_id in {open_run.run_id, done.run_id}
    async with watching(service, workspace_id, cursor=bookmark.cursor) as stream:
        seen: set[str] = set()
        while later.run_id not in seen:
            changed, _ = await following(stream)
            seen.add(changed.run_id)
        assert open_run.run_id in seen


async def test_a_watcher_hears_of_runs_that_another_replica_made(
    service: Service, stage: Stage, workspace_id: UUID, autopilot: rule_pb.Autopilot
) -> None:
    other = await stage.start()
    async with watching(other, workspace_id) as stream:
        await anext(stream)
        run = await run_now(service, autopilot.autopilot_id)
        changed, _ = await following(stream)
        assert changed.run_id == run.run_id


async def test_who_may_not_watch_is_told_so_and_an_old_cursor_too(
    service: Service, workspace_id: UUID
) -> None:
    async with refused(grpc.StatusCode.NOT_FOUND, "NOT_FOUND"):
        await anext(
            aiter(
                service.as_user(STRANGER).WatchRuns(
                    pb.WatchRunsRequest(workspace_id=str(workspace_id))
                )
            )
        )
    bad = (
        (Cursor(1, 5, 5).encode(), grpc.StatusCode.OUT_OF_RANGE, "CURSOR_EXPIRED"),
        ("nonsense", grpc.StatusCode.INVALID_ARGUMENT, "INVALID_CURSOR"),
    )
    for cursor, code, reason in bad:
        async with (
            refused(code, reason),
            watching(service, workspace_id, cursor=cursor) as stream,
        ):
            await anext(stream)


async def test_the_feed_tells_of_rules_and_runs_and_never_a_secret(
    service: Service, world: World, autopilot: rule_pb.Autopilot, rows: Rows
) -> None:
    rule = autopilot
    hook = await make_webhook(service, rule.autopilot_id)
    user = service.as_user(CREATOR)
    await user.AddSigningSecret(
        pb.AddSigningSecretRequest(trigger_id=hook.trigger.trigger_id, secret=b"s3cr3t" * 4)
    )
    rotated = await user.RotateWebhookToken(
        pb.RotateWebhookTokenRequest(trigger_id=hook.trigger.trigger_id)
    )
    rule.CopyFrom(
        (await user.GetAutopilot(pb.GetAutopilotRequest(autopilot_id=rule.autopilot_id))).autopilot
    )
    await edit_rule(service, rule, prompt="Look twice.")
    run = await run_now(service, rule.autopilot_id)
    await world.emit(world.settled(world.only(), wakeup_pb2.WAKEUP_STATE_COMPLETED))
    await service.ended(run.run_id)
    await user.ArchiveAutopilot(pb.ArchiveAutopilotRequest(autopilot_id=rule.autopilot_id))
    stub = EventServiceStub(service.channel(service.keys.service("heartbeat")))
    call = stub.WatchEvents(event_pb.WatchEventsRequest(cursor=Cursor.beginning().encode()))
    seen: list[event_pb.Event] = []
    async with asyncio.timeout(20):
        async for message in call:
            if message.HasField("event"):
                seen.append(message.event)
                if message.event.type == "autopilot.archived":
                    break
    call.cancel()
    types = [event.type for event in seen]
    assert types[0] == "autopilot.created"
    assert types.count("autopilot.updated") == 4
    of_run = [event.type for event in seen if event.subject_id == run.run_id]
    assert of_run == ["autopilot.run.admitted", "autopilot.run.started", "autopilot.run.done"]
    assert json.loads(next(e for e in seen if e.type == "autopilot.run.done").payload)["state"] == (
        "completed"
    )
    everything = b"".join(event.SerializeToString() for event in seen)
    for secret in (hook.hook_path, rotated.hook_path):
        assert secret.removeprefix("/hooks/").encode() not in everything
    assert b"s3cr3t" not in everything
    async with refused(grpc.StatusCode.PERMISSION_DENIED, "CALLER_NOT_ALLOWED"):
        outsider = EventServiceStub(service.channel(service.keys.user(CREATOR)))
        await anext(aiter(outsider.WatchEvents(event_pb.WatchEventsRequest())))
    assert await rows.fetchval("SELECT count(*) FROM feed") == len(seen)
