"""The scheduler killed at every durable boundary: one execution, one run, one outcome a minute."""

from __future__ import annotations

import json

import pytest

from reveille.scheduler.v1 import execution_pb2
from reveille.scheduler.v1 import scheduler_service_pb2 as scheduler
from reveille_scheduler import crash_points as points
from reveille_testkit.waiting import eventually

from .crashing import Crasher, Rule, crossings, scheduled
from .harness import CREATE_ISSUE, RUN_ONLY

SCHEDULER = "scheduler"
# A little longer than the job says that a claim outlives its executor.
STALE = 310.0
# Seconds in which a scheduler is armed and has claimed what a test makes. The services' own jobs
# come every half minute, and would die in its place.
ALONE = 10.0
# Points that are crossed only after an attempt was lost.
AFTER_A_LOSS = {points.AFTER_RETRY_CLAIM, points.AFTER_TAKE_OVER}
# How many attempts are lost by dying there, where it is not one.
LOST = {points.AFTER_SETTLE: 0, points.AFTER_RETRY_CLAIM: 2}
# No trigger of a rule crosses these: jobs whose owners plan themselves, and the tidying of old
# rows. Dying there is tested where such jobs are, in tests/integration/scheduler.
OFF_THE_WAY = {points.AFTER_HOOK_TAKEN, points.AFTER_HOOK_CLAIM, points.AFTER_PRUNED}
MODES = {"run_only": RUN_ONLY, "create_issue": CREATE_ISSUE}
CASES = crossings(
    [(point, mode) for point in points.CRASH_POINTS if point not in OFF_THE_WAY for mode in MODES]
)


async def idle(crash: Crasher) -> None:
    """Wait until nothing is due for a while, so that only what a test makes crosses a point."""
    open_claims = "state = 'running' OR next_retry_at IS NOT NULL"
    due = (
        "enabled AND deleted_at IS NULL"
        " AND next_plan_at <= clock_timestamp() + make_interval(secs => $1)"
    )

    async def look() -> int:
        world = crash.world
        scopes = await world.count("scheduler.scopes", due, crash.ahead(SCHEDULER) + ALONE)
        return scopes + await world.count("scheduler.executions", open_claims)

    await eventually(
        look, "the scheduler has nothing to do", until=lambda count: count == 0, timeout=40
    )


async def first_execution(crash: Crasher, trigger_id: str) -> execution_pb2.Execution:
    """Wait until the oldest occurrence of a trigger was handled."""

    async def look() -> list[execution_pb2.Execution]:
        answer = await crash.world.client.scheduler.ListExecutions(
            scheduler.ListExecutionsRequest(scope_id=trigger_id)
        )
        return list(answer.executions)

    seen = await eventually(
        look,
        "the occurrence is handled",
        until=lambda all_: all_ and all_[-1].state == execution_pb2.EXECUTION_STATE_SUCCESS,
    )
    return seen[-1]


async def check(crash: Crasher, rule: Rule, trigger_id: str, attempts: int) -> None:
    """Hold the crashed occurrence, and all that fired beside it, against the promise."""
    execution = await first_execution(crash, trigger_id)
    assert execution.attempt == attempts
    run = await crash.world.run(json.loads(execution.result)["run_id"])
    assert run.planned_time == execution.plan_time
    await rule.completed_once(run.run_id)
    for other in await crash.world.runs_of(rule.workspace_id, trigger_id):
        await rule.completed_once(other.run_id)
    # In one look: the trigger goes on firing.
    twice = await crash.world.database.fetchval(
        "SELECT count(*) - count(DISTINCT planned_at) FROM autopilot.runs"
        " WHERE trigger_id = $1::uuid",
        trigger_id,
    )
    assert twice == 0


@pytest.mark.parametrize(("point", "mode"), CASES, ids=[f"{point}-{mode}" for point, mode in CASES])
async def test_a_death_of_the_scheduler_loses_and_doubles_nothing(
    crash: Crasher, point: str, mode: str
) -> None:
    rule = await Rule.make(crash.world, MODES[mode])
    if crash.run_ahead(SCHEDULER, "autopilot", 60):
        await crash.recover(SCHEDULER)
    await idle(crash)
    await crash.arm(SCHEDULER, points.AFTER_CLAIM if point in AFTER_A_LOSS else point)
    async with scheduled(rule) as trigger_id:
        await crash.met(SCHEDULER)
        if point in AFTER_A_LOSS:
            crash.pass_time(SCHEDULER, STALE)
            await crash.arm(SCHEDULER, point)
            await crash.met(SCHEDULER)
        await crash.recover(SCHEDULER, STALE)
        await check(crash, rule, trigger_id, attempts=1 + LOST.get(point, 1))


def test_what_lies_off_the_way_is_declared() -> None:
    assert set(OFF_THE_WAY) <= set(points.CRASH_POINTS)
