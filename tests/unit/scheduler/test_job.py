"""What must hold of a job, told all at once."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from reveille_scheduler.domain.job import CatchUp, Job, problems

SECOND = timedelta(seconds=1)
JOB = Job(
    name="autopilot_schedule_dispatch",
    handler="autopilot",
    catch_up_window=timedelta(days=1),
    max_lateness=timedelta(minutes=5),
    run_timeout=timedelta(minutes=2),
    stale_timeout=timedelta(minutes=5),
    heartbeat_interval=timedelta(seconds=30),
    max_attempts=3,
    retry_backoff=(timedelta(minutes=1),),
    retry_deadline=timedelta(hours=1),
)


def fields(job: Job) -> list[str]:
    return [each.field for each in problems(job, {"autopilot"}, 10 * SECOND)]


def test_a_sound_job_has_no_problems() -> None:
    assert fields(JOB) == []


def test_every_violation_is_named_at_once() -> None:
    broken = replace(
        JOB,
        name="Not A Name",
        handler="nobody",
        catch_up_window=timedelta(0),
        max_lateness=-SECOND,
        run_timeout=timedelta(minutes=5),
        heartbeat_interval=SECOND,
        max_attempts=0,
        retry_backoff=(-SECOND,),
    )

    assert fields(broken) == [
        "name",
        "handler",
        "catch_up_window",
        "max_lateness",
        "run_timeout",
        "heartbeat_interval",
        "max_attempts",
        "retry_backoff[0]",
    ]


@pytest.mark.parametrize(
    ("job", "field"),
    [
        (replace(JOB, run_timeout=JOB.stale_timeout), "run_timeout"),
        (replace(JOB, heartbeat_interval=JOB.stale_timeout / 2), "heartbeat_interval"),
        (replace(JOB, stale_timeout=timedelta(days=400)), "stale_timeout"),
        (replace(JOB, max_attempts=101), "max_attempts"),
        (replace(JOB, schedule_delay=-SECOND), "schedule_delay"),
        (replace(JOB, jitter=timedelta(hours=25)), "jitter"),
        (replace(JOB, max_plans_per_tick=-1), "max_plans_per_tick"),
        (replace(JOB, max_plans_per_tick=1001), "max_plans_per_tick"),
        (replace(JOB, plans_per_scope=0), "plans_per_scope"),
        (replace(JOB, plans_per_scope=101), "plans_per_scope"),
    ],
)
def test_each_bound_is_kept(job: Job, field: str) -> None:
    assert field in fields(job)


def test_no_lateness_limit_is_a_choice() -> None:
    assert fields(replace(JOB, max_lateness=None)) == []


def test_only_a_job_that_catches_up_on_everything_needs_a_cap() -> None:
    every = replace(JOB, catch_up=CatchUp.EVERY_PLAN)

    assert fields(every) == ["max_plans_per_tick"]
    assert fields(replace(every, max_plans_per_tick=1)) == []
    assert fields(JOB) == []
