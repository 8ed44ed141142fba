"""Own jobs, as the scheduler hands them over: one that fails spoils no other of its batch."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from reveille.scheduler.v1 import job_handler_service_pb2 as pb
from reveille_jobs.servicer import MAX_PLANS, JobHandlerServicer
from reveille_runtime.errors import InvalidArgument, Unavailable


async def works() -> Mapping[str, object]:
    return {"done": 1}


async def breaks() -> Mapping[str, object]:
    raise ValueError("its secret")


async def waits() -> Mapping[str, object]:
    raise Unavailable("DATABASE_UNAVAILABLE", "not now")


SERVICER = JobHandlerServicer("gateway", {"works": works, "breaks": breaks, "waits": waits})


async def test_every_plan_has_an_outcome_of_its_own() -> None:
    names = ["breaks", "waits", "unknown", "works"]
    plans = [pb.Plan(execution_id=name, job_name=name) for name in names]

    answer = await SERVICER.RunPlans(pb.RunPlansRequest(plans=plans), None)

    told = {each.execution_id: (each.outcome, each.error_code) for each in answer.results}
    assert told == {
        "breaks": (pb.PLAN_OUTCOME_FAILED, "internal_error"),
        "waits": (pb.PLAN_OUTCOME_UNAVAILABLE, "unavailable"),
        "unknown": (pb.PLAN_OUTCOME_FAILED, "unknown_job"),
        "works": (pb.PLAN_OUTCOME_SUCCESS, ""),
    }
    assert answer.results[0].error_message == "ValueError, see the log of gateway"
    assert answer.results[3].result == b'{"done": 1}'


async def test_a_batch_has_its_limit() -> None:
    plans = [pb.Plan(job_name="works")] * (MAX_PLANS + 1)

    with pytest.raises(InvalidArgument):
        await SERVICER.RunPlans(pb.RunPlansRequest(plans=plans), None)
