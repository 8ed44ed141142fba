"""JobHandlerService: the jobs of a service, executed when the scheduler says so."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from reveille.scheduler.v1 import job_handler_service_pb2 as pb
from reveille.scheduler.v1.job_handler_service_pb2_grpc import JobHandlerServiceServicer
from reveille_jobs.own_job import Execute
from reveille_runtime import logs
from reveille_runtime.errors import InvalidArgument, ResourceExhausted, Unavailable
from reveille_runtime.sqlstate import is_transient

MAX_PLANS = 200
_log = logs.get_logger(__name__)


class JobHandlerServicer(JobHandlerServiceServicer):
    """Executes own jobs by their names; a service with jobs of another kind adds `other`."""

    def __init__(self, service: str, jobs: Mapping[str, Execute]) -> None:
        self._service = service
        self._jobs = jobs

    async def RunPlans(self, request: pb.RunPlansRequest, context: Any) -> pb.RunPlansResponse:
        """Execute a batch; every plan gets an outcome of its own."""
        if len(request.plans) > MAX_PLANS:
            raise InvalidArgument.of("plans", f"has more than {MAX_PLANS} entries", "INVALID_FIELD")
        results = await asyncio.gather(*(self._run(plan) for plan in request.plans))
        return pb.RunPlansResponse(results=results)

    async def PlanScopes(
        self, request: pb.PlanScopesRequest, context: Any
    ) -> pb.PlanScopesResponse:
        """Name nothing: every scope of these jobs has a rule."""
        return pb.PlanScopesResponse()

    async def other(self, plan: pb.Plan) -> pb.PlanResult:
        """Execute a plan of another job; there is none unless a service says so."""
        return failed(plan, "unknown_job", f"{self._service} has no job called {plan.job_name}")

    async def _run(self, plan: pb.Plan) -> pb.PlanResult:
        execute = self._jobs.get(plan.job_name)
        try:
            if execute is None:
                return await self.other(plan)
            facts = await execute()
        except Exception as error:  # noqa: BLE001 - a plan that fails must not spoil its batch
            return self._broken(plan, error)
        return succeeded(plan, json.dumps(facts).encode())

    def _broken(self, plan: pb.Plan, error: Exception) -> pb.PlanResult:
        if isinstance(error, Unavailable | ResourceExhausted) or is_transient(error):
            return unavailable(plan, str(error))
        _log.error(
            "A plan could not be executed.",
            action="plan.failed",
            job=plan.job_name,
            execution_id=plan.execution_id,
            exc_info=error,
        )
        message = f"{type(error).__name__}, see the log of {self._service}"
        return failed(plan, "internal_error", message)


def succeeded(plan: pb.Plan, facts: bytes) -> pb.PlanResult:
    """Answer that it is done, with facts for the ledger as JSON."""
    return pb.PlanResult(
        execution_id=plan.execution_id, outcome=pb.PLAN_OUTCOME_SUCCESS, result=facts
    )


def unavailable(plan: pb.Plan, message: str) -> pb.PlanResult:
    """Answer that it cannot be done now, which costs no attempt."""
    return pb.PlanResult(
        execution_id=plan.execution_id,
        outcome=pb.PLAN_OUTCOME_UNAVAILABLE,
        error_code="unavailable",
        error_message=message,
    )


def failed(plan: pb.Plan, code: str, message: str) -> pb.PlanResult:
    """Answer that it failed, by a machine's word and in words."""
    return pb.PlanResult(
        execution_id=plan.execution_id,
        outcome=pb.PLAN_OUTCOME_FAILED,
        error_code=code,
        error_message=message,
    )
