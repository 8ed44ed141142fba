"""Free deliveries whose worker vanished, so that another can take them up.

An expired lease alone proves nothing: after an outage of the database every lease looks expired.
The witness confirms those seen expired twice while our own renewals succeeded.
"""

from __future__ import annotations

from reveille_runtime import logs
from reveille_runtime.db import Database
from reveille_runtime.lease import ExpiryWitness, LeaseKeeper
from reveille_webhook.domain.delivery import Ending
from reveille_webhook.domain.retrying import attempts_left
from reveille_webhook.domain.states import DeliveryState
from reveille_webhook.store import queue
from reveille_webhook.store.queue import Expired, Settlement
from reveille_webhook.usecases.settle import AGAIN

_log = logs.get_logger(__name__)


class TakeOver:
    """Looks at expired claims once.

    A delivery whose every attempt ended like this is failed: whatever it does to workers, it does
    no more.
    """

    def __init__(
        self, database: Database, keeper: LeaseKeeper, witness: ExpiryWitness, batch: int = 200
    ) -> None:
        self._database = database
        self._keeper = keeper
        self._witness = witness
        self._batch = batch

    async def __call__(self) -> float | None:
        """Look once; 0 means that there are more right now."""
        async with self._database.session() as tx:
            found = await queue.expired(tx, self._batch)
        confirmed = set(
            self._witness.observe(
                [each.lease for each in found], self._keeper.ok_for(self._witness.interval)
            )
        )
        gone = [each for each in found if each.lease in confirmed]
        if not gone:
            return None
        async with self._database.session() as tx:
            freed = await queue.take_over(tx, [_settlement(each) for each in gone])
        _log.warning(
            "Deliveries of a vanished worker were freed.",
            action="delivery.taken_over",
            deliveries=len(freed),
        )
        return 0 if len(found) == self._batch and freed else None


def _settlement(expired: Expired) -> Settlement:
    message = "its worker vanished: the lease ran out and was seen so twice"
    if not attempts_left(expired.attempt):
        return Settlement(expired.lease, Ending(DeliveryState.FAILED, "dispatch_failed", message))
    # Apart from each other, so that one that harms its worker does not take the same ones along.
    again = AGAIN.next_at(expired.now, expired.attempt, expired.lease.id)
    return Settlement(expired.lease, Ending(DeliveryState.QUEUED, message=message), again)
