"""Planned occurrences: the scheduler's batch, each judged, admitted and dispatched."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import assert_never
from uuid import UUID

from reveille_autopilot.domain.gate import Occurrence, Verdict
from reveille_autopilot.domain.keys import schedule_key
from reveille_autopilot.domain.outcomes import hands_back_slot
from reveille_autopilot.domain.states import RunSource, RunState
from reveille_autopilot.usecases.admit import Admissions, Candidate
from reveille_autopilot.usecases.dispatch import Dispatcher
from reveille_runtime.ids import new_id

JOB = "autopilot_schedule_dispatch"
SCOPE_KIND = "autopilot_trigger"


@dataclass(frozen=True, slots=True)
class Plan:
    """One claimed occurrence of a trigger."""

    trigger_id: UUID
    planned_at: datetime
    trace_carrier: Mapping[str, str] = field(default_factory=dict)


class PlanVerdict(StrEnum):
    """What the scheduler's ledger is told."""

    SUCCESS = "success"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class PlanAnswer:
    """The answer for one plan, and its facts as JSON."""

    verdict: PlanVerdict
    facts: bytes = b""
    message: str = ""


class Plans:
    """Executes plans; a skip is a success with a reason, an outage gives the attempt back."""

    def __init__(self, admissions: Admissions, dispatcher: Dispatcher) -> None:
        self._admissions = admissions
        self._dispatcher = dispatcher

    async def execute(self, plan: Plan) -> PlanAnswer:
        """Execute one plan; executing it twice has one effect."""
        admission = await self._admissions.admit(
            Candidate(
                run_id=new_id(),
                key=schedule_key(plan.trigger_id, plan.planned_at),
                occurrence=Occurrence(RunSource.SCHEDULE, None, plan.trigger_id),
                planned_at=plan.planned_at,
                trace_carrier=plan.trace_carrier,
            )
        )
        run, judgement = admission.run, admission.judgement
        if run is None:
            if judgement is None:
                raise RuntimeError("an admission without a run has a judgement")
            match judgement.verdict:
                case Verdict.UNAVAILABLE:
                    return PlanAnswer(PlanVerdict.UNAVAILABLE, message=judgement.message)
                case Verdict.IGNORE:
                    return _success({"skipped_reason": judgement.reason or ""})
                case Verdict.ADMIT | Verdict.SKIP:
                    raise RuntimeError("an admitted occurrence has a run")
                case _:
                    assert_never(judgement.verdict)
        if run.state is RunState.PENDING:
            run = await self._dispatcher.dispatch(run, plan.trace_carrier)
        if run.state is RunState.PENDING:
            return PlanAnswer(PlanVerdict.UNAVAILABLE, message="heartbeat could not be asked")
        if hands_back_slot(run):
            # Given up while this call waited. Only whoever asks again makes the clean run, so the
            # ledger must not take this for the end of it.
            return PlanAnswer(PlanVerdict.UNAVAILABLE, message="its run was given up; ask again")
        facts = {"run_id": str(run.id), "run_state": run.state.value}
        if run.state is RunState.SKIPPED:
            facts["skipped_reason"] = run.reason or ""
        return _success(facts)


def _success(facts: Mapping[str, str]) -> PlanAnswer:
    return PlanAnswer(PlanVerdict.SUCCESS, json.dumps(facts).encode())
