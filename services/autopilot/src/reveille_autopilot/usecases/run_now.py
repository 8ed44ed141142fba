"""Running a rule now, because somebody asks: a person (manual) or a program (api)."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from reveille_autopilot.domain.attribution import Publisher
from reveille_autopilot.domain.gate import Occurrence, Verdict
from reveille_autopilot.domain.keys import request_key
from reveille_autopilot.domain.models import Payload, Run
from reveille_autopilot.domain.states import RunSource, RunState
from reveille_autopilot.store import triggers
from reveille_autopilot.usecases.admit import Admissions, Candidate
from reveille_autopilot.usecases.dispatch import Dispatcher
from reveille_autopilot.usecases.standing import (
    WRITERS,
    may_run,
    not_found,
    readable_autopilot,
    too_weak,
)
from reveille_runtime.access import Actor, CallerKind
from reveille_runtime.carrier import inject
from reveille_runtime.db import Database
from reveille_runtime.errors import InvalidArgument, Unavailable
from reveille_runtime.ids import new_id


@dataclass(frozen=True, slots=True)
class RunNow:
    """What was asked."""

    autopilot_id: UUID
    trigger_id: UUID | None
    payload: Payload | None
    request_id: str
    fingerprint: bytes


class RunRequests:
    """Makes runs on request; the same request_id gives the run that it has made."""

    def __init__(self, db: Database, admissions: Admissions, dispatcher: Dispatcher) -> None:
        self._db = db
        self._admissions = admissions
        self._dispatcher = dispatcher

    async def run(self, actor: Actor, asked: RunNow) -> Run:
        """Admit and dispatch; a refusal is a run in state skipped."""
        workspace_id, clicker = await self._authorised(actor, asked)
        source = RunSource.MANUAL if actor.kind is CallerKind.USER else RunSource.API
        request_id = asked.request_id or str(new_id())
        admission = await self._admissions.admit(
            Candidate(
                run_id=new_id(),
                key=request_key(source, asked.autopilot_id, actor.principal, request_id),
                occurrence=Occurrence(source, workspace_id, asked.trigger_id),
                autopilot_id=asked.autopilot_id,
                clicker=clicker,
                payload=asked.payload,
                request_fingerprint=asked.fingerprint,
                trace_carrier=inject(),
            )
        )
        run, judgement = admission.run, admission.judgement
        if run is None:
            if judgement is None or judgement.verdict is not Verdict.UNAVAILABLE:
                raise not_found("autopilot", asked.autopilot_id)
            raise Unavailable("DEPENDENCY_UNAVAILABLE", judgement.message, {"service": "heartbeat"})
        if run.request_fingerprint != asked.fingerprint:
            raise InvalidArgument.of(
                "request_id", "was used for a request with another content", "REQUEST_ID_REUSED"
            )
        if run.state is RunState.PENDING:
            run = await self._dispatcher.dispatch(run, inject())
        return run

    async def _authorised(self, actor: Actor, asked: RunNow) -> tuple[UUID, Publisher | None]:
        """Check the caller; gives the workspace, and the person whose click this is."""
        async with self._db.session() as tx:
            rule, standing = await readable_autopilot(tx, actor, asked.autopilot_id)
            if not await may_run(tx, standing, rule):
                raise too_weak(WRITERS)
            if asked.trigger_id is not None:
                trigger = await triggers.get(tx, asked.trigger_id)
                if trigger is None or trigger.autopilot_id != rule.id:
                    raise not_found("trigger", asked.trigger_id)
        if standing.user_id is None:
            return rule.workspace_id, None
        member = standing.role is not None or standing.operator
        return rule.workspace_id, Publisher(standing.user_id, member)
