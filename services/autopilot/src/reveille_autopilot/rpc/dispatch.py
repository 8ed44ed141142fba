"""DispatchService: the gateway's batches, item by item; one bad item spoils no other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, assert_never
from uuid import UUID

from reveille.autopilot.v1 import dispatch_service_pb2 as pb
from reveille.autopilot.v1.dispatch_service_pb2_grpc import DispatchServiceServicer
from reveille_autopilot.domain.gate import Verdict
from reveille_autopilot.domain.models import Payload, Run
from reveille_autopilot.domain.states import RunState
from reveille_autopilot.usecases.admit import Admission
from reveille_autopilot.usecases.deliveries import (
    Deliveries,
    DeliveryBody,
    DeliveryFacts,
    is_unknown_endpoint,
)
from reveille_runtime.carrier import checked
from reveille_runtime.errors import ResourceExhausted, Unavailable
from reveille_runtime.reasons import reason_value
from reveille_runtime.sqlstate import is_transient
from reveille_runtime.validation import Violations

MAX_ITEMS = 200
# What heartbeat accepts beside a body.
MAX_MEDIA_TYPE = 256
MAX_FACTS = 100
MAX_NAME = 128
MAX_FACT = 8_192


class DispatchServicer(DispatchServiceServicer):
    """Serves the way from a delivery to a run."""

    def __init__(self, deliveries: Deliveries) -> None:
        self._deliveries = deliveries

    async def AdmitDeliveries(
        self, request: pb.AdmitDeliveriesRequest, context: Any
    ) -> pb.AdmitDeliveriesResponse:
        """Judge deliveries."""
        facts = _facts(request.deliveries)
        admissions = await self._deliveries.admit(facts)
        return pb.AdmitDeliveriesResponse(results=map(_admit_result, facts, admissions))

    async def WithdrawDeliveries(
        self, request: pb.WithdrawDeliveriesRequest, context: Any
    ) -> pb.WithdrawDeliveriesResponse:
        """End the runs of deliveries that never come."""
        await self._deliveries.withdraw(_ids(request.delivery_ids))
        return pb.WithdrawDeliveriesResponse()

    async def DispatchDeliveries(
        self, request: pb.DispatchDeliveriesRequest, context: Any
    ) -> pb.DispatchDeliveriesResponse:
        """Store the bodies of deliveries and dispatch their runs."""
        bodies = _bodies(request.deliveries)
        try:
            runs = await self._deliveries.store(bodies)
        except Exception as error:
            if not is_transient(error):
                raise
            return pb.DispatchDeliveriesResponse(
                results=[_not_now(each.delivery_id, error) for each in bodies]
            )
        results = await asyncio.gather(
            *(self._dispatch(each, runs.get(each.run_id)) for each in bodies)
        )
        return pb.DispatchDeliveriesResponse(results=results)

    async def _dispatch(self, body: DeliveryBody, run: Run | None) -> pb.DispatchResult:
        try:
            after = await self._deliveries.dispatch(body, run)
        except Exception as error:
            if not _passes(error):
                raise
            return _not_now(body.delivery_id, error)
        return _dispatch_result(body.delivery_id, after)


def _admit_result(facts: DeliveryFacts, admission: Admission | Exception) -> pb.AdmitResult:
    delivery_id = str(facts.delivery_id)
    if isinstance(admission, Exception):
        if not _passes(admission):
            raise admission
        return pb.AdmitResult(
            delivery_id=delivery_id,
            outcome=pb.ADMIT_OUTCOME_UNAVAILABLE,
            message=str(admission),
        )
    autopilot_id = admission.autopilot_id
    result = pb.AdmitResult(
        delivery_id=delivery_id,
        autopilot_id="" if autopilot_id is None else str(autopilot_id),
    )
    run, judgement = admission.run, admission.judgement
    if run is not None:
        result.run_id = str(run.id)
        if run.state is RunState.SKIPPED and run.wakeup_id is None:
            result.outcome = pb.ADMIT_OUTCOME_SKIPPED
            result.reason = reason_value(run.reason)
            result.message = run.message
        else:
            result.outcome = pb.ADMIT_OUTCOME_ACCEPTED
        return result
    if judgement is None:
        raise RuntimeError("an admission without a run has a judgement")
    result.reason = reason_value(judgement.reason)
    result.message = judgement.message
    if is_unknown_endpoint(admission):
        result.outcome = pb.ADMIT_OUTCOME_UNKNOWN_ENDPOINT
        result.autopilot_id = ""
        return result
    match judgement.verdict:
        case Verdict.IGNORE:
            result.outcome = pb.ADMIT_OUTCOME_IGNORED
        case Verdict.UNAVAILABLE:
            result.outcome = pb.ADMIT_OUTCOME_UNAVAILABLE
        case Verdict.ADMIT | Verdict.SKIP:
            raise RuntimeError("an admitted delivery has a run")
        case _:
            assert_never(judgement.verdict)
    return result


def _dispatch_result(delivery_id: UUID, run: Run | None) -> pb.DispatchResult:
    result = pb.DispatchResult(delivery_id=str(delivery_id))
    if run is None:
        result.outcome = pb.DISPATCH_OUTCOME_FAILED
        result.message = "the run is not known, or is not this delivery's"
        return result
    match run.state:
        case RunState.PENDING:
            result.outcome = pb.DISPATCH_OUTCOME_UNAVAILABLE
            result.message = "heartbeat could not be asked"
        case RunState.FAILED:
            result.outcome = pb.DISPATCH_OUTCOME_FAILED
            result.reason = reason_value(run.reason)
            result.message = run.message
        case (
            RunState.BUFFERED
            | RunState.ISSUE_CREATED
            | RunState.RUNNING
            | RunState.COMPLETED
            | RunState.SKIPPED
            | RunState.CANCELLED
        ):
            result.outcome = pb.DISPATCH_OUTCOME_DISPATCHED
        case _:
            assert_never(run.state)
    return result


def _not_now(delivery_id: UUID, error: Exception) -> pb.DispatchResult:
    return pb.DispatchResult(
        delivery_id=str(delivery_id),
        outcome=pb.DISPATCH_OUTCOME_UNAVAILABLE,
        message=str(error),
    )


def _passes(error: Exception) -> bool:
    return isinstance(error, Unavailable | ResourceExhausted) or is_transient(error)


def _facts(deliveries: Sequence[pb.DeliveryFacts]) -> list[DeliveryFacts]:
    found = Violations()
    _count(found, len(deliveries))
    facts = [
        DeliveryFacts(
            delivery_id=found.uuid(f"deliveries[{index}].delivery_id", each.delivery_id),
            endpoint_id=found.uuid(f"deliveries[{index}].endpoint_id", each.endpoint_id),
            workspace_id=found.uuid(f"deliveries[{index}].workspace_id", each.workspace_id),
            event=each.event,
            actions=tuple(each.actions),
            trace_carrier=checked(each.trace_carrier),
        )
        for index, each in enumerate(deliveries)
    ]
    found.check()
    return facts


def _ids(given: Sequence[str]) -> list[UUID]:
    found = Violations()
    _count(found, len(given), "delivery_ids")
    ids = [found.uuid(f"delivery_ids[{index}]", each) for index, each in enumerate(given)]
    found.check()
    return ids


def _bodies(deliveries: Sequence[pb.DeliveryBody]) -> list[DeliveryBody]:
    found = Violations()
    _count(found, len(deliveries))
    bodies = [
        DeliveryBody(
            delivery_id=found.uuid(f"deliveries[{index}].delivery_id", each.delivery_id),
            run_id=found.uuid(f"deliveries[{index}].run_id", each.run_id),
            payload=Payload(
                _clean(each.content_type, MAX_MEDIA_TYPE),
                each.body,
                _payload_facts(each),
                each.body_omitted,
            ),
            trace_carrier=checked(each.trace_carrier),
        )
        for index, each in enumerate(deliveries)
    ]
    found.check()
    return bodies


def _payload_facts(body: pb.DeliveryBody) -> dict[str, str]:
    facts = {f"header.{name}": value for name, value in body.headers.items()}
    facts |= {"event": body.event, "action": body.action, "delivery_id": body.delivery_id}
    kept = sorted(facts.items())[:MAX_FACTS]
    return {_clean(name, MAX_NAME): _clean(value, MAX_FACT) for name, value in kept if value}


def _clean(text: str, longest: int) -> str:
    """Cut what a sender wrote down to what every later hop takes; it must not stop a delivery."""
    return text.replace("\x00", "").strip()[:longest]


def _count(found: Violations, number: int, field: str = "deliveries") -> None:
    if number > MAX_ITEMS:
        found.add(field, f"has more than {MAX_ITEMS} entries", "INVALID_FIELD")
