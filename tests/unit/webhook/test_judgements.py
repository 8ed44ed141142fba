"""What autopilot says, read: whatever makes no sense is no judgement, and no success."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import grpc
import pytest
from grpc.aio import AioRpcError, Metadata

from reveille.autopilot.v1 import dispatch_service_pb2 as pb
from reveille.common.v1 import reason_pb2
from reveille_webhook.domain.delivery import Admission, Claim, Ending, Facts
from reveille_webhook.domain.states import DeliveryState, Judgement
from reveille_webhook.usecases.autopilot import Autopilot

ID, RUN = UUID(int=1), UUID(int=2)
FACTS = Facts(
    ID, UUID(int=3), UUID(int=4), "push", (), 2, b"", datetime(2026, 1, 1, tzinfo=UTC), {}
)
CLAIM = Claim(UUID(int=5), FACTS, "", "", {}, 1, 0, FACTS.received_at, RUN, judged=True)


class Answers:
    """A stub that gives one and the same answer, or fails with one and the same status."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def AdmitDeliveries(self, _request: Any, *, timeout: float) -> Any:
        return pb.AdmitDeliveriesResponse(results=[self._said(timeout)])

    async def DispatchDeliveries(self, _request: Any, *, timeout: float) -> Any:
        return pb.DispatchDeliveriesResponse(results=[self._said(timeout)])

    def _said(self, timeout: float) -> Any:
        assert timeout > 0
        if isinstance(self._answer, grpc.StatusCode):
            raise AioRpcError(self._answer, Metadata(), Metadata(), "no")
        return self._answer


async def judged(**said: Any) -> Admission:
    result = pb.AdmitResult(**{"delivery_id": str(ID), **said})
    stub: Any = Answers(result)
    (admission,) = await Autopilot(stub).admit([FACTS])
    return admission


async def ended(**said: Any) -> Ending:
    result = pb.DispatchResult(**{"delivery_id": str(ID), **said})
    stub: Any = Answers(result)
    (ending,) = await Autopilot(stub).dispatch([(CLAIM, RUN, {})], {})
    return ending


@pytest.mark.parametrize(
    "said",
    [
        {"outcome": pb.ADMIT_OUTCOME_ACCEPTED},
        {"outcome": pb.ADMIT_OUTCOME_SKIPPED},
        {"outcome": pb.ADMIT_OUTCOME_ACCEPTED, "run_id": "no id"},
        {"outcome": pb.ADMIT_OUTCOME_UNSPECIFIED, "run_id": str(RUN)},
        {"outcome": pb.ADMIT_OUTCOME_ACCEPTED, "run_id": str(RUN), "delivery_id": str(RUN)},
    ],
    ids=["accepted", "skipped", "no id", "nothing", "another"],
)
async def test_what_makes_no_sense_is_no_judgement_and_costs_an_attempt(
    said: dict[str, Any],
) -> None:
    admission = await judged(**said)

    assert (admission.judgement, admission.run_id) == (None, None)
    assert admission.refused
    assert admission.message


async def test_a_judgement_is_read_with_its_reason_and_its_run() -> None:
    unknown = await judged(outcome=pb.ADMIT_OUTCOME_UNKNOWN_ENDPOINT)
    skipped = await judged(
        outcome=pb.ADMIT_OUTCOME_SKIPPED,
        run_id=str(RUN),
        reason=reason_pb2.REASON_RUNTIME_OFFLINE,
        message="offline\x00" + "x" * 3000,
    )
    away = await judged(outcome=pb.ADMIT_OUTCOME_UNAVAILABLE)

    assert (unknown.judgement, unknown.reason) == (Judgement.UNKNOWN_ENDPOINT, "trigger_not_found")
    assert (skipped.judgement, skipped.run_id) == (Judgement.SKIPPED, RUN)
    assert skipped.reason == "runtime_offline"
    assert skipped.message.startswith("offline\ufffdx")
    assert len(skipped.message) == 2000
    # It said that it cannot say: that costs nothing.
    assert (away.judgement, away.refused) == (None, False)


async def test_an_end_is_read_and_what_makes_no_sense_is_tried_again_at_a_price() -> None:
    failed = await ended(outcome=pb.DISPATCH_OUTCOME_FAILED)
    away = await ended(outcome=pb.DISPATCH_OUTCOME_UNAVAILABLE, message="not now")
    nothing = await ended()
    another = await ended(outcome=pb.DISPATCH_OUTCOME_DISPATCHED, delivery_id=str(RUN))

    assert (failed.state, failed.reason) == (DeliveryState.FAILED, "dispatch_failed")
    assert away == Ending(DeliveryState.QUEUED, message="not now", given_back=True)
    for each in (nothing, another):
        assert (each.state, each.given_back) == (DeliveryState.QUEUED, False)
        assert each.message


@pytest.mark.parametrize(
    ("status", "passes"),
    [
        (grpc.StatusCode.UNAVAILABLE, True),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, True),
        # Our own token is what is wrong.
        (grpc.StatusCode.UNAUTHENTICATED, True),
        (grpc.StatusCode.PERMISSION_DENIED, True),
        (grpc.StatusCode.INVALID_ARGUMENT, False),
        (grpc.StatusCode.NOT_FOUND, False),
    ],
    ids=lambda value: value.name if isinstance(value, grpc.StatusCode) else "",
)
async def test_a_refusal_costs_an_attempt_where_it_is_of_the_delivery_alone(
    status: grpc.StatusCode, passes: bool
) -> None:
    stub: Any = Answers(status)

    (admission,) = await Autopilot(stub).admit([FACTS])
    (ending,) = await Autopilot(stub).dispatch([(CLAIM, RUN, {})], {})

    assert (admission.judgement, admission.refused) == (None, not passes)
    assert (ending.state, ending.given_back) == (DeliveryState.QUEUED, passes)
