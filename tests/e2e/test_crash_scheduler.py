"""The scheduler killed at every durable boundary: one execution, one run, one outcome a minute."""

from __future__ import annotations

import pytest

from reveille.scheduler.v1 import execution_pb2
from reveille.scheduler.v1 import scheduler_service_pb2 as scheduler
from reveille_scheduler import crash_points as points
from reveille_testkit.waiting import eventually

from .conftest import EXECUTION
from .crashing import Crasher, Rule, scheduled
from .harness import CREATE_ISSUE, RUN_ONLY

pytestmark = pytest.mark.xdist_group(EXECUTION)

SCHEDULER = "scheduler"
# A little longer than the job says that a claim outlives its executor.
STALE = 310.0
MODES = pytest.mark.parametrize("mode", [RUN_ONLY, CREATE_ISSUE], ids=["run_only", "create_issue"])


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
    run = await rule.first_run(trigger_id)
    assert run.planned_time == execution.plan_time
    assert run.run_id in execution.result.decode()
    await rule.completed_once(run.run_id)
    for other in await crash.world.runs_of(rule.workspace_id, trigger_id):
        await rule.completed_once(other.run_id)
    where = "trigger_id = $1::uuid"
    runs = await crash.world.count("autopilot.runs", where, trigger_id)
    planned = await crash.world.database.fetchval(
        f"SELECT count(DISTINCT planned_at) FROM autopilot.runs WHERE {where}", trigger_id
    )
    assert runs == planned


@MODES
@pytest.mark.parametrize("point", points.CRASH_POINTS)
async def test_a_death_of_the_scheduler_loses_and_doubles_nothing(
    crash: Crasher, point: str, mode: int
) -> None:
    rule = await Rule.make(crash.world, CREATE_ISSUE if mode == CREATE_ISSUE else RUN_ONLY)
    crash.run_ahead(SCHEDULER, "autopilot", 60)
    retried = point == points.AFTER_RETRY_CLAIM
    await crash.arm(SCHEDULER, points.AFTER_CLAIM if retried else point)
    async with scheduled(rule) as trigger_id:
        await crash.met(SCHEDULER)
        if retried:
            crash.pass_time(SCHEDULER, STALE)
            await crash.arm(SCHEDULER, point)
            await crash.met(SCHEDULER)
        await crash.recover(SCHEDULER, STALE)
        lost = 0 if point == points.AFTER_SETTLE else 2 if retried else 1
        await check(crash, rule, trigger_id, attempts=lost + 1)
