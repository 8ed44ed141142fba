"""JobHandlerService: the scheduler's batches, plan by plan."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from typing import assert_never
from uuid import UUID

from reveille.scheduler.v1 import job_handler_service_pb2 as pb
from reveille_autopilot.usecases.jobs import HANDLER
from reveille_autopilot.usecases.plans import JOB, Plan, Plans, PlanVerdict
from reveille_jobs.own_job import Execute
from reveille_jobs.servicer import JobHandlerServicer, failed, succeeded, unavailable
from reveille_runtime.carrier import checked
from reveille_runtime.errors import InvalidArgument
from reveille_runtime.ids import parse_id


class PlanServicer(JobHandlerServicer):
    """Serves the jobs that this service owns: schedules, and its own upkeep by name."""

    def __init__(self, plans: Plans, own: Mapping[str, Execute]) -> None:
        super().__init__(HANDLER, own)
        self._plans = plans

    async def other(self, plan: pb.Plan) -> pb.PlanResult:
        """Execute a plan of a schedule."""
        if plan.job_name != JOB:
            return await super().other(plan)
        try:
            trigger_id: UUID = parse_id(plan.scope_id, "scope_id")
        except InvalidArgument as error:
            return failed(plan, "bad_scope", error.message)
        planned_at = plan.plan_time.ToDatetime(tzinfo=UTC)
        if not plan.HasField("plan_time") or plan.plan_time.nanos:
            return failed(plan, "bad_plan_time", "a planned instant is a whole second")
        answer = await self._plans.execute(
            Plan(trigger_id, planned_at, checked(plan.trace_carrier))
        )
        match answer.verdict:
            case PlanVerdict.SUCCESS:
                return succeeded(plan, answer.facts)
            case PlanVerdict.UNAVAILABLE:
                return unavailable(plan, answer.message)
            case _:
                assert_never(answer.verdict)
