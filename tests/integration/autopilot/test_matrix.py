"""Every refusal, met by every source in both modes: the run or none, its reason, and the answer."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg
import pytest
from tests.integration.autopilot.conftest import (
    CREATOR,
    Service,
    admit,
    edit_trigger,
    facts,
    make_autopilot,
    make_schedule,
    make_webhook,
    plan,
    run_now,
    run_plan,
    set_quota,
    whole_second,
)
from tests.integration.autopilot.peers import World
from tests.integration.autopilot.test_quotas import ENFORCE

from reveille.autopilot.v1 import autopilot_pb2 as rule_pb
from reveille.autopilot.v1 import autopilot_service_pb2 as pb
from reveille.autopilot.v1 import dispatch_service_pb2 as dispatch_pb
from reveille.autopilot.v1 import run_pb2
from reveille.autopilot.v1 import workspace_service_pb2 as workspace_pb
from reveille.common.v1 import reason_pb2
from reveille.scheduler.v1 import job_handler_service_pb2 as plan_pb

Rows: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
AUTOMATIC = frozenset({"schedule", "webhook", "api"})
ALL = AUTOMATIC | {"manual"}


@dataclass
class Target:
    """A rule with a trigger of each kind, about to be refused."""

    service: Service
    world: World
    rule: rule_pb.Autopilot
    schedule: rule_pb.Trigger
    hook: rule_pb.Trigger

    @property
    def named(self) -> dict[str, Any]:
        return {"autopilot_id": self.rule.autopilot_id}


async def paused(target: Target) -> None:
    await target.service.as_user(CREATOR).PauseAutopilot(pb.PauseAutopilotRequest(**target.named))


async def archived(target: Target) -> None:
    await target.service.as_user(CREATOR).ArchiveAutopilot(
        pb.ArchiveAutopilotRequest(**target.named)
    )


async def disabled(target: Target) -> None:
    for trigger in (target.schedule, target.hook):
        await edit_trigger(target.service, trigger, enabled=False)


async def filtered(target: Target) -> None:
    wanted = rule_pb.WebhookTrigger(event_filters=[rule_pb.EventFilter(event="push")])
    await edit_trigger(target.service, target.hook, "webhook.event_filters", webhook=wanted)


def by_heartbeat(reason: str) -> Callable[[Target], Awaitable[None]]:
    async def refuse(target: Target) -> None:
        value = reason_pb2.Reason.Value(f"REASON_{reason.upper()}")
        target.world.refusals[target.rule.agent_id] = value

    return refuse


async def busy(target: Target) -> None:
    run = await run_now(target.service, target.rule.autopilot_id)
    assert run.state in {run_pb2.RUN_STATE_RUNNING, run_pb2.RUN_STATE_ISSUE_CREATED}


async def nobody_answers(target: Target) -> None:
    target.world.agents[target.rule.agent_id] = (target.rule.workspace_id, "")
    await target.service.workspaces().RemoveMember(
        workspace_pb.RemoveMemberRequest(workspace_id=target.rule.workspace_id, user_id=CREATOR)
    )


async def used_up(target: Target) -> None:
    await set_quota(target.service, UUID(target.rule.workspace_id), ENFORCE, 0)


@dataclass(frozen=True)
class Refusal:
    reason: str
    arrange: Callable[[Target], Awaitable[None]]
    # By our own rows: only who asked gets a run.
    own: bool = False
    sources: frozenset[str] = ALL
    more: dict[str, Any] = field(default_factory=dict)


REFUSALS = (
    Refusal("autopilot_paused", paused, own=True),
    Refusal("autopilot_archived", archived, own=True),
    Refusal("trigger_disabled", disabled, own=True),
    Refusal("event_filtered", filtered, own=True, sources=frozenset({"webhook"})),
    *(
        Refusal(reason, by_heartbeat(reason))
        for reason in (
            "project_unavailable",
            "target_unavailable",
            "agent_runtime_required",
            "runtime_unusable",
            "runtime_offline",
            "invocation_not_allowed",
        )
    ),
    Refusal("already_active", busy, more={"overlap_policy": rule_pb.OVERLAP_POLICY_SKIP}),
    # These two concern the whole workspace, so they come last.
    Refusal("quota_exceeded", used_up),
    Refusal("attribution_blocked", nobody_answers, sources=AUTOMATIC),
)


@pytest.mark.parametrize("issue", [False, True], ids=["run_only", "create_issue"])
async def test_every_refusal_has_its_run_its_reason_and_its_answer(
    service: Service, world: World, workspace_id: UUID, rows: Rows, issue: bool
) -> None:
    for refusal in REFUSALS:
        if refusal.reason == "attribution_blocked":
            await set_quota(service, workspace_id, workspace_pb.QUOTA_ACTION_OFF)
        rule = await make_autopilot(service, world, workspace_id, issue=issue, **refusal.more)
        schedule = await make_schedule(service, rule.autopilot_id)
        hook = (await make_webhook(service, rule.autopilot_id)).trigger
        target = Target(service, world, rule, schedule, hook)
        made = len(world.made)
        await refusal.arrange(target)
        before = len(world.made) - made
        for source in sorted(refusal.sources):
            await _SOURCES[source](target, refusal)
        stored = await rows.fetch(
            "SELECT source, state FROM runs WHERE autopilot_id = $1 AND reason = $2",
            UUID(rule.autopilot_id),
            refusal.reason,
        )
        expected = refusal.sources & {"manual", "api"} if refusal.own else refusal.sources
        assert {row["source"] for row in stored} == expected, refusal.reason
        assert {row["state"] for row in stored} <= {"skipped"}
        # Nothing was made of any of them.
        assert len(world.made) == made + before


async def _schedule(target: Target, refusal: Refusal) -> None:
    (result,) = await run_plan(target.service, plan(target.schedule, whole_second()))
    told = json.loads(result.result)
    assert result.outcome == plan_pb.PLAN_OUTCOME_SUCCESS
    assert told["skipped_reason"] == refusal.reason
    assert ("run_id" in told) is not refusal.own


async def _webhook(target: Target, refusal: Refusal) -> None:
    (result,) = await admit(target.service, facts(target.hook))
    ignored, skipped = dispatch_pb.ADMIT_OUTCOME_IGNORED, dispatch_pb.ADMIT_OUTCOME_SKIPPED
    assert result.outcome == (ignored if refusal.own else skipped)
    assert reason_pb2.Reason.Name(result.reason) == f"REASON_{refusal.reason.upper()}"
    assert bool(result.run_id) is not refusal.own
    assert result.message


async def _manual(target: Target, refusal: Refusal) -> None:
    trigger = target.schedule.trigger_id
    run = await run_now(target.service, target.rule.autopilot_id, trigger_id=trigger)
    _skipped(run, refusal)


async def _api(target: Target, refusal: Refusal) -> None:
    answer = await target.service.as_service().RunAutopilot(
        pb.RunAutopilotRequest(trigger_id=target.schedule.trigger_id, **target.named)
    )
    _skipped(answer.run, refusal)


def _skipped(run: run_pb2.AutopilotRun, refusal: Refusal) -> None:
    assert run.state == run_pb2.RUN_STATE_SKIPPED
    assert reason_pb2.Reason.Name(run.reason) == f"REASON_{refusal.reason.upper()}"
    assert run.message


_SOURCES: dict[str, Callable[[Target, Refusal], Awaitable[None]]] = {
    "schedule": _schedule,
    "webhook": _webhook,
    "manual": _manual,
    "api": _api,
}
