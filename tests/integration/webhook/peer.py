"""Autopilot as the gateway sees it: a real server that answers as the test says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid5

import grpc

from reveille.autopilot.v1 import dispatch_service_pb2 as pb
from reveille.autopilot.v1.dispatch_service_pb2_grpc import DispatchServiceServicer

_RUNS = UUID("5b6b7f54-7b0e-4f0e-9a77-0d5a4a4a2a11")


def run_of(delivery_id: str) -> str:
    """The same delivery always has the same run, as with the real one."""
    return str(uuid5(_RUNS, delivery_id))


def accepted(facts: pb.DeliveryFacts) -> pb.AdmitResult:
    return pb.AdmitResult(
        delivery_id=facts.delivery_id,
        outcome=pb.ADMIT_OUTCOME_ACCEPTED,
        run_id=run_of(facts.delivery_id),
    )


def dispatched(delivery: pb.DeliveryBody) -> pb.DispatchResult:
    return pb.DispatchResult(
        delivery_id=delivery.delivery_id, outcome=pb.DISPATCH_OUTCOME_DISPATCHED
    )


@dataclass
class FakeAutopilot(DispatchServiceServicer):
    """Remembers what it was asked; `admits` and `dispatches` say what it answers."""

    admits: Callable[[pb.DeliveryFacts], pb.AdmitResult] = accepted
    dispatches: Callable[[pb.DeliveryBody], pb.DispatchResult] = dispatched
    admitted: list[pb.DeliveryFacts] = field(default_factory=list)
    bodies: list[pb.DeliveryBody] = field(default_factory=list)
    withdrawn: list[str] = field(default_factory=list)
    # Set: answers whole calls in our place.
    answer_dispatch: Callable[..., Awaitable[pb.DispatchDeliveriesResponse]] | None = None
    # Set: comes while a withdrawal is under way.
    at_withdrawal: Callable[[], Awaitable[None]] | None = None
    # Set: the whole service answers with this status.
    away: grpc.StatusCode | None = None
    may_admit: asyncio.Event = field(default_factory=asyncio.Event)
    may_dispatch: asyncio.Event = field(default_factory=asyncio.Event)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def __post_init__(self) -> None:
        self.may_admit.set()
        self.may_dispatch.set()

    async def AdmitDeliveries(
        self, request: pb.AdmitDeliveriesRequest, context: Any
    ) -> pb.AdmitDeliveriesResponse:
        self.admitted.extend(request.deliveries)
        self.asked.set()
        await self._told()
        await self.may_admit.wait()
        if self.away is not None:
            await context.abort(self.away, "away")
        return pb.AdmitDeliveriesResponse(
            results=[self.admits(each) for each in request.deliveries]
        )

    async def WithdrawDeliveries(
        self, request: pb.WithdrawDeliveriesRequest, context: Any
    ) -> pb.WithdrawDeliveriesResponse:
        if self.away is not None:
            await context.abort(self.away, "away")
        self.withdrawn.extend(request.delivery_ids)
        if self.at_withdrawal is not None:
            await self.at_withdrawal()
        return pb.WithdrawDeliveriesResponse()

    async def DispatchDeliveries(
        self, request: pb.DispatchDeliveriesRequest, context: Any
    ) -> pb.DispatchDeliveriesResponse:
        return await (self.answer_dispatch or self.dispatch)(request, context)

    async def dispatch(
        self, request: pb.DispatchDeliveriesRequest, context: Any
    ) -> pb.DispatchDeliveriesResponse:
        """Answer as told; what stands in for it may call it."""
        await self.may_dispatch.wait()
        if self.away is not None:
            await context.abort(self.away, "away")
        self.bodies.extend(request.deliveries)
        results = [self.dispatches(each) for each in request.deliveries]
        await self._told()
        return pb.DispatchDeliveriesResponse(results=results)

    async def until(self, met: Callable[[FakeAutopilot], bool]) -> None:
        """Wait until it was asked what the test waits for."""
        async with asyncio.timeout(20), self.changed:
            await self.changed.wait_for(lambda: met(self))

    async def _told(self) -> None:
        async with self.changed:
            self.changed.notify_all()
