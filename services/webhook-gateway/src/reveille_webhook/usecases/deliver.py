"""Take one claimed delivery to its end: have it judged if nobody did, and hand it to its run."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from uuid import UUID

from opentelemetry.trace import Span, Status, StatusCode

from reveille_runtime import logs
from reveille_runtime.batcher import Batcher
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database
from reveille_runtime.errors import ResourceExhausted, Unavailable
from reveille_runtime.lease import Lease, LeaseKeeper, LeaseLost
from reveille_runtime.sqlstate import is_transient
from reveille_webhook import crash_points
from reveille_webhook.domain.delivery import Admission, Claim, Ending, state_after
from reveille_webhook.domain.states import DeliveryState, Judgement
from reveille_webhook.store import queue
from reveille_webhook.usecases.admit import Admit
from reveille_webhook.usecases.autopilot import LARGEST_BODY, Autopilot
from reveille_webhook.usecases.settle import Ended
from reveille_webhook.usecases.trace import Tracing, carrier_under

MOST_BODIES = 3 << 20
_Handed = tuple[Claim, UUID, Mapping[str, str]]
_log = logs.get_logger(__name__)


class HandOver:
    """Hands deliveries to autopilot; those that come together travel together."""

    def __init__(self, database: Database, autopilot: Autopilot) -> None:
        self._database = database
        self._autopilot = autopilot
        self.batcher: Batcher[_Handed, Ending] = Batcher(
            "dispatches",
            self._run,
            max_bytes=MOST_BODIES,
            max_in_flight=8,
            size=lambda each: _weight(each[0]),
        )

    async def _run(self, batch: Sequence[_Handed]) -> list[Ending]:
        travelling = [claim.id for claim, _, _ in batch if _travels(claim)]
        async with self._database.session() as tx:
            bodies = await queue.bodies(tx, travelling)
        crash_point(crash_points.BEFORE_DISPATCH)
        endings = await self._autopilot.dispatch(batch, bodies)
        crash_point(crash_points.AFTER_DISPATCH)
        return endings


class Deliver:
    """Takes a claim to its end, under its lease."""

    def __init__(
        self,
        admit: Admit,
        hand_over: HandOver,
        settle: Batcher[Ended, None],
        keeper: LeaseKeeper,
        tracing: Tracing,
    ) -> None:
        self._admit = admit
        self._hand_over = hand_over
        self._settle = settle
        self._keeper = keeper
        self._tracing = tracing

    async def __call__(self, claim: Claim, since: float) -> None:
        """Deliver; a cancellation gives the attempt back before it is passed on.

        `since` is the keeper's clock from before the claim.
        """
        span = self._tracing.processing(claim)
        try:
            async with self._keeper.hold(Lease(claim.id, claim.token), since=since) as held:
                try:
                    ending = await held.guard(self._end(claim, span))
                except asyncio.CancelledError:
                    # The write survives the shutdown that cancelled us.
                    await asyncio.shield(self._write(claim, _stopped()))
                    raise
                except LeaseLost:
                    raise
                except Exception as error:  # noqa: BLE001 - it costs this delivery its attempt
                    ending = _unexpected(claim, error)
                held.release()
                await self._write(claim, ending)
            if ending.state in {DeliveryState.QUEUED, DeliveryState.FAILED}:
                span.set_status(Status(StatusCode.ERROR, ending.reason or "not dispatched yet"))
        except LeaseLost:
            span.set_status(Status(StatusCode.ERROR, "lease lost"))
            _log.warning(
                "A delivery was taken over by another worker.",
                action="delivery.lease_lost",
                delivery_id=str(claim.id),
            )
        finally:
            span.end()

    async def _end(self, claim: Claim, span: Span) -> Ending:
        admission: Admission | None = None
        run_id = claim.run_id
        if not claim.judged:
            admission = await self._admit.for_worker(claim.facts)
            run_id = admission.run_id
            if admission.judgement is not Judgement.ACCEPTED:
                return _ending_of(admission)
        if run_id is None:
            return Ending(DeliveryState.QUEUED, message="it was admitted without a run")
        ending = await self._hand_over.batcher.submit(
            (claim, run_id, carrier_under(span, claim.facts.carrier))
        )
        return Ending(
            ending.state, ending.reason, ending.message, ending.given_back, admission=admission
        )

    async def _write(self, claim: Claim, ending: Ending) -> None:
        await self._settle.submit(Ended(claim, ending))


def _ending_of(admission: Admission) -> Ending:
    """Say where a delivery stands that was judged, but not accepted."""
    if admission.judgement is None:
        return Ending(
            DeliveryState.QUEUED, message=admission.message, given_back=not admission.refused
        )
    return Ending(
        state_after(admission.judgement), admission.reason, admission.message, admission=admission
    )


def _stopped() -> Ending:
    return Ending(DeliveryState.QUEUED, message="the gateway stopped", given_back=True)


def _unexpected(claim: Claim, error: Exception) -> Ending:
    passing = is_transient(error) or isinstance(error, (Unavailable, ResourceExhausted))
    if not passing:
        _log.error(
            "A delivery could not be processed.",
            action="delivery.unexpected",
            delivery_id=str(claim.id),
            exc_info=error,
        )
    return Ending(DeliveryState.QUEUED, message=type(error).__name__, given_back=passing)


def _travels(claim: Claim) -> bool:
    return claim.facts.body_bytes <= LARGEST_BODY


def _weight(claim: Claim) -> int:
    headers = sum(len(name) + len(value) for name, value in claim.headers.items())
    return headers + (claim.facts.body_bytes if _travels(claim) else 0)
