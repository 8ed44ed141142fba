"""Bodies that were too large to travel with their wakeup, fetched from the gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reveille.webhook.v1 import delivery_service_pb2 as pb
from reveille_runtime.client import stream
from reveille_runtime.rpc_errors import as_domain_errors

if TYPE_CHECKING:
    # The stub's name for asynchronous channels exists in the type stubs only.
    from reveille.webhook.v1.delivery_service_pb2_grpc import DeliveryServiceAsyncStub


class DeliveryBodies:
    """Reads a stored body, piece by piece."""

    def __init__(self, deliveries: DeliveryServiceAsyncStub) -> None:
        self._deliveries = deliveries

    async def fetch(self, delivery_id: str) -> bytes:
        """Give the whole body. Raises the domain error that the gateway answered with."""
        request = pb.GetDeliveryBodyRequest(delivery_id=delivery_id)
        body = bytearray()
        with as_domain_errors():
            async with stream(self._deliveries.GetDeliveryBody(request)) as pieces:
                async for piece in pieces:
                    body += piece.chunk
        return bytes(body)
