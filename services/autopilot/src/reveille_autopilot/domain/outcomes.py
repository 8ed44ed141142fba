"""What heartbeat's answers and events mean for a run.

Every function takes what is known and gives a `Step`: the state to move to, if any, and the facts
to keep. A step is applied by compare-and-set; meeting a run that has its outcome is success.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import assert_never
from uuid import UUID

from reveille_autopilot.domain.models import Run
from reveille_autopilot.domain.states import (
    RUN_TERMINAL,
    ExecutionMode,
    Reason,
    RunState,
    may_move,
)


class WakeState(StrEnum):
    """Where a wakeup stands, in heartbeat's words."""

    QUEUED = "queued"
    DEFERRED = "deferred"
    CLAIMED = "claimed"
    COALESCED = "coalesced"
    SKIPPED = "skipped"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class IssueEnd(StrEnum):
    """How an issue ended."""

    DONE = "done"
    CANCELLED = "cancelled"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Step:
    """What to write on a run; fields that are None leave what is there."""

    state: RunState | None = None
    reason: str | None = None
    message: str = ""
    wakeup_id: UUID | None = None
    issue_id: UUID | None = None
    result: bytes | None = None
    # Only a run that waits for its body moves: nothing was made for it.
    before_body: bool = False
    # The downstream object has its outcome already and only the event is missing: look soon.
    expect_soon: bool = False


@dataclass(frozen=True, slots=True)
class WakeFacts:
    """What an answer or an event says about a wakeup."""

    state: WakeState
    wakeup_id: UUID | None = None
    issue_id: UUID | None = None
    reason: str | None = None
    message: str = ""
    result: bytes | None = None

    @property
    def ended_by_itself(self) -> bool:
        """Tell whether nothing more comes of it, and not because it was cancelled."""
        return self.state in {WakeState.COMPLETED, WakeState.FAILED, WakeState.SKIPPED}


@dataclass(frozen=True, slots=True)
class IssueFacts:
    """What an answer or an event says about an issue; `end` is None while it is open."""

    issue_id: UUID
    end: IssueEnd | None = None


def enqueued(facts: WakeFacts) -> Step:
    """Judge the answer to the enqueue of a wakeup."""
    match facts.state:
        case WakeState.QUEUED | WakeState.DEFERRED | WakeState.CLAIMED | WakeState.COALESCED:
            return Step(RunState.RUNNING, wakeup_id=facts.wakeup_id)
        case WakeState.SKIPPED:
            return Step(RunState.SKIPPED, facts.reason, facts.message, facts.wakeup_id)
        case WakeState.CANCELLED:
            return Step(
                RunState.CANCELLED,
                facts.reason or Reason.CANCELLED,
                facts.message or "cancelled before it was dispatched",
                facts.wakeup_id,
            )
        case WakeState.COMPLETED | WakeState.FAILED:
            # An earlier call made it and it has ended since; the event brings the result along.
            return Step(RunState.RUNNING, wakeup_id=facts.wakeup_id, expect_soon=True)
        case _:
            assert_never(facts.state)


def issue_made(issue: IssueFacts | None, wake: WakeFacts | None) -> Step:
    """Judge the answer to the creation of an issue; a refused wakeup leaves the run open."""
    wakeup_id = None if wake is None else wake.wakeup_id
    if issue is None:
        return Step(
            RunState.CANCELLED,
            Reason.CANCELLED,
            "cancelled before its issue was made",
            wakeup_id,
        )
    return Step(
        RunState.ISSUE_CREATED,
        wakeup_id=wakeup_id,
        issue_id=issue.issue_id,
        expect_soon=issue.end is not None,
    )


def wakeup_settled(mode: ExecutionMode, has_issue: bool, facts: WakeFacts) -> Step:
    """Judge the end of a wakeup: it is the outcome of a run that only wakes."""
    keep = Step(wakeup_id=facts.wakeup_id, issue_id=facts.issue_id, result=facts.result)
    if mode is ExecutionMode.CREATE_ISSUE:
        if facts.state is WakeState.CANCELLED and not has_issue and facts.issue_id is None:
            return replace(
                keep,
                state=RunState.CANCELLED,
                reason=Reason.CANCELLED,
                message="cancelled before its issue was made",
            )
        return keep
    match facts.state:
        case WakeState.COMPLETED:
            return replace(keep, state=RunState.COMPLETED)
        case WakeState.FAILED:
            state = RunState.FAILED
        case WakeState.SKIPPED:
            state = RunState.SKIPPED
        case WakeState.CANCELLED:
            state = RunState.CANCELLED
        case WakeState.QUEUED | WakeState.DEFERRED | WakeState.CLAIMED | WakeState.COALESCED:
            return keep
        case _:
            assert_never(facts.state)
    reason = facts.reason or (Reason.CANCELLED if state is RunState.CANCELLED else None)
    return replace(keep, state=state, reason=reason, message=facts.message)


def issue_changed(mode: ExecutionMode, issue: IssueFacts) -> Step:
    """Judge a change of an issue: its end is the outcome of the run that made it."""
    keep = Step(issue_id=issue.issue_id)
    if mode is not ExecutionMode.CREATE_ISSUE:
        return Step()
    match issue.end:
        case None:
            return replace(keep, state=RunState.ISSUE_CREATED)
        case IssueEnd.DONE:
            return replace(keep, state=RunState.COMPLETED)
        case IssueEnd.CANCELLED:
            return replace(
                keep,
                state=RunState.CANCELLED,
                reason=Reason.ISSUE_CANCELLED,
                message="its issue was cancelled",
            )
        case IssueEnd.GONE:
            return replace(
                keep,
                state=RunState.FAILED,
                reason=Reason.ISSUE_NOT_FOUND,
                message="its issue was deleted",
            )
        case _:
            assert_never(issue.end)


def cancelled_downstream(mode: ExecutionMode, facts: WakeFacts, *, recorded: bool) -> Step:
    """Judge the answer to a cancellation that somebody asked for.

    What had ended before keeps its own outcome, which the feed or a check brings.
    """
    if recorded or facts.state is WakeState.CANCELLED:
        return Step(
            RunState.CANCELLED,
            Reason.CANCELLED,
            "cancelled on request",
            facts.wakeup_id,
            facts.issue_id,
        )
    return _already_ended(mode, facts)


def given_up(mode: ExecutionMode, facts: WakeFacts, *, recorded: bool) -> Step:
    """Judge the answer to the cancellation with which a run is given up."""
    if recorded or facts.state is WakeState.CANCELLED:
        return Step(
            RunState.FAILED,
            Reason.DISPATCH_INCOMPLETE,
            "its downstream object was not confirmed in time",
            facts.wakeup_id,
            facts.issue_id,
        )
    return _already_ended(mode, facts)


def withdrawn() -> Step:
    """End a run whose delivery was purged before its body came."""
    return Step(
        RunState.CANCELLED,
        Reason.PURGED,
        "its delivery was purged while the loop breaker held it",
        before_body=True,
    )


def hands_back_slot(run: Run) -> bool:
    """Tell whether a run that ended leaves its occurrence to a clean one."""
    return run.reason in {Reason.DISPATCH_INCOMPLETE, Reason.PURGED}


def _already_ended(mode: ExecutionMode, facts: WakeFacts) -> Step:
    linked = Step(wakeup_id=facts.wakeup_id, issue_id=facts.issue_id, expect_soon=True)
    match mode:
        case ExecutionMode.RUN_ONLY:
            if facts.state is WakeState.SKIPPED:
                return replace(
                    linked, state=RunState.SKIPPED, reason=facts.reason, message=facts.message
                )
            return replace(linked, state=RunState.RUNNING)
        case ExecutionMode.CREATE_ISSUE:
            if facts.issue_id is None:
                return linked
            return replace(linked, state=RunState.ISSUE_CREATED)
        case _:
            assert_never(mode)


@dataclass(frozen=True, slots=True)
class Written:
    """A run after a step, and whether that step gave it its outcome."""

    run: Run
    changed: bool
    ended: bool


def apply(run: Run, step: Step) -> Written:
    """Apply a step: terminal is final, but links and a result that are missing are filled in."""
    moves = (
        step.state is not None
        and step.state is not run.state
        and may_move(run.state, step.state)
        and not (step.before_body and run.payload_ready)
    )
    reason, message = _why(run, step) if moves else (run.reason, run.message)
    after = replace(
        run,
        state=step.state if moves and step.state is not None else run.state,
        reason=reason,
        message=message,
        wakeup_id=run.wakeup_id or step.wakeup_id,
        issue_id=run.issue_id or step.issue_id,
        result=_result(run, step),
    )
    return Written(after, after != run, moves and after.state in RUN_TERMINAL)


def apply_all(run: Run, steps: Iterable[Step]) -> Written:
    """Apply steps in the order in which they became known."""
    after, ended = run, False
    for step in steps:
        written = apply(after, step)
        after, ended = written.run, ended or written.ended
    return Written(after, after != run, ended)


def _why(run: Run, step: Step) -> tuple[str | None, str]:
    """Tell why a run ended: who asked for a cancellation decides, not which news came first."""
    if step.state is not RunState.CANCELLED or run.cancel_requested_at is None:
        return step.reason, step.message
    if not run.cancel_requested_by:
        return Reason.REPLACED, "a later run of the autopilot took its place"
    return Reason.CANCELLED, "cancelled on request"


def _result(run: Run, step: Step) -> bytes | None:
    """Keep the newest result while the run is open, the first one known after its outcome."""
    if run.terminal:
        return step.result if run.result is None else run.result
    return run.result if step.result is None else step.result
