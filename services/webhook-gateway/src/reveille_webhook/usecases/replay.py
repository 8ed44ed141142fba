"""Make a new delivery of the stored bytes of another one; it is judged and dispatched anew."""

from __future__ import annotations

from uuid import UUID

from google.protobuf.message import Message

from reveille.webhook.v1 import delivery_service_pb2 as pb
from reveille_runtime.access import Actor, Role
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx, retrying_transaction
from reveille_runtime.errors import FailedPrecondition, NotFound
from reveille_runtime.ids import new_id
from reveille_runtime.requests import once
from reveille_webhook import crash_points
from reveille_webhook.domain.delivery import Delivery
from reveille_webhook.domain.states import DeliveryState
from reveille_webhook.store import deliveries, endpoints
from reveille_webhook.usecases.deliveries import no_delivery
from reveille_webhook.usecases.messages import write_delivery
from reveille_webhook.usecases.trace import Tracing

_METHOD = "ReplayDelivery"


class Replay:
    """Replays one delivery for an administrator of its workspace."""

    def __init__(self, database: Database, tracing: Tracing) -> None:
        self._database = database
        self._tracing = tracing

    async def __call__(
        self, actor: Actor, delivery_id: UUID, request: Message
    ) -> pb.ReplayDeliveryResponse:
        """Replay; the same request id gives the same new delivery.

        Raises:
            NotFound: there is none, or it is not the caller's. FailedPrecondition: it was rejected,
                or its hook is gone.
        """

        async def replay(tx: Tx) -> pb.ReplayDeliveryResponse:
            original = await deliveries.get(tx, delivery_id)
            if original is None or actor.role_in(original.workspace_id) is None:
                raise no_delivery(delivery_id)
            actor.require_member(original.workspace_id, Role.ADMIN)

            async def make() -> pb.ReplayDeliveryResponse:
                return pb.ReplayDeliveryResponse(
                    delivery=write_delivery(await self._make(tx, original))
                )

            return await once(
                tx,
                principal=actor.principal,
                method=_METHOD,
                request=request,
                response=pb.ReplayDeliveryResponse,
                make=make,
            )

        answer = await retrying_transaction(self._database, replay)
        crash_point(crash_points.AFTER_REPLAY)
        return answer

    async def _make(self, tx: Tx, original: Delivery) -> Delivery:
        if original.state is DeliveryState.REJECTED:
            raise FailedPrecondition(
                "WRONG_STATE", "a rejected delivery is not replayed: nobody vouches for it"
            )
        if not await endpoints.lock(tx, original.endpoint_id):
            raise FailedPrecondition("WRONG_STATE", "its hook is deleted")
        replayed = new_id()
        await deliveries.replay(tx, original.id, replayed, self._tracing.replayed(original))
        made = await deliveries.get(tx, replayed)
        if made is None:
            raise NotFound("NOT_FOUND", f"delivery {original.id} was just forgotten")
        return made
