"""The jobs of heartbeat, by the rules of the scheduler that has to take them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from reveille_heartbeat.usecases.jobs import HANDLER, timers_job
from reveille_runtime.validation import Violations
from reveille_scheduler.domain.job import problems
from reveille_scheduler.rpc import convert


async def nothing() -> Mapping[str, object]:
    return {}


def test_the_scheduler_takes_the_timers_as_they_are_described() -> None:
    own = timers_job(nothing)
    found = Violations()
    job = convert.read_job(found, own.job)
    scope = convert.read_scope(found, 0, own.scope)
    found.check()

    assert problems(job, [HANDLER], timedelta(seconds=10)) == []
    assert (job.handler, scope.job_name, scope.enabled) == (HANDLER, job.name, True)
