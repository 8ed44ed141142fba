"""From wishes, facts and surroundings to decisions: the rules applied, ids and spans handed out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import assert_never
from uuid import UUID

from reveille_heartbeat.domain.enqueue import Facts, judge, notes, responsible_user
from reveille_heartbeat.domain.placing import PlaceKind, Surroundings, place
from reveille_heartbeat.domain.queue import NO_PRIORITY, ready_rank
from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import WakeupState
from reveille_heartbeat.domain.values import Carrier, Refusal, Wish
from reveille_heartbeat.usecases.wakeups.recording import Decided, NewRun
from reveille_runtime.telemetry import Telemetry


class Decider:
    """Applies the rules of enqueueing to one wish after the other."""

    def __init__(self, telemetry: Telemetry, new_id: Callable[[], UUID]) -> None:
        self._telemetry = telemetry
        self._new_id = new_id

    def decide(self, wish: Wish, facts: Facts, around: Surroundings, carrier: Carrier) -> Decided:
        """Judge a wish; every answer becomes a row."""
        told = notes(wish, facts)
        if wish.comment_ids or told:
            wish = replace(
                wish,
                # Comments of other issues are not for this agent to read.
                comment_ids=tuple(each.comment_id for each in facts.comments),
                context={**wish.context, **told},
            )
        refusal = judge(wish, facts)
        if refusal is not None:
            return _skipped(wish, refusal, carrier)
        answers = responsible_user(wish, facts)
        where = place(wish, facts, around)
        match where.kind:
            case PlaceKind.QUEUE:
                run = self.new_run(wish, facts, answers, carrier)
                return Decided(wish, WakeupState.QUEUED, carrier, answers, run=run)
            case PlaceKind.DEFER:
                return Decided(
                    wish,
                    WakeupState.DEFERRED,
                    carrier,
                    answers,
                    Reason.ISSUE_BUSY.value,
                    "it waits for the run on its issue",
                )
            case PlaceKind.JOIN:
                if where.joined is None:
                    raise AssertionError("a place to join names whom")
                return Decided(
                    wish,
                    WakeupState.COALESCED,
                    carrier,
                    answers,
                    Reason.COALESCED.value,
                    f"it joined wakeup {where.joined.wakeup_id}, which is about the same",
                    joined=where.joined,
                    hurry=where.hurry,
                )
            case PlaceKind.SKIP:
                if where.refusal is None:
                    raise AssertionError("a place to skip says why")
                return _skipped(wish, where.refusal, carrier, answers)
            case _:
                assert_never(where.kind)

    def cancelled(self, wish: Wish, carrier: Carrier) -> Decided:
        """A wish that came after its occurrence was cancelled."""
        return Decided(
            wish,
            WakeupState.CANCELLED,
            carrier,
            reason=Reason.CANCELLED.value,
            message="its occurrence was cancelled before",
        )

    def new_run(self, wish: Wish, facts: Facts, answers: str, carrier: Carrier) -> NewRun:
        """Make the first attempt of a wish."""
        run_carrier, agent_carrier = self.carriers(carrier)
        issue = facts.issue
        return NewRun(
            run_id=self._new_id(),
            wakeup_id=wish.wakeup_id,
            workspace_id=wish.workspace_id,
            agent_id=wish.agent_id,
            issue_id=wish.issue_id,
            ready_rank=ready_rank(
                None if issue is None else issue.status, waits=bool(facts.blockers)
            ),
            priority=NO_PRIORITY if issue is None else issue.priority,
            responsible_user_id=answers,
            run_carrier=run_carrier,
            agent_carrier=agent_carrier,
        )

    def carriers(self, parent: Carrier) -> tuple[Carrier, Carrier]:
        """Give the identities of an attempt's spans: `run`, and `invoke_agent` under it."""
        seed = self._telemetry.seed(parent)
        return seed.carrier(), seed.child().carrier()

    def new_id(self) -> UUID:
        """Make an id."""
        return self._new_id()


def _skipped(wish: Wish, refusal: Refusal, carrier: Carrier, answers: str = "") -> Decided:
    return Decided(
        wish,
        WakeupState.SKIPPED,
        carrier,
        answers,
        reason=refusal.reason.value,
        message=refusal.message,
    )
