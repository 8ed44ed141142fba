"""Upkeep: rules that keep failing, streaks of skips, and how long things are kept."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeAlias
from uuid import UUID, uuid4

import asyncpg
import pytest
from tests.integration.autopilot.conftest import (
    CREATOR,
    MEMBER,
    Service,
    Stage,
    admit,
    edit_rule,
    facts,
    keep_up,
    make_autopilot,
    make_webhook,
    run_now,
)
from tests.integration.autopilot.peers import World

from reveille.autopilot.v1 import autopilot_pb2 as rule_pb
from reveille.autopilot.v1 import autopilot_service_pb2 as pb
from reveille.autopilot.v1 import rule_version_pb2 as version_pb
from reveille.common.v1 import reason_pb2
from reveille.heartbeat.v1 import wakeup_pb2
from reveille_autopilot.domain.models import Autopilot
from reveille_autopilot.store import upkeep
from reveille_autopilot.usecases import publish as publishing
from reveille_autopilot.usecases import system
from reveille_runtime.db import Tx
from reveille_testkit.database import TestDatabase
from reveille_testkit.waiting import eventually

Rows: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
MONITOR, RETENTION = "autopilot_monitor", "autopilot_retention"


@pytest.fixture
async def service(stage: Stage) -> Service:
    return await stage.start(monitor_least_runs=4, monitor_least_share=0.75, skip_streak=3)


async def ended(rows: Rows, rule: rule_pb.Autopilot, *states: str, ago: str = "1 minute") -> None:
    """Write runs that have ended, oldest first."""
    for state in states:
        await rows.execute(
            "INSERT INTO runs (id, workspace_id, autopilot_id, source, state, occurrence_key,"
            " execution_mode, agent_id, rule_version_id, title, prompt, payload_ready,"
            " dispatch_deadline_at, reason, created_at, finished_at)"
            " VALUES (uuidv7(), $1, $2, 'api', $3, $4, 'run_only', $5, $6, 't', 'p', true,"
            " clock(), 'runtime_offline', clock() - $7::text::interval,"
            " clock() - $7::text::interval)",
            UUID(rule.workspace_id),
            UUID(rule.autopilot_id),
            state,
            str(uuid4()),
            UUID(rule.agent_id),
            UUID(rule.rule_version_id),
            ago,
        )


async def notices(rows: Rows) -> list[dict[str, Any]]:
    found = await rows.fetch("SELECT payload FROM feed WHERE type = 'autopilot.notice'")
    return [row["payload"] for row in found]


async def read(service: Service, rule: rule_pb.Autopilot) -> rule_pb.Autopilot:
    response = await service.as_user(CREATOR).GetAutopilot(
        pb.GetAutopilotRequest(autopilot_id=rule.autopilot_id)
    )
    found: rule_pb.Autopilot = response.autopilot
    return found


async def test_a_rule_whose_runs_nearly_all_fail_is_paused_once_and_judged_anew_when_resumed(
    service: Service, world: World, workspace_id: UUID, rows: Rows
) -> None:
    broken = await make_autopilot(service, world, workspace_id, subscriber_user_ids=[MEMBER])
    young = await make_autopilot(service, world, workspace_id)
    mixed = await make_autopilot(service, world, workspace_id)
    # They came into force an hour ago.
    await rows.execute("UPDATE autopilots SET active_since = clock() - interval '1 hour'")
    await ended(rows, broken, "failed", "failed", "completed", "failed", "skipped", "skipped")
    await ended(rows, young, "failed", "failed", "failed")
    await ended(rows, mixed, "failed", "failed", "completed", "completed")
    # Runs from before it came into force do not count.
    await ended(rows, mixed, *["failed"] * 9, ago="2 hours")
    assert await keep_up(service, MONITOR) == {"paused": 1, "notices": 0}
    found = await read(service, broken)
    assert (found.status, found.pause_reason) == (
        rule_pb.AUTOPILOT_STATUS_PAUSED,
        reason_pb2.REASON_HIGH_FAILURE_RATE,
    )
    version = (
        await service.as_user(CREATOR).GetRuleVersion(
            pb.GetRuleVersionRequest(rule_version_id=found.rule_version_id)
        )
    ).rule_version
    assert (version.change, version.publisher_user_id) == (version_pb.RULE_CHANGE_PAUSED, "")
    (told,) = await notices(rows)
    assert (told["kind"], told["reason"], told["user_ids"]) == (
        "auto_paused",
        "high_failure_rate",
        [CREATOR, MEMBER],
    )
    assert (await keep_up(service, MONITOR))["paused"] == 0
    for rule in (young, mixed):
        assert (await read(service, rule)).status == rule_pb.AUTOPILOT_STATUS_ACTIVE
    # Old failures are not held against a rule that somebody put in force again.
    await service.as_user(CREATOR).ResumeAutopilot(
        pb.ResumeAutopilotRequest(autopilot_id=broken.autopilot_id)
    )
    assert (await keep_up(service, MONITOR))["paused"] == 0
    assert len(await notices(rows)) == 1


async def test_runs_that_were_given_up_without_a_body_are_no_failures_of_their_rule(
    service: Service, autopilot: rule_pb.Autopilot
) -> None:
    hook = await make_webhook(service, autopilot.autopilot_id)
    # Their moments within the hook's rate are days off.
    admitted = await admit(service, *(facts(hook.trigger) for _ in range(4)))
    service.move_clock(timedelta(hours=24, minutes=1).total_seconds())
    await service.tick("sweep")
    for each in admitted:
        run = await service.run_of(each.run_id)
        assert run.reason == reason_pb2.REASON_DISPATCH_INCOMPLETE
    assert (await keep_up(service, MONITOR))["paused"] == 0
    assert (await read(service, autopilot)).status == rule_pb.AUTOPILOT_STATUS_ACTIVE


async def test_a_rule_that_came_into_force_after_the_look_is_judged_anew(
    service: Service,
    world: World,
    workspace_id: UUID,
    rows: Rows,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rule = await make_autopilot(service, world, workspace_id)
    await rows.execute("UPDATE autopilots SET active_since = clock() - interval '1 hour'")
    await ended(rows, rule, *["failed"] * 4)
    look = upkeep.failing

    async def look_and_be_late(*given: Any) -> list[UUID]:
        found = await look(*given)
        # Somebody pauses and resumes it between the look and its lock.
        await rows.execute("UPDATE autopilots SET active_since = clock()")
        return found

    monkeypatch.setattr(upkeep, "failing", look_and_be_late)
    assert (await keep_up(service, MONITOR))["paused"] == 0
    monkeypatch.undo()
    await rows.execute("UPDATE autopilots SET active_since = clock() - interval '1 hour'")
    assert (await keep_up(service, MONITOR))["paused"] == 1


async def test_a_rule_that_cannot_be_paused_keeps_no_other_from_it_nor_streaks_from_being_told(
    service: Service,
    world: World,
    workspace_id: UUID,
    rows: Rows,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = [await make_autopilot(service, world, workspace_id) for _ in range(3)]
    # They are looked at in the order of their ids.
    stuck, other, skipping = sorted(made, key=lambda rule: rule.autopilot_id)
    await rows.execute("UPDATE autopilots SET active_since = clock() - interval '1 hour'")
    for rule in (stuck, other):
        await ended(rows, rule, *["failed"] * 4)
    await ended(rows, skipping, *["skipped"] * 3)
    tried: list[str] = []

    async def publish(tx: Tx, rule: Autopilot, *given: Any, **more: Any) -> Any:
        tried.append(str(rule.id))
        if str(rule.id) == stuck.autopilot_id:
            raise RuntimeError("it cannot be published")
        return await publishing.publish(tx, rule, *given, **more)

    monkeypatch.setattr(system, "publish", publish)
    assert await keep_up(service, MONITOR) == {"paused": 1, "notices": 1}
    assert tried == [stuck.autopilot_id, other.autopilot_id]
    assert (await read(service, stuck)).status == rule_pb.AUTOPILOT_STATUS_ACTIVE
    assert (await read(service, other)).pause_reason == reason_pb2.REASON_HIGH_FAILURE_RATE
    # The next look finds it again.
    monkeypatch.undo()
    assert await keep_up(service, MONITOR) == {"paused": 1, "notices": 0}
    assert (await read(service, stuck)).status == rule_pb.AUTOPILOT_STATUS_PAUSED


async def test_a_streak_of_skips_is_told_once_and_ends_with_a_run_that_was_not(
    service: Service, world: World, workspace_id: UUID, rows: Rows
) -> None:
    rule = await make_autopilot(service, world, workspace_id, subscriber_user_ids=[MEMBER])
    await rows.execute("UPDATE autopilots SET active_since = clock() - interval '1 hour'")
    await ended(rows, rule, "skipped", "skipped")
    assert (await keep_up(service, MONITOR))["notices"] == 0
    await ended(rows, rule, "skipped")
    assert (await keep_up(service, MONITOR))["notices"] == 1
    await ended(rows, rule, "skipped")
    assert (await keep_up(service, MONITOR))["notices"] == 0
    (told,) = await notices(rows)
    assert (told["kind"], told["reason"]) == ("skip_streak", "runtime_offline")
    assert told["user_ids"] == [CREATOR, MEMBER]
    await ended(rows, rule, "completed", ago="0 seconds")
    await ended(rows, rule, *["skipped"] * 3, ago="0 seconds")
    assert (await keep_up(service, MONITOR))["notices"] == 1
    # Of a rule that is paused nobody expects runs.
    resting = await make_autopilot(service, world, workspace_id)
    await service.as_user(CREATOR).PauseAutopilot(
        pb.PauseAutopilotRequest(autopilot_id=resting.autopilot_id)
    )
    await rows.execute("UPDATE autopilots SET active_since = clock() - interval '1 hour'")
    await ended(rows, resting, *["skipped"] * 3)
    assert (await keep_up(service, MONITOR))["notices"] == 0


async def test_what_was_in_force_is_known_as_long_as_the_run_and_no_longer(
    service: Service, world: World, autopilot: rule_pb.Autopilot, rows: Rows
) -> None:
    rule = autopilot
    first = rule.rule_version_id
    run = await run_now(service, rule.autopilot_id)
    opened = await run_now(service, rule.autopilot_id)
    assert opened.rule_version_id == first
    await edit_rule(service, rule, prompt="Second text.")
    middle = rule.rule_version_id
    await edit_rule(service, rule, prompt="Third text.", title="Renamed")
    await world.emit(
        world.settled(world.made[run.occurrence_key], wakeup_pb2.WAKEUP_STATE_COMPLETED)
    )
    await service.ended(run.run_id)
    user = service.as_user(CREATOR)

    async def kept() -> set[str]:
        found = await user.ListRuleVersions(
            pb.ListRuleVersionsRequest(autopilot_id=rule.autopilot_id)
        )
        return {each.rule_version_id for each in found.rule_versions}

    service.move_clock(timedelta(days=399).total_seconds())

    async def tidied() -> dict[str, Any]:
        told = await keep_up(service, RETENTION)
        assert told["runs_removed"] == 0
        return told

    # Events are for those who follow; a week is enough for them. A transaction of whomever on the
    # same server may hold their removal back for a moment.
    await eventually(tidied, "old events go", until=lambda told: told["events_removed"] > 0)
    version = (
        await user.GetRuleVersion(pb.GetRuleVersionRequest(rule_version_id=first))
    ).rule_version
    assert (version.prompt, version.publisher_user_id) == ("Look at what came in.", CREATOR)
    service.move_clock(timedelta(days=401).total_seconds())
    told = await keep_up(service, RETENTION)
    # The run that has its outcome goes; the open one stays, and its version with it.
    assert (told["runs_removed"], told["rule_versions_removed"]) == (1, 1)
    assert told["finished"]
    assert await kept() == {first, rule.rule_version_id}
    assert middle not in await kept()
    assert await rows.fetchval("SELECT count(*) FROM runs") == 1
    # Once that run goes too, so does its version, though the one that followed it went before.
    await world.emit(
        world.settled(world.made[opened.occurrence_key], wakeup_pb2.WAKEUP_STATE_COMPLETED)
    )
    await service.ended(opened.run_id)
    service.move_clock(timedelta(days=803).total_seconds())
    told = await keep_up(service, RETENTION)
    assert (told["runs_removed"], told["rule_versions_removed"]) == (1, 1)
    assert await kept() == {rule.rule_version_id}


async def test_versions_are_looked_through_by_their_indexes(
    autopilot: rule_pb.Autopilot, database: TestDatabase
) -> None:
    admin = await database.admin()
    await admin.execute("SET search_path = autopilot")
    await admin.execute(
        "INSERT INTO rule_versions SELECT (jsonb_populate_record(v, jsonb_build_object("
        "'id', gen_random_uuid(), 'autopilot_id', gen_random_uuid(), 'sequence', n))).*"
        " FROM rule_versions v, generate_series(1, 20000) AS n"
    )
    await admin.execute("ANALYZE rule_versions")
    body = await admin.fetchval("SELECT prosrc FROM pg_proc WHERE proname = 'prune_rule_versions'")
    query = body.replace("- keep", "- $1::interval").replace("LIMIT most", "LIMIT $2")
    lines = await admin.fetch("EXPLAIN " + query, timedelta(days=400), 1000)
    shown = "\n".join(line[0] for line in lines)
    assert "rule_versions_created_idx on rule_versions v" in shown
    assert "rule_versions_sequence_key on rule_versions l" in shown
    assert "Seq Scan on rule_versions" not in shown
