"""What the gateway asks of autopilot: to judge deliveries, and to make them happen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from google.protobuf.timestamp_pb2 import Timestamp

from reveille.autopilot.v1 import dispatch_service_pb2 as pb
from reveille_runtime import logs
from reveille_runtime.errors import (
    DomainError,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
)
from reveille_runtime.reasons import reason_name
from reveille_runtime.rpc_errors import as_domain_errors
from reveille_runtime.validation import to_timestamp
from reveille_webhook.domain.delivery import Admission, Claim, Ending, Facts, clipped
from reveille_webhook.domain.states import DeliveryState, Judgement

if TYPE_CHECKING:
    # It exists for type checkers only.
    from reveille.autopilot.v1.dispatch_service_pb2_grpc import DispatchServiceAsyncStub

T = TypeVar("T")
R = TypeVar("R")
ADMIT_TIMEOUT = 5.0
DISPATCH_TIMEOUT = 20.0
# Larger bodies do not travel with the call: they are fetched, by GetDeliveryBody.
LARGEST_BODY = 1 << 20
_log = logs.get_logger(__name__)
# What says nothing about the deliveries themselves, also when it is our own token that is refused.
_PASSING = (Unavailable, ResourceExhausted, Unauthenticated, PermissionDenied)
_JUDGEMENTS: Mapping[int, Judgement] = {
    pb.ADMIT_OUTCOME_ACCEPTED: Judgement.ACCEPTED,
    pb.ADMIT_OUTCOME_SKIPPED: Judgement.SKIPPED,
    pb.ADMIT_OUTCOME_IGNORED: Judgement.IGNORED,
    pb.ADMIT_OUTCOME_UNKNOWN_ENDPOINT: Judgement.UNKNOWN_ENDPOINT,
}


class Autopilot:
    """Calls by the batch; a batch that is refused as a whole is halved down to the culprit."""

    def __init__(self, stub: DispatchServiceAsyncStub) -> None:
        self._stub = stub

    async def admit(self, batch: Sequence[Facts]) -> list[Admission]:
        """Have deliveries judged; never raises."""

        async def call(part: Sequence[Facts]) -> list[Admission]:
            # What is stored together came at one moment.
            moments = {each.received_at for each in part}
            stamps = {each: to_timestamp(each) for each in moments}
            request = pb.AdmitDeliveriesRequest(
                deliveries=[_facts(each, stamps[each.received_at]) for each in part]
            )
            answer = await self._stub.AdmitDeliveries(request, timeout=ADMIT_TIMEOUT)
            results = {each.delivery_id: each for each in answer.results}
            return [_admission(results.get(str(each.delivery_id))) for each in part]

        return await _by_halves(
            batch,
            call,
            lambda error: Admission(
                None, message=clipped(error.message), refused=not isinstance(error, _PASSING)
            ),
        )

    async def dispatch(
        self, batch: Sequence[tuple[Claim, UUID, Mapping[str, str]]], bodies: Mapping[UUID, bytes]
    ) -> list[Ending]:
        """Hand over admitted deliveries with their runs and carriers; never raises."""

        async def call(part: Sequence[tuple[Claim, UUID, Mapping[str, str]]]) -> list[Ending]:
            request = pb.DispatchDeliveriesRequest(
                deliveries=[
                    _body(claim, run_id, carrier, bodies.get(claim.id))
                    for claim, run_id, carrier in part
                ]
            )
            answer = await self._stub.DispatchDeliveries(request, timeout=DISPATCH_TIMEOUT)
            results = {each.delivery_id: each for each in answer.results}
            return [_ending(results.get(str(claim.id))) for claim, _, _ in part]

        return await _by_halves(
            batch,
            call,
            lambda error: Ending(
                DeliveryState.QUEUED,
                message=clipped(error.message),
                given_back=isinstance(error, _PASSING),
            ),
        )

    async def withdraw(self, delivery_ids: Sequence[UUID]) -> None:
        """Have autopilot end the runs of deliveries that never come.

        Raises:
            Unavailable: it could not be asked, and may have ended some of them.
        """
        request = pb.WithdrawDeliveriesRequest(delivery_ids=map(str, delivery_ids))
        try:
            with as_domain_errors():
                await self._stub.WithdrawDeliveries(request, timeout=DISPATCH_TIMEOUT)
        except _PASSING as error:
            raise Unavailable(
                "DEPENDENCY_UNAVAILABLE",
                f"autopilot could not be asked to end the runs: {error.message}",
                {"service": "autopilot"},
            ) from error


async def _by_halves(
    batch: Sequence[T],
    call: Callable[[Sequence[T]], Awaitable[list[R]]],
    failed: Callable[[DomainError], R],
) -> list[R]:
    try:
        with as_domain_errors():
            return await call(batch)
    except DomainError as error:
        if len(batch) == 1 or isinstance(error, _PASSING):
            _log.warning(
                "Autopilot could not be asked.",
                action="autopilot.not_asked",
                deliveries=len(batch),
                reason=error.reason,
                cause=error.message,
            )
            return [failed(error)] * len(batch)
    middle = len(batch) // 2
    first = await _by_halves(batch[:middle], call, failed)
    return first + await _by_halves(batch[middle:], call, failed)


def _facts(facts: Facts, received: Timestamp | None) -> pb.DeliveryFacts:
    return pb.DeliveryFacts(
        delivery_id=str(facts.delivery_id),
        endpoint_id=str(facts.endpoint_id),
        workspace_id=str(facts.workspace_id),
        event=facts.event,
        actions=facts.actions,
        body_bytes=facts.body_bytes,
        body_sha256=facts.body_sha256,
        receive_time=received,
        trace_carrier=dict(facts.carrier),
    )


def _admission(result: pb.AdmitResult | None) -> Admission:
    if result is None:
        return Admission(None, message="autopilot's answer does not mention it", refused=True)
    judgement = _JUDGEMENTS.get(result.outcome)
    reason = reason_name(result.reason) or ""
    try:
        run_id = UUID(result.run_id) if result.run_id else None
    except ValueError:
        run_id = None
    if judgement in {Judgement.ACCEPTED, Judgement.SKIPPED} and run_id is None:
        return Admission(None, message="autopilot admitted it without a run", refused=True)
    if judgement is Judgement.UNKNOWN_ENDPOINT:
        reason = reason or "trigger_not_found"
    if judgement is None and result.outcome != pb.ADMIT_OUTCOME_UNAVAILABLE:
        return Admission(
            None, message=f"autopilot's judgement is unknown ({result.outcome})", refused=True
        )
    return Admission(judgement, reason, clipped(result.message), run_id)


def _body(
    claim: Claim, run_id: UUID, carrier: Mapping[str, str], body: bytes | None
) -> pb.DeliveryBody:
    return pb.DeliveryBody(
        delivery_id=str(claim.id),
        run_id=str(run_id),
        content_type=claim.content_type,
        body=body or b"",
        body_omitted=body is None,
        headers=dict(claim.headers),
        event=claim.facts.event,
        action=claim.action,
        trace_carrier=dict(carrier),
    )


def _ending(result: pb.DispatchResult | None) -> Ending:
    if result is None:
        return Ending(DeliveryState.QUEUED, message="autopilot's answer does not mention it")
    match result.outcome:
        case pb.DISPATCH_OUTCOME_DISPATCHED:
            return Ending(DeliveryState.DISPATCHED)
        case pb.DISPATCH_OUTCOME_FAILED:
            return Ending(
                DeliveryState.FAILED,
                reason_name(result.reason) or "dispatch_failed",
                clipped(result.message),
            )
        case pb.DISPATCH_OUTCOME_UNAVAILABLE:
            return Ending(DeliveryState.QUEUED, message=clipped(result.message), given_back=True)
        case _:
            return Ending(
                DeliveryState.QUEUED, message=f"autopilot's outcome is unknown ({result.outcome})"
            )
