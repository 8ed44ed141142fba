"""Death at every durable boundary: after the restart, one run, one downstream object, one outcome.

A crash point ends the process at once. Here it ends whatever ran into it, by an exception that
nothing catches; the replica is then taken off the stage, and another one takes over the same rows.
The tests over four real processes kill for good.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg
import pytest
from tests.integration.autopilot.conftest import (
    CREATOR,
    Service,
    Stage,
    admit,
    facts,
    hand_over,
    make_autopilot,
    make_schedule,
    make_webhook,
    plan,
    run_now,
    run_plan,
    until,
    whole_second,
)
from tests.integration.autopilot.peers import World

from reveille.autopilot.v1 import autopilot_pb2 as rule_pb
from reveille.autopilot.v1 import autopilot_service_pb2 as pb
from reveille.autopilot.v1 import run_pb2
from reveille.common.v1 import reason_pb2
from reveille.heartbeat.v1 import issue_pb2, wakeup_pb2
from reveille.scheduler.v1 import job_handler_service_pb2 as plan_pb
from reveille_autopilot.crash_points import CRASH_POINTS
from reveille_runtime.crash import POINT_VARIABLE

Rows: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


class Crashed(BaseException):
    """Nothing in the service may catch this, just as nothing catches the end of a process."""


@dataclass
class Fault:
    """Arms one crash point and tells when the service ran into it."""

    monkeypatch: pytest.MonkeyPatch
    hit: asyncio.Event

    def arm(self, point: str) -> None:
        self.monkeypatch.setenv(POINT_VARIABLE, point)

    def disarm(self) -> None:
        self.monkeypatch.delenv(POINT_VARIABLE)


@pytest.fixture
def fault(monkeypatch: pytest.MonkeyPatch) -> Fault:
    fault = Fault(monkeypatch, asyncio.Event())

    def die(_status: int) -> None:
        fault.hit.set()
        raise Crashed

    monkeypatch.setattr(os, "_exit", die)
    return fault


@dataclass
class Trial:
    """What a scenario works with; `service` is the replica that will die."""

    service: Service
    stage: Stage
    world: World
    rows: Rows
    workspace_id: UUID
    autopilot: rule_pb.Autopilot
    fault: Fault

    async def crash(self, point: str, *doings: Awaitable[Any]) -> Service:
        """Do something until the point is reached, throw the replica away, start another."""
        self.fault.arm(point)
        running = [asyncio.ensure_future(doing) for doing in doings]
        async with asyncio.timeout(20):
            await self.fault.hit.wait()
        self.fault.disarm()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await throw_away(self.service)
        return await self.stage.start()

    async def one_run(self) -> asyncpg.Record:
        found = await self.rows.fetch("SELECT id, state, reason, occurrence_key FROM runs")
        assert len(found) == 1, found
        return found[0]


async def throw_away(service: Service) -> None:
    """Take a replica off the stage whose loops may have died."""
    for supervisor in (service.app._claiming, service.app._working):
        dead = True
        while dead:
            try:
                await supervisor.stop(0.2)
                dead = False
            except Crashed:
                # One component is accounted for; the next call goes on with the others.
                continue
    await service.close()


Scenario = Callable[[Trial, str], Awaitable[None]]


async def manual(trial: Trial, point: str) -> None:
    """The caller repeats its request."""
    rule_id = trial.autopilot.autopilot_id
    later = await trial.crash(point, run_now(trial.service, rule_id, request_id="r"))
    run = await run_now(later, rule_id, request_id="r")
    assert run.state == run_pb2.RUN_STATE_RUNNING
    await _completes(trial, later, run.run_id)


async def schedule(trial: Trial, point: str) -> None:
    """The scheduler repeats its plan."""
    trigger = await make_schedule(trial.service, trial.autopilot.autopilot_id)
    planned_at = whole_second()
    later = await trial.crash(point, run_plan(trial.service, plan(trigger, planned_at)))
    (result,) = await run_plan(later, plan(trigger, planned_at, attempt=2))
    assert result.outcome == plan_pb.PLAN_OUTCOME_SUCCESS
    await _completes(trial, later, str((await trial.one_run())["id"]))


async def webhook(trial: Trial, point: str) -> None:
    """The gateway repeats whatever got no answer."""
    hook = await make_webhook(trial.service, trial.autopilot.autopilot_id)
    delivery = facts(hook.trigger)

    async def deliver(service: Service) -> None:
        (answer,) = await admit(service, delivery)
        await hand_over(service, delivery, answer.run_id, b"body")

    later = await trial.crash(point, deliver(trial.service))
    await deliver(later)
    made = trial.world.only()
    assert made.wakeup is not None
    assert made.wakeup.payload.body == b"body"
    await _completes(trial, later, str((await trial.one_run())["id"]))


async def nobody_repeats(trial: Trial, point: str) -> None:
    """The caller has gone for good: the sweep finishes what was begun, if anything was."""
    rule_id = trial.autopilot.autopilot_id
    later = await trial.crash(point, run_now(trial.service, rule_id))
    later.move_clock(60)
    await later.tick("sweep")
    if point == "autopilot.admit.before_commit":
        assert await trial.rows.fetchval("SELECT count(*) FROM runs") == 0
        assert not trial.world.made
    else:
        await _completes(trial, later, str((await trial.one_run())["id"]))


async def issue(trial: Trial, point: str) -> None:
    """The same for a run that makes an issue."""
    rule = await make_autopilot(trial.service, trial.world, trial.workspace_id, issue=True)
    later = await trial.crash(point, run_now(trial.service, rule.autopilot_id, request_id="r"))
    run = await run_now(later, rule.autopilot_id, request_id="r")
    made = trial.world.only()
    assert run.issue_id == made.issue_id
    await trial.world.emit(trial.world.moved(made, issue_pb2.ISSUE_STATUS_DONE))
    assert (await later.ended(run.run_id)).state == run_pb2.RUN_STATE_COMPLETED
    assert (await trial.one_run())["state"] == "completed"


async def completion(trial: Trial, point: str) -> None:
    """The feed brings the event again: its cursor had not moved."""
    run = await run_now(trial.service, trial.autopilot.autopilot_id)
    event = trial.world.settled(trial.world.only(), wakeup_pb2.WAKEUP_STATE_COMPLETED)
    later = await trial.crash(point, trial.world.emit(event))
    assert (await later.ended(run.run_id)).state == run_pb2.RUN_STATE_COMPLETED
    assert (await trial.one_run())["state"] == "completed"


async def succession(trial: Trial, point: str) -> None:
    """The run that waits begins once the one before it has ended, whoever told of that end."""
    policy = rule_pb.OVERLAP_POLICY_BUFFER_ONE
    rule = await make_autopilot(
        trial.service, trial.world, trial.workspace_id, overlap_policy=policy
    )
    first = await run_now(trial.service, rule.autopilot_id)
    waiting = await run_now(trial.service, rule.autopilot_id)
    assert waiting.state == run_pb2.RUN_STATE_BUFFERED
    event = trial.world.settled(trial.world.only(), wakeup_pb2.WAKEUP_STATE_COMPLETED)
    later = await trial.crash(point, trial.world.emit(event))
    assert (await later.ended(first.run_id)).state == run_pb2.RUN_STATE_COMPLETED
    await until(lambda: waiting.occurrence_key in trial.world.made, "it begins")
    made = trial.world.made[waiting.occurrence_key]
    await trial.world.emit(trial.world.settled(made, wakeup_pb2.WAKEUP_STATE_COMPLETED))
    assert (await later.ended(waiting.run_id)).state == run_pb2.RUN_STATE_COMPLETED
    assert len(trial.world.made) == 2


async def replacement(trial: Trial, point: str) -> None:
    """The caller repeats its request: one run is left, and the one before it is cancelled."""
    policy = rule_pb.OVERLAP_POLICY_CANCEL_OTHER
    rule = await make_autopilot(
        trial.service, trial.world, trial.workspace_id, overlap_policy=policy
    )
    before = await run_now(trial.service, rule.autopilot_id)
    later = await trial.crash(point, run_now(trial.service, rule.autopilot_id, request_id="r"))
    after = await run_now(later, rule.autopilot_id, request_id="r")
    ended = await later.ended(before.run_id)
    assert (ended.state, ended.reason) == (
        run_pb2.RUN_STATE_CANCELLED,
        reason_pb2.REASON_REPLACED,
    )
    assert after.state == run_pb2.RUN_STATE_RUNNING
    queued = [
        key
        for key, made in trial.world.made.items()
        if made.state == wakeup_pb2.WAKEUP_STATE_QUEUED
    ]
    assert queued == [after.occurrence_key]


async def cancellation(trial: Trial, point: str) -> None:
    """The wish is stored; the sweep sees it through."""
    run = await run_now(trial.service, trial.autopilot.autopilot_id)
    request = pb.CancelRunRequest(run_id=run.run_id)
    later = await trial.crash(point, trial.service.as_user(CREATOR).CancelRun(request))
    later.move_clock(60)
    await later.tick("sweep")
    assert (await later.run_of(run.run_id)).state == run_pb2.RUN_STATE_CANCELLED
    assert trial.world.only().state == wakeup_pb2.WAKEUP_STATE_CANCELLED
    await trial.one_run()


async def giving_up(trial: Trial, point: str) -> None:
    """It is given up once, and a retry of the occurrence makes one clean run."""
    trigger = await make_schedule(trial.service, trial.autopilot.autopilot_id)
    planned_at = whole_second()
    trial.world.away = {"EnqueueWakeups"}
    await run_plan(trial.service, plan(trigger, planned_at))
    trial.service.move_clock(3700)

    async def sweep() -> None:
        trial.service.app.loops["sweep"].wake()

    later = await trial.crash(point, sweep())
    later.move_clock(3800)
    await later.tick("sweep")
    row = await trial.one_run()
    assert (row["state"], row["reason"]) == ("failed", "dispatch_incomplete")
    assert trial.world.only().state == wakeup_pb2.WAKEUP_STATE_CANCELLED
    trial.world.away = set()
    (result,) = await run_plan(later, plan(trigger, planned_at, attempt=2))
    assert result.outcome == plan_pb.PLAN_OUTCOME_SUCCESS
    assert set(trial.world.made) == {row["occurrence_key"], row["occurrence_key"] + "#2"}


async def publication(trial: Trial, point: str) -> None:
    """The trigger exists once, its address is the one shown, and the gateway comes to know it."""
    request = pb.CreateTriggerRequest(
        autopilot_id=trial.autopilot.autopilot_id,
        webhook=rule_pb.WebhookTrigger(provider="github"),
        request_id="r",
    )
    later = await trial.crash(point, trial.service.as_user(CREATOR).CreateTrigger(request))
    made = await later.as_user(CREATOR).CreateTrigger(request)
    assert made.endpoint_ready
    assert made.hook_path
    assert list(trial.world.endpoints) == [made.trigger.trigger_id]
    assert await trial.rows.fetchval("SELECT count(*) FROM triggers") == 1
    assert await trial.rows.fetchval("SELECT count(*) FROM rule_versions") == 2


async def secret_added(trial: Trial, point: str) -> None:
    """The caller repeats its request: one secret, and one version that tells of it."""
    hook = await make_webhook(trial.service, trial.autopilot.autopilot_id)
    request = pb.AddSigningSecretRequest(
        trigger_id=hook.trigger.trigger_id, secret=b"a-signing-secret-abcd", request_id="r"
    )
    later = await trial.crash(point, trial.service.as_user(CREATOR).AddSigningSecret(request))
    assert await _recorded(trial, "secret_added") == 0
    added = await later.as_user(CREATOR).AddSigningSecret(request)
    assert list(trial.world.secrets[request.trigger_id]) == [added.signing_secret.secret_id]
    assert await _recorded(trial, "secret_added") == 1


async def secret_removed(trial: Trial, point: str) -> None:
    """The same for the end of a secret."""
    hook = await make_webhook(trial.service, trial.autopilot.autopilot_id)
    trigger_id = hook.trigger.trigger_id
    added = await trial.service.as_user(CREATOR).AddSigningSecret(
        pb.AddSigningSecretRequest(trigger_id=trigger_id, secret=b"a-signing-secret-abcd")
    )
    request = pb.RemoveSigningSecretRequest(
        trigger_id=trigger_id, secret_id=added.signing_secret.secret_id
    )
    later = await trial.crash(point, trial.service.as_user(CREATOR).RemoveSigningSecret(request))
    assert await _recorded(trial, "secret_removed") == 0
    await later.as_user(CREATOR).RemoveSigningSecret(request)
    assert not trial.world.secrets[trigger_id]
    assert await _recorded(trial, "secret_removed") == 1


async def forgetting(trial: Trial, point: str) -> None:
    """What was forgotten stays so, the rest follows, and nothing that is kept goes with it."""
    run = await run_now(trial.service, trial.autopilot.autopilot_id)
    made = trial.world.only()
    await trial.world.emit(trial.world.settled(made, wakeup_pb2.WAKEUP_STATE_COMPLETED))
    await trial.service.ended(run.run_id)
    trial.service.move_clock(timedelta(days=401).total_seconds())
    due = plan_pb.Plan(execution_id="e", job_name="autopilot_retention", scope_id="global")
    later = await trial.crash(point, run_plan(trial.service, due))
    later.move_clock(timedelta(days=401).total_seconds())
    (result,) = await run_plan(later, due)
    assert result.outcome == plan_pb.PLAN_OUTCOME_SUCCESS, result
    assert await trial.rows.fetchval("SELECT count(*) FROM runs") == 0
    assert await trial.rows.fetchval("SELECT count(*) FROM rule_versions") == 1


async def _recorded(trial: Trial, change: str) -> int:
    number: int = await trial.rows.fetchval(
        "SELECT count(*) FROM rule_versions WHERE change = $1", change
    )
    return number


async def _completes(trial: Trial, service: Service, run_id: str) -> None:
    made = trial.world.only()
    await trial.world.emit(trial.world.settled(made, wakeup_pb2.WAKEUP_STATE_COMPLETED))
    ended = await service.ended(run_id)
    assert ended.state == run_pb2.RUN_STATE_COMPLETED
    assert ended.wakeup_id == made.wakeup_id
    await trial.one_run()


DISPATCHING = (manual, schedule, webhook, nobody_repeats, issue)
BY_FLOW: dict[str, tuple[Scenario, ...]] = {
    "autopilot.admit": (manual, schedule, webhook, nobody_repeats, replacement),
    "autopilot.payload": (webhook,),
    "autopilot.dispatch": DISPATCHING,
    "autopilot.link": DISPATCHING,
    "autopilot.complete": (completion, succession),
    "autopilot.cancel": (cancellation,),
    "autopilot.give_up": (giving_up,),
    "autopilot.publish": (publication,),
    "autopilot.relay": (publication,),
    "autopilot.secret": (secret_added, secret_removed),
    "autopilot.retention": (forgetting,),
}
CASES = [
    pytest.param(point, scenario, id=f"{point}-{scenario.__name__}")
    for point in CRASH_POINTS
    for scenario in BY_FLOW[point.rpartition(".")[0]]
]


@pytest.mark.parametrize(("point", "scenario"), CASES)
async def test_a_death_at_any_moment_doubles_and_loses_nothing(
    point: str,
    scenario: Scenario,
    service: Service,
    stage: Stage,
    world: World,
    rows: Rows,
    workspace_id: UUID,
    autopilot: rule_pb.Autopilot,
    fault: Fault,
) -> None:
    trial = Trial(service, stage, world, rows, workspace_id, autopilot, fault)
    await scenario(trial, point)


def test_every_point_has_a_scenario() -> None:
    assert {point for case in CASES for point in case.values[:1]} == set(CRASH_POINTS)
