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
from reveille_webhook.domain.delivery import Search
from reveille_webhook.domain.diagnosis import finding_of, text_of
from reveille_webhook.domain.facts import LONGEST_KEY, LONGEST_NAME
from reveille_webhook.rpc import convert
from reveille_webhook.usecases.deliveries import Deliveries
from reveille_webhook.usecases.held import Held
from reveille_webhook.usecases.messages import SIGNATURE_VALUES, write_delivery
from reveille_webhook.usecases.replay import Replay
from reveille_webhook.usecases.watch import Watch


class DeliveryServicer(DeliveryServiceServicer):
    """Serves deliveries."""

    def __init__(self, deliveries: Deliveries, replay: Replay, held: Held, watch: Watch) -> None:
        self._deliveries = deliveries
        self._replay = replay
        self._held = held
        self._watch = watch

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
        search = _search(found, request)
        found.check()
        query = (
            "ListDeliveries",
            workspace_id,
            endpoint_id,
            ",".join(sorted(states)),
            search.since,
            search.until,
            search.event,
            search.provider,
            search.dedupe_key,
            search.body_sha256.hex(),
        )
        page = read_page(request.page_size, request.page_token, query)
        before = None
        if page.after is not None:
            before = (datetime.fromisoformat(str(page.after[0])), UUID(str(page.after[1])))
        rows = await self._deliveries.page(
            current_actor(), workspace_id, endpoint_id, states, before, page.limit, search
        )
        shown = rows[: page.size]
        return pb.ListDeliveriesResponse(
            deliveries=[write_delivery(each) for each in shown],
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
        return pb.GetDeliveryResponse(delivery=write_delivery(delivery))

    async def GetDeliveryBody(
        self, request: pb.GetDeliveryBodyRequest, context: Any
    ) -> AsyncIterator[pb.GetDeliveryBodyResponse]:
        """Stream a body, byte for byte."""
        found = Violations()
        delivery_id = found.uuid("delivery_id", request.delivery_id)
        found.check()
        async for chunk in self._deliveries.body(current_actor(), delivery_id):
            yield pb.GetDeliveryBodyResponse(chunk=chunk)

    async def ReplayDelivery(
        self, request: pb.ReplayDeliveryRequest, context: Any
    ) -> pb.ReplayDeliveryResponse:
        """Replay a delivery."""
        found = Violations()
        delivery_id = found.uuid("delivery_id", request.delivery_id)
        found.check()
        return await self._replay(current_actor(), delivery_id, request)

    async def ReleaseHeldDeliveries(
        self, request: pb.ReleaseHeldDeliveriesRequest, context: Any
    ) -> pb.ReleaseHeldDeliveriesResponse:
        """Let held deliveries go."""
        found = Violations()
        endpoint_id = found.uuid("endpoint_id", request.endpoint_id)
        found.check()
        released = await self._held.release(current_actor(), endpoint_id)
        return pb.ReleaseHeldDeliveriesResponse(deliveries=released)

    async def PurgeHeldDeliveries(
        self, request: pb.PurgeHeldDeliveriesRequest, context: Any
    ) -> pb.PurgeHeldDeliveriesResponse:
        """End held deliveries."""
        found = Violations()
        endpoint_id = found.uuid("endpoint_id", request.endpoint_id)
        found.check()
        purged = await self._held.purge(current_actor(), endpoint_id)
        return pb.PurgeHeldDeliveriesResponse(deliveries=purged)

    async def WatchDeliveries(
        self, request: pb.WatchDeliveriesRequest, context: Any
    ) -> AsyncIterator[pb.WatchDeliveriesResponse]:
        """Stream deliveries as they come in."""
        found = Violations()
        workspace_id = found.uuid("workspace_id", request.workspace_id)
        endpoint_id = found.optional_uuid("endpoint_id", request.endpoint_id)
        found.check()
        since = await self._watch.begin(current_actor(), workspace_id)
        # Whoever has heard this much misses nothing from here on.
        await context.send_initial_metadata(())
        async for delivery in self._watch.follow(workspace_id, endpoint_id, since):
            yield pb.WatchDeliveriesResponse(delivery=write_delivery(delivery))

    async def ExplainSignature(
        self, request: pb.ExplainSignatureRequest, context: Any
    ) -> pb.ExplainSignatureResponse:
        """Tell why a signature failed."""
        found = Violations()
        delivery_id = found.uuid("delivery_id", request.delivery_id)
        found.check()
        delivery = await self._deliveries.get(current_actor(), delivery_id)
        findings = [finding_of(note) for note in delivery.signature_notes]
        return pb.ExplainSignatureResponse(
            signature_state=SIGNATURE_VALUES[delivery.signature_state],
            findings=[pb.SignatureFinding(code=each.code, text=text_of(each)) for each in findings],
        )


def _search(found: Violations, request: pb.ListDeliveriesRequest) -> Search:
    if len(request.body_sha256) not in {0, convert.HASH_BYTES}:
        found.add("body_sha256", f"must have {convert.HASH_BYTES} bytes", "INVALID_FIELD")
    return Search(
        since=(
            found.timestamp("start_time", request.start_time)
            if request.HasField("start_time")
            else None
        ),
        until=(
            found.timestamp("end_time", request.end_time) if request.HasField("end_time") else None
        ),
        event=found.text("event", request.event, maximum=LONGEST_NAME),
        provider=found.text("provider", request.provider, maximum=50),
        dedupe_key=found.text("dedupe_id", request.dedupe_id, maximum=LONGEST_KEY),
        body_sha256=request.body_sha256,
    )
