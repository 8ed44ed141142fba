"""Write the end of attempts: what became of deliveries, and when the others are tried again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from reveille_runtime import logs
from reveille_runtime.backoff import Backoff
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database
from reveille_runtime.lease import Lease, LeaseLost
from reveille_webhook import crash_points
from reveille_webhook.domain.delivery import Claim, Ending
from reveille_webhook.domain.retrying import attempts_left, dispatch_deadline
from reveille_webhook.domain.states import DeliveryState
from reveille_webhook.store import queue
from reveille_webhook.store.queue import Settlement

AGAIN = Backoff(first=1.0, longest=60.0)
_log = logs.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Ended:
    """An attempt that ended."""

    claim: Claim
    ending: Ending


class Settle:
    """Settles a batch of attempts; the one whose lease was lost gets `LeaseLost`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def __call__(self, batch: Sequence[Ended]) -> list[Exception | None]:
        """Write the batch in one statement."""
        now = await self._database.now()
        settlements = [settlement_of(each, now) for each in batch]
        async with self._database.transaction() as tx:
            written = await queue.settle(tx, settlements)
        crash_point(crash_points.AFTER_SETTLE)
        for settlement in settlements:
            if settlement.lease.id in written and settlement.ending.state is DeliveryState.FAILED:
                _log.warning(
                    "A delivery failed.",
                    action="delivery.failed",
                    delivery_id=str(settlement.lease.id),
                    reason=settlement.ending.reason,
                    cause=settlement.ending.message,
                )
        return [None if each.lease.id in written else LeaseLost(each.lease) for each in settlements]


def settlement_of(ended: Ended, now: datetime) -> Settlement:
    """Decide whether an attempt that came to nothing is followed by another."""
    claim, ending = ended.claim, ended.ending
    lease = Lease(claim.id, claim.token)
    if ending.state is not DeliveryState.QUEUED:
        return Settlement(lease, ending)
    if ending.given_back:
        again = AGAIN.next_at(
            now, claim.give_backs + 1, claim.id, deadline=dispatch_deadline(claim.queued_at)
        )
        if again is None:
            return Settlement(
                lease,
                replace(
                    ending,
                    state=DeliveryState.FAILED,
                    reason="dispatch_deadline",
                    message=f"its time to be dispatched ran out: {ending.message}",
                ),
            )
        return Settlement(lease, ending, again)
    if not attempts_left(claim.attempt):
        return Settlement(
            lease, replace(ending, state=DeliveryState.FAILED, reason="dispatch_failed")
        )
    return Settlement(lease, ending, AGAIN.next_at(now, claim.attempt, claim.id))
