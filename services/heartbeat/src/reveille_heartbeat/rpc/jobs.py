"""JobHandlerService: the jobs of this service, executed when the scheduler says so."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from reveille.scheduler.v1 import job_handler_service_pb2 as pb
from reveille.scheduler.v1.job_handler_service_pb2_grpc import JobHandlerServiceServicer
from reveille_heartbeat.usecases.jobs import OwnJob
from reveille_runtime import logs
from reveille_runtime.errors import InvalidArgument, ResourceExhausted, Unavailable
from reveille_runtime.sqlstate import is_transient

MAX_PLANS = 200
_log = logs.get_logger(__name__)


class JobHandlerServicer(JobHandlerServiceServicer):
    """Serves jobs by their names."""

    def __init__(self, jobs: Sequence[OwnJob]) -> None:
        self._jobs = {each.name: each for each in jobs}

    async def RunPlans(self, request: pb.RunPlansRequest, context: Any) -> pb.RunPlansResponse:
        """Execute each plan; what one does twice has one effect."""
        if len(request.plans) > MAX_PLANS:
            raise InvalidArgument.of("plans", f"has more than {MAX_PLANS} entries", "INVALID_FIELD")
        return pb.RunPlansResponse(results=[await self._run(plan) for plan in request.plans])

    async def PlanScopes(
        self, request: pb.PlanScopesRequest, context: Any
    ) -> pb.PlanScopesResponse:
        """Name nothing: every job of this service has a cadence."""
        return pb.PlanScopesResponse()

    async def _run(self, plan: pb.Plan) -> pb.PlanResult:
        job = self._jobs.get(plan.job_name)
        if job is None:
            return pb.PlanResult(
                execution_id=plan.execution_id,
                outcome=pb.PLAN_OUTCOME_FAILED,
                error_code="unknown_job",
                error_message=f"heartbeat has no job called {plan.job_name}",
            )
        try:
            facts = await job.execute()
        except Exception as error:  # noqa: BLE001 - a job that fails must not spoil its batch
            return _broken(plan, error)
        return pb.PlanResult(
            execution_id=plan.execution_id,
            outcome=pb.PLAN_OUTCOME_SUCCESS,
            result=json.dumps(facts).encode(),
        )


def _broken(plan: pb.Plan, error: Exception) -> pb.PlanResult:
    if isinstance(error, Unavailable | ResourceExhausted) or is_transient(error):
        return pb.PlanResult(
            execution_id=plan.execution_id,
            outcome=pb.PLAN_OUTCOME_UNAVAILABLE,
            error_code="unavailable",
            error_message=str(error),
        )
    _log.error(
        "A job could not be executed.",
        action="job.failed",
        job=plan.job_name,
        execution_id=plan.execution_id,
        exc_info=error,
    )
    return pb.PlanResult(
        execution_id=plan.execution_id,
        outcome=pb.PLAN_OUTCOME_FAILED,
        error_code="internal_error",
        error_message=f"{type(error).__name__}, see the log of heartbeat",
    )
