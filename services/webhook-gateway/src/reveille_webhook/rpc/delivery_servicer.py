"""DeliveryService: what came in, for those who may see its workspace."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any
from uuid import UUID

from reveille.webhook.v1 import delivery_service_pb2 as pb
from reveille.webhook.v1.delivery_service_pb2_grpc import DeliveryServiceServicer
from reveille_runtime.access import current_actor
from reveille_runtime.paging import page_token, read_page
from reveille_runtime.validation import Violations
from reveille_webhook.rpc import convert
from reveille_webhook.usecases.deliveries import Deliveries


class DeliveryServicer(DeliveryServiceServicer):
    """Serves deliveries."""

    def __init__(self, deliveries: Deliveries) -> None:
        self._deliveries = deliveries

    async def ListDeliveries(
        self, request: pb.ListDeliveriesRequest, context: Any
    ) -> pb.ListDeliveriesResponse:
        """List a workspace's deliveries, newest first."""
        found = Violations()
        workspace_id = found.uuid("workspace_id", request.workspace_id)
        endpoint_id = found.optional_uuid("endpoint_id", request.endpoint_id)
        states = [
            found.enum(f"states[{index}]", value, convert.STATES)
            for index, value in enumerate(request.states)
        ]
        found.check()
        query = ("ListDeliveries", workspace_id, endpoint_id, ",".join(sorted(states)))
        page = read_page(request.page_size, request.page_token, query)
        before = None
        if page.after is not None:
            before = (datetime.fromisoformat(str(page.after[0])), UUID(str(page.after[1])))
        rows = await self._deliveries.page(
            current_actor(), workspace_id, endpoint_id, states, before, page.limit
        )
        shown = rows[: page.size]
        return pb.ListDeliveriesResponse(
            deliveries=[convert.write_delivery(each) for each in shown],
            next_page_token=(
                page_token((shown[-1].received_at, shown[-1].id), query)
                if len(rows) > page.size
                else ""
            ),
        )

    async def GetDelivery(
        self, request: pb.GetDeliveryRequest, context: Any
    ) -> pb.GetDeliveryResponse:
        """Read one delivery."""
        found = Violations()
        delivery_id = found.uuid("delivery_id", request.delivery_id)
        found.check()
        delivery = await self._deliveries.get(current_actor(), delivery_id)
        return pb.GetDeliveryResponse(delivery=convert.write_delivery(delivery))

    async def GetDeliveryBody(
        self, request: pb.GetDeliveryBodyRequest, context: Any
    ) -> AsyncIterator[pb.GetDeliveryBodyResponse]:
        """Stream a body, byte for byte."""
        found = Violations()
        delivery_id = found.uuid("delivery_id", request.delivery_id)
        found.check()
        async for chunk in self._deliveries.body(current_actor(), delivery_id):
            yield pb.GetDeliveryBodyResponse(chunk=chunk)
