"""JobHandlerService: the gateway's own job, as the scheduler hands it over."""

from __future__ import annotations

from typing import Any

from reveille.scheduler.v1 import job_handler_service_pb2 as pb
from reveille.scheduler.v1.job_handler_service_pb2_grpc import JobHandlerServiceServicer
from reveille_webhook.usecases.retention import JOB, Retention


class JobServicer(JobHandlerServiceServicer):
    """Executes plans of the retention job."""

    def __init__(self, retention: Retention) -> None:
        self._retention = retention

    async def RunPlans(self, request: pb.RunPlansRequest, context: Any) -> pb.RunPlansResponse:
        """Execute each plan; pruning twice removes nothing twice."""
        return pb.RunPlansResponse(results=[await self._run(plan) for plan in request.plans])

    async def PlanScopes(
        self, request: pb.PlanScopesRequest, context: Any
    ) -> pb.PlanScopesResponse:
        """Name nothing: the retention job has a rule."""
        return pb.PlanScopesResponse()

    async def _run(self, plan: pb.Plan) -> pb.PlanResult:
        if plan.job_name != JOB:
            return pb.PlanResult(
                execution_id=plan.execution_id,
                outcome=pb.PLAN_OUTCOME_FAILED,
                error_code="unknown_job",
                error_message=f"the gateway has no job called {plan.job_name}",
            )
        return pb.PlanResult(
            execution_id=plan.execution_id,
            outcome=pb.PLAN_OUTCOME_SUCCESS,
            result=await self._retention(),
        )
