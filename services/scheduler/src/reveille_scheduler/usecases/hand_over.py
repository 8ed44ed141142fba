"""Hand claimed occurrences to their handlers and write what they answered.

Handlers never run inline in planning. The plans of one handler travel in batches; each keeps its
own lease and its own end. A plan whose lease is lost is forgotten: whoever took it over decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from opentelemetry import trace
from opentelemetry.trace import Status, StatusCode

from reveille.scheduler.v1 import job_handler_service_pb2 as pb
from reveille_runtime import logs, plain_json
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

# Calls of one job that may be at its handler at once.
MOST_CALLS = 8
# Plans that travel in one call.
_MOST_TOGETHER = 200
_log = logs.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Order:
    """A plan on its way to its handler; `check` raises once its lease cannot be trusted."""

    claim: Claim
    carrier: Mapping[str, str]
    check: Callable[[], None]


class Handler:
    """One handler target: plans in, endings out, a batch a call, each job in batches of its own."""

    def __init__(self, name: str, stub: JobHandlerServiceAsyncStub) -> None:
        self.name = name
        self.stub = stub
        self._jobs: dict[str, Batcher[Order, Ending]] = {}

    async def execute(self, order: Order) -> Ending:
        """Have a plan executed with others of its job; a slow job does not hold up another."""
        job_name = order.claim.job_name
        if job_name not in self._jobs:
            self._jobs[job_name] = Batcher(
                f"plans of {job_name}",
                self._run,
                max_items=_MOST_TOGETHER,
                max_bytes=_MOST_TOGETHER,
                size=_share,
                max_in_flight=MOST_CALLS,
                transient=_never,
            )
        return await self._jobs[job_name].submit(order)

    async def _run(self, batch: Sequence[Order]) -> Sequence[Ending | Exception]:
        answers = await self._call(batch)
        return [answers[order.claim.id] for order in batch]

    async def _call(self, batch: Sequence[Order]) -> dict[UUID, Ending | Exception]:
        """Call the handler, for halves anew where one plan may have spoiled the call for all."""
        answers: dict[UUID, Ending | Exception] = {}
        sound: list[Order] = []
        for order in batch:
            try:
                # A process that was suspended must not begin what others have taken over.
                order.check()
            except LeaseLost as lost:
                answers[order.claim.id] = lost
            else:
                sound.append(order)
        return answers | await self._ask(sound) if sound else answers

    async def _ask(self, batch: Sequence[Order]) -> dict[UUID, Ending | Exception]:
        claims = [order.claim for order in batch]
        request = pb.RunPlansRequest(plans=[_plan(order) for order in batch])
        patience = min(claim.run_timeout for claim in claims).total_seconds()
        crash_point(crash_points.BEFORE_HAND_OVER)
        try:
            with as_domain_errors():
                answer = await self.stub.RunPlans(request, timeout=patience)
            crash_point(crash_points.AFTER_HAND_OVER)
            results = {each.execution_id: each for each in answer.results}
            return {claim.id: _ending(results.get(str(claim.id))) for claim in claims}
        except (Unavailable, ResourceExhausted) as error:
            # So it is for each of them: halves would only bring an owner with too much to do more
            # calls at once. What comes back is brought again later, in smaller ones (`_share`).
            return dict.fromkeys((claim.id for claim in claims), _not_decided(error))
        except Exception as error:  # noqa: BLE001 - an answer nobody can read is the handler's
            if len(batch) > 1:
                # One plan may have spoiled the call for all; handling a plan twice is harmless.
                middle = len(batch) // 2
                return await self._call(batch[:middle]) | await self._call(batch[middle:])
            return {claims[0].id: _ending_of_error(error)}


def _plan(order: Order) -> pb.Plan:
    claim = order.claim
    return pb.Plan(
        execution_id=str(claim.id),
        job_name=claim.job_name,
        scope_kind=claim.scope_kind,
        scope_id=claim.scope_id,
        plan_time=to_timestamp(claim.plan_time),
        attempt=claim.attempt,
        trace_carrier=dict(order.carrier),
    )


def _share(order: Order) -> int:
    """Say how much of a call a plan takes up: more each time a call that it was in came to nothing.

    A plan that hangs takes its call with it. What was in one call with it comes back with it; this
    way they part, until it stands alone.
    """
    return int(min(4 ** min(order.claim.give_backs, 4), _MOST_TOGETHER))


def _never(_: BaseException) -> bool:
    """Say that no error of a call is repeated by the batcher: the ledger's retries do that."""
    return False


class HandOver:
    """Executes one claim from hand-over to settlement."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        settle: Batcher[Ended, bool],
        keeper: LeaseKeeper,
        tracing: Tracing,
    ) -> None:
        self._handlers = handlers
        self._settle = settle
        self._keeper = keeper
        self._tracing = tracing

    async def __call__(self, claim: Claim) -> bool:
        """Execute; a cancellation gives the attempt back before it is passed on.

        Gives whether the claim's scope has something due that waited for its place.
        """
        span = self._tracing.attempt(claim)
        try:
            lease = Lease(claim.id, claim.token)
            length = claim.stale_timeout.total_seconds()
            async with self._keeper.hold(lease, since=claim.since, duration=length) as held:
                try:
                    with trace.use_span(span, end_on_exit=False):
                        carrier = inject() or dict(claim.carrier)
                    ending = await held.guard(self._execute(Order(claim, carrier, held.check)))
                except asyncio.CancelledError:
                    # The terminal write survives the shutdown that cancelled us.
                    ending = replace(_given_back("the scheduler stopped"), at_once=True)
                    await self._write(claim, ending)
                    raise
                held.release()
                awaited = await self._write(claim, ending)
            if ending.state is ExecutionState.FAILED:
                span.set_status(Status(StatusCode.ERROR, ending.reason))
        except LeaseLost:
            span.set_status(Status(StatusCode.ERROR, "lease lost"))
            _log.warning(
                "An occurrence was taken over by another replica.",
                action="execution.lease_lost",
                execution_id=str(claim.id),
            )
            return False
        else:
            return awaited
        finally:
            span.end()

    async def _execute(self, order: Order) -> Ending:
        handler = self._handlers.get(order.claim.handler)
        if handler is None:
            return _given_back(f"no handler called {order.claim.handler} is configured here")
        try:
            return await handler.execute(order)
        except (Unavailable, ResourceExhausted) as error:
            # Our own queue is full, or closed since we stop.
            return _given_back(error.message)

    async def _write(self, claim: Claim, ending: Ending) -> bool:
        """Write the end; a stop that comes in between waits for it."""
        writing = asyncio.ensure_future(self._settle.submit(Ended(claim, ending)))
        try:
            return await asyncio.shield(writing)
        except asyncio.CancelledError:
            await writing
            raise


def _not_decided(error: Unavailable | ResourceExhausted) -> Ending:
    """Read a call that never got its answer: what may be transient costs no attempt."""
    ending = _given_back(error.message)
    late = error.reason == "DEADLINE_EXCEEDED"
    return replace(ending, reason="handler_timeout") if late else ending


def _ending_of_error(error: Exception) -> Ending:
    """Read a failed call: the attempt counts."""
    if isinstance(error, DomainError):
        text = f"{error.reason.lower()}: {error.message}"
    else:
        text = f"the answer cannot be read: {error!r}"
    return Ending(ExecutionState.FAILED, reason="handler_error", message=clipped(text))


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
            parsed = plain_json.loads(raw)
        except (ValueError, RecursionError):
            parsed = None
        if isinstance(parsed, dict) and plain_json.storable(parsed):
            return parsed
    excerpt = raw[: MOST_RESULT_BYTES // 2].decode("utf-8", "replace").replace("\x00", "\ufffd")
    return {"truncated": True, "bytes": len(raw), "excerpt": excerpt}


def _given_back(why: str) -> Ending:
    return Ending(ExecutionState.FAILED, reason="", message=clipped(why), given_back=True)
