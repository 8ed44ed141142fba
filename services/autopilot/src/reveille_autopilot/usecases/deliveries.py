"""Webhook deliveries: judged by their facts first, dispatched when their bodies come."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from reveille_autopilot.domain.deadlines import FIRST_LOOK, OTHERS
from reveille_autopilot.domain.gate import Judgement, Occurrence, Verdict
from reveille_autopilot.domain.keys import webhook_key
from reveille_autopilot.domain.models import Payload, Run
from reveille_autopilot.domain.outcomes import withdrawn
from reveille_autopilot.domain.states import Reason, RunSource, RunState
from reveille_autopilot.store import admission, runs
from reveille_autopilot.usecases.admit import Admission, Admissions, Candidate
from reveille_autopilot.usecases.dispatch import Dispatcher
from reveille_autopilot.usecases.settle import Moment, Settler
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx, retrying_statement, retrying_transaction
from reveille_runtime.ids import new_id
from reveille_runtime.lockorder import LockOrder

# The next call finds it given up, and makes a clean one.
BEING_GIVEN_UP = Admission(
    None, Judgement(Verdict.UNAVAILABLE, None, "its run is being given up; ask again")
)


@dataclass(frozen=True, slots=True)
class DeliveryFacts:
    """What admission may know of a delivery."""

    delivery_id: UUID
    endpoint_id: UUID
    workspace_id: UUID
    event: str
    actions: tuple[str, ...]
    trace_carrier: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeliveryBody:
    """An admitted delivery, with what the agent gets to read."""

    delivery_id: UUID
    run_id: UUID
    payload: Payload
    trace_carrier: Mapping[str, str] = field(default_factory=dict)


class Deliveries:
    """Admits, dispatches and withdraws deliveries; the same one again has no second effect."""

    def __init__(
        self, db: Database, admissions: Admissions, dispatcher: Dispatcher, settler: Settler
    ) -> None:
        self._db = db
        self._admissions = admissions
        self._dispatcher = dispatcher
        self._settler = settler

    async def admit(self, deliveries: Sequence[DeliveryFacts]) -> list[Admission | Exception]:
        """Judge deliveries; of an admitted one the run waits for its body.

        Whoever asks again is about to send it, however late that is, and the run waits for him.
        """
        candidates = [_candidate(each) for each in deliveries]
        admissions = await self._admissions.admit_all(candidates)
        earlier = {
            each.run.id
            for candidate, each in zip(candidates, admissions, strict=True)
            if isinstance(each, Admission)
            and each.run is not None
            and each.run.id != candidate.run_id
            and _lacks_body(each.run)
        }
        if not earlier:
            return admissions
        expired = await self._await_bodies(earlier)
        return [
            BEING_GIVEN_UP
            if isinstance(each, Admission) and each.run is not None and each.run.id in expired
            else each
            for each in admissions
        ]

    async def _await_bodies(self, ids: Collection[UUID]) -> set[UUID]:
        """Give those whose time is over: they are given up, or are about to be."""
        waiting = await retrying_statement(
            self._db, lambda tx: runs.await_bodies(tx, LockOrder(), ids, OTHERS)
        )
        left = sorted(set(ids) - waiting)
        if not left:
            return set()
        async with self._db.session() as tx:
            found = await runs.get(tx, left)
        # The others were begun or ended meanwhile, which is an answer.
        return {
            each.id for each in found.values() if _lacks_body(each) or each.given_up_at is not None
        }

    async def store(self, bodies: Sequence[DeliveryBody]) -> dict[UUID, Run]:
        """Store the bodies with their runs, once; gives the runs by id."""
        named = {body.run_id: body for body in bodies}

        async def write(tx: Tx) -> dict[UUID, Run]:
            await admission.store_payloads(
                tx,
                [
                    (each.run_id, each.delivery_id, each.payload)
                    for _, each in sorted(named.items())
                ],
                FIRST_LOOK,
            )
            return await runs.get(tx, list(named))

        found = await retrying_transaction(self._db, write, repeatable=True)
        crash_point("autopilot.payload.after_commit")
        return found

    async def dispatch(self, body: DeliveryBody, run: Run | None) -> Run | None:
        """Dispatch a delivery's run; None when the run is not that delivery's."""
        if run is None or run.delivery_id != body.delivery_id:
            return None
        if run.state is not RunState.PENDING:
            return run
        return await self._dispatcher.dispatch(run, body.trace_carrier, len(body.payload.body))

    async def withdraw(self, delivery_ids: Sequence[UUID]) -> None:
        """End the runs of deliveries whose bodies never come."""
        async with self._db.session() as tx:
            waiting = await runs.ids_without_body(tx, delivery_ids)
        await self._settler.apply(dict.fromkeys(waiting, (withdrawn(),)), Moment.CANCEL)


def _lacks_body(run: Run) -> bool:
    return (
        run.state is RunState.PENDING and not run.payload_ready and run.cancel_requested_at is None
    )


def _candidate(facts: DeliveryFacts) -> Candidate:
    return Candidate(
        run_id=new_id(),
        key=webhook_key(facts.delivery_id),
        occurrence=Occurrence(
            RunSource.WEBHOOK, facts.workspace_id, facts.endpoint_id, facts.event, facts.actions
        ),
        delivery_id=facts.delivery_id,
        payload_ready=False,
        trace_carrier=facts.trace_carrier,
    )


def is_unknown_endpoint(admitted: Admission) -> bool:
    """Tell a delivery for a trigger that is gone, or is not where the gateway believes."""
    judgement = admitted.judgement
    return (
        admitted.run is None
        and judgement is not None
        and judgement.verdict is Verdict.IGNORE
        and judgement.reason == Reason.TRIGGER_NOT_FOUND
    )
