"""Hand claimed occurrences to their handlers and write what they answered.

Handlers never run inline in planning. The plans of one handler travel in batches; each keeps its
own lease and its own end. A plan whose lease is lost is forgotten: whoever took it over decides.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.trace import Status, StatusCode

from reveille.scheduler.v1 import job_handler_service_pb2 as pb
from reveille_runtime import logs
from reveille_runtime.batcher import Batcher
from reveille_runtime.carrier import inject
from reveille_runtime.crash import crash_point
from reveille_runtime.errors import DomainError, ResourceExhausted, Unavailable
from reveille_runtime.lease import Lease, LeaseKeeper, LeaseLost
from reveille_runtime.rpc_errors import as_domain_errors
from reveille_runtime.validation import to_timestamp
from reveille_scheduler import crash_points
from reveille_scheduler.domain.occurrence import MOST_RESULT_BYTES, Claim, Ending, clipped
from reveille_scheduler.domain.states import ExecutionState
from reveille_scheduler.usecases.settle import Ended
from reveille_scheduler.usecases.trace import Tracing

if TYPE_CHECKING:
    # It exists for type checkers only.
    from reveille.scheduler.v1.job_handler_service_pb2_grpc import JobHandlerServiceAsyncStub

_log = logs.get_logger(__name__)


class Handler:
    """One handler target: plans in, endings out, a batch a call."""

    def __init__(self, name: str, stub: JobHandlerServiceAsyncStub) -> None:
        self.name = name
        self._stub = stub
        self.plans: Batcher[tuple[Claim, Mapping[str, str]], Ending] = Batcher(
            f"plans of {name}", self._run, max_in_flight=8
        )

    async def _run(
        self, batch: Sequence[tuple[Claim, Mapping[str, str]]]
    ) -> Sequence[Ending | Exception]:
        request = pb.RunPlansRequest(
            plans=[
                pb.Plan(
                    execution_id=str(claim.id),
                    job_name=claim.job_name,
                    scope_kind=claim.scope_kind,
                    scope_id=claim.scope_id,
                    plan_time=to_timestamp(claim.plan_time),
                    attempt=claim.attempt,
                    trace_carrier=dict(carrier),
                )
                for claim, carrier in batch
            ]
        )
        patience = min(claim.run_timeout for claim, _ in batch).total_seconds()
        crash_point(crash_points.BEFORE_HAND_OVER)
        try:
            with as_domain_errors():
                answer = await self._stub.RunPlans(request, timeout=patience)
        except DomainError as error:
            ending = _ending_of_error(error)
            return [ending] * len(batch)
        crash_point(crash_points.AFTER_HAND_OVER)
        results = {each.execution_id: each for each in answer.results}
        return [_ending(results.get(str(claim.id))) for claim, _ in batch]


class HandOver:
    """Executes one claim from hand-over to settlement."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        settle: Batcher[Ended, None],
        keeper: LeaseKeeper,
        tracing: Tracing,
    ) -> None:
        self._handlers = handlers
        self._settle = settle
        self._keeper = keeper
        self._tracing = tracing

    async def __call__(self, claim: Claim) -> None:
        """Execute; a cancellation gives the attempt back before it is passed on."""
        span = self._tracing.attempt(claim)
        try:
            lease = Lease(claim.id, claim.token)
            length = claim.stale_timeout.total_seconds()
            async with self._keeper.hold(lease, duration=length) as held:
                try:
                    with trace.use_span(span, end_on_exit=False):
                        carrier = inject() or dict(claim.carrier)
                    ending = await held.guard(self._execute(claim, carrier))
                except asyncio.CancelledError:
                    # The terminal write survives the shutdown that cancelled us.
                    await asyncio.shield(self._write(claim, _given_back("the scheduler stopped")))
                    raise
                held.release()
                await self._write(claim, ending)
            if ending.state is ExecutionState.FAILED:
                span.set_status(Status(StatusCode.ERROR, ending.reason))
        except LeaseLost:
            span.set_status(Status(StatusCode.ERROR, "lease lost"))
            _log.warning(
                "An occurrence was taken over by another replica.",
                action="execution.lease_lost",
                execution_id=str(claim.id),
            )
        finally:
            span.end()

    async def _execute(self, claim: Claim, carrier: Mapping[str, str]) -> Ending:
        handler = self._handlers.get(claim.handler)
        if handler is None:
            return _given_back(f"no handler called {claim.handler} is configured here")
        return await handler.plans.submit((claim, carrier))

    async def _write(self, claim: Claim, ending: Ending) -> None:
        await self._settle.submit(Ended(claim, ending))


def _ending_of_error(error: DomainError) -> Ending:
    """Read a failed call: what may be transient costs no attempt, what is refused does."""
    if isinstance(error, (Unavailable, ResourceExhausted)):
        return _given_back(error.message)
    return Ending(
        ExecutionState.FAILED,
        reason="handler_error",
        message=clipped(f"{error.reason.lower()}: {error.message}"),
    )


def _ending(result: pb.PlanResult | None) -> Ending:
    """Read a handler's answer for one plan."""
    if result is None:
        return Ending(
            ExecutionState.FAILED,
            reason="handler_error",
            message="the handler's answer does not mention this plan",
        )
    match result.outcome:
        case pb.PLAN_OUTCOME_SUCCESS:
            return Ending(ExecutionState.SUCCESS, result=_result(result.result))
        case pb.PLAN_OUTCOME_UNAVAILABLE:
            return _given_back(result.error_message)
        case pb.PLAN_OUTCOME_FAILED:
            code = result.error_code or "handler_error"
            text = f"{code}: {result.error_message}" if result.error_message else code
            return Ending(ExecutionState.FAILED, reason="handler_error", message=clipped(text))
        case _:
            return Ending(
                ExecutionState.FAILED,
                reason="handler_error",
                message=f"the handler answered with an unknown outcome ({result.outcome})",
            )


def _result(raw: bytes) -> Mapping[str, Any]:
    """Read a handler's facts; what is too large or no JSON object is kept as a marked excerpt."""
    if not raw:
        return {}
    if len(raw) <= MOST_RESULT_BYTES:
        try:
            parsed = json.loads(raw)
        except (ValueError, RecursionError):
            parsed = None
        if isinstance(parsed, dict) and b"\\u0000" not in raw:
            return parsed
    excerpt = raw[: MOST_RESULT_BYTES // 2].decode("utf-8", "replace").replace("\x00", "\ufffd")
    return {"truncated": True, "bytes": len(raw), "excerpt": excerpt}


def _given_back(why: str) -> Ending:
    return Ending(ExecutionState.FAILED, reason="", message=clipped(why), given_back=True)
