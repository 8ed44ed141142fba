"""JobHandlerService: the scheduler's batches, plan by plan."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC
from typing import Any, assert_never
from uuid import UUID

from reveille.scheduler.v1 import job_handler_service_pb2 as pb
from reveille.scheduler.v1.job_handler_service_pb2_grpc import JobHandlerServiceServicer
from reveille_autopilot.usecases.plans import JOB, Plan, Plans, PlanVerdict
from reveille_runtime import logs
from reveille_runtime.carrier import checked
from reveille_runtime.errors import InvalidArgument, ResourceExhausted, Unavailable
from reveille_runtime.ids import parse_id
from reveille_runtime.sqlstate import is_transient

MAX_PLANS = 200
_log = logs.get_logger(__name__)


class JobHandlerServicer(JobHandlerServiceServicer):
    """Serves the jobs that this service owns: schedules, and its own upkeep by name."""

    def __init__(self, plans: Plans, upkeep: Mapping[str, Callable[[], Awaitable[bytes]]]) -> None:
        self._plans = plans
        self._upkeep = upkeep

    async def RunPlans(self, request: pb.RunPlansRequest, context: Any) -> pb.RunPlansResponse:
        """Execute a batch; every plan gets an outcome of its own."""
        if len(request.plans) > MAX_PLANS:
            raise InvalidArgument.of("plans", f"has more than {MAX_PLANS} entries", "INVALID_FIELD")
        results = await asyncio.gather(*(self._run(plan) for plan in request.plans))
        return pb.RunPlansResponse(results=results)

    async def PlanScopes(
        self, request: pb.PlanScopesRequest, context: Any
    ) -> pb.PlanScopesResponse:
        """Name nothing: every trigger has a rule of its own."""
        return pb.PlanScopesResponse()

    async def _run(self, plan: pb.Plan) -> pb.PlanResult:
        if plan.job_name in self._upkeep:
            return await self._keep_up(plan)
        if plan.job_name != JOB:
            return _failed(
                plan, "unknown_job", f"this service does not own the job {plan.job_name}"
            )
        try:
            trigger_id: UUID = parse_id(plan.scope_id, "scope_id")
        except InvalidArgument as error:
            return _failed(plan, "bad_scope", error.message)
        planned_at = plan.plan_time.ToDatetime(tzinfo=UTC)
        if not plan.HasField("plan_time") or planned_at.microsecond:
            return _failed(plan, "bad_plan_time", "a planned instant is a whole second")
        try:
            answer = await self._plans.execute(
                Plan(trigger_id, planned_at, checked(plan.trace_carrier))
            )
        except Exception as error:  # noqa: BLE001 - a plan that fails must not spoil its batch
            return _broken(plan, error)
        match answer.verdict:
            case PlanVerdict.SUCCESS:
                return pb.PlanResult(
                    execution_id=plan.execution_id,
                    outcome=pb.PLAN_OUTCOME_SUCCESS,
                    result=answer.facts,
                )
            case PlanVerdict.UNAVAILABLE:
                return pb.PlanResult(
                    execution_id=plan.execution_id,
                    outcome=pb.PLAN_OUTCOME_UNAVAILABLE,
                    error_code="unavailable",
                    error_message=answer.message,
                )
            case _:
                assert_never(answer.verdict)

    async def _keep_up(self, plan: pb.Plan) -> pb.PlanResult:
        try:
            result = await self._upkeep[plan.job_name]()
        except Exception as error:  # noqa: BLE001 - told to the ledger, which tries again
            return _broken(plan, error)
        return pb.PlanResult(
            execution_id=plan.execution_id, outcome=pb.PLAN_OUTCOME_SUCCESS, result=result
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
        "A plan could not be executed.",
        action="plan.failed",
        execution_id=plan.execution_id,
        exc_info=error,
    )
    return _failed(plan, "internal_error", f"{type(error).__name__}, see the log of autopilot")


def _failed(plan: pb.Plan, code: str, message: str) -> pb.PlanResult:
    return pb.PlanResult(
        execution_id=plan.execution_id,
        outcome=pb.PLAN_OUTCOME_FAILED,
        error_code=code,
        error_message=message,
    )
