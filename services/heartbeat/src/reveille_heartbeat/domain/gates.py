"""May a run that has waited begin now? Asked at the claim and when a repeat's time has come.

What was true when the wish was judged may have changed since. Each gate looks at one thing; the
first refusal counts, ends the run, and is written into its rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from reveille_heartbeat.domain.obstacles import Blocker, HoldOver
from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import ISSUE_TERMINAL, IssueState
from reveille_heartbeat.domain.targets import Target, no_work
from reveille_heartbeat.domain.values import Issue, Refusal, Wakeup, WakeupSource
from reveille_heartbeat.domain.wakes import FOR_THE_ASSIGNEE, WakeReason, answers, tells

# A refusal for the state of its agent, or by a person's hold, is a cancellation; all others say
# that there was nothing to do.
CANCELS = frozenset({Reason.AGENT_NOT_INVOKABLE, Reason.ISSUE_TREE_HELD})


@dataclass(frozen=True, slots=True)
class Waiting:
    """A run that waits, and what it depends on, read after the locks."""

    run_id: UUID
    retry_of_run_id: UUID | None
    retry_reason: str
    agent_id: UUID
    # Its agent, and whoever stands above it.
    target: Target
    wakeup: Wakeup
    issue: Issue | None
    hold: HoldOver | None = None
    blockers: tuple[Blocker, ...] = ()

    @property
    def answers(self) -> bool:
        """Whether somebody said something and waits for an answer."""
        return answers(self.wakeup.context)

    @property
    def tells(self) -> bool:
        """Whether it answers somebody, or brings its agent a decision that it asked for."""
        return tells(self.wakeup.context)


Gate = Callable[[Waiting], Refusal | None]


def agent_active(run: Waiting) -> Refusal | None:
    """Its agent takes work, and everybody above the agent is still there."""
    return no_work(run.target)


def issue_there(run: Waiting) -> Refusal | None:
    """Its issue was not deleted."""
    if run.issue is None or run.issue.deleted_at is None:
        return None
    return Refusal(Reason.ISSUE_DELETED, f"issue {run.issue.identifier} was deleted")


def not_held(run: Waiting) -> Refusal | None:
    """No hold is over its issue, unless its agent is told something."""
    if run.hold is None or run.tells:
        return None
    return Refusal(
        Reason.ISSUE_TREE_HELD, f"issue {run.hold.root_identifier} and all below it is held"
    )


def not_blocked(run: Waiting) -> Refusal | None:
    """No other issue blocks its issue, unless its agent is told something."""
    if not run.blockers or run.tells:
        return None
    names = ", ".join(blocker.identifier for blocker in run.blockers)
    return Refusal(Reason.ISSUE_DEPENDENCIES_BLOCKED, f"it waits for {names}")


def issue_open(run: Waiting) -> Refusal | None:
    """Its issue has not ended, unless it answers somebody."""
    if run.issue is None or run.issue.status not in ISSUE_TERMINAL or run.answers:
        return None
    return Refusal(Reason.ISSUE_CLOSED, "its issue had ended before its turn came")


def still_assigned(run: Waiting) -> Refusal | None:
    """What is meant for the assignee still goes to it; what an agent is told reaches it."""
    if run.issue is None or run.issue.assignee_agent_id == run.agent_id or run.tells:
        return None
    wakeup = run.wakeup
    if wakeup.source is not WakeupSource.ASSIGNMENT and wakeup.wake_reason not in FOR_THE_ASSIGNEE:
        return None
    return Refusal(
        Reason.ISSUE_ASSIGNEE_CHANGED, f"issue {run.issue.identifier} belongs to somebody else now"
    )


def still_reviewer(run: Waiting) -> Refusal | None:
    """A review is still asked of this agent; what an agent is told reaches it."""
    if run.wakeup.wake_reason != WakeReason.EXECUTION_REVIEW_REQUESTED or run.issue is None:
        return None
    if run.issue.reviewer_agent_id == run.agent_id or run.tells:
        return None
    return Refusal(
        Reason.ISSUE_REVIEWER_CHANGED, f"issue {run.issue.identifier} is judged by somebody else"
    )


def may_continue(run: Waiting) -> Refusal | None:
    """A continuation goes on with work in progress that is still its own."""
    if run.retry_reason != Reason.MAX_TURNS or run.issue is None:
        return None
    if run.issue.status is not IssueState.IN_PROGRESS:
        return Refusal(
            Reason.ISSUE_NOT_IN_PROGRESS,
            f"issue {run.issue.identifier} is not in progress any more",
        )
    if run.issue.execution_run_id not in (None, run.run_id, run.retry_of_run_id):
        return Refusal(
            Reason.ISSUE_LOCK_CHANGED, f"another run has taken issue {run.issue.identifier}"
        )
    return None


GATES: tuple[Gate, ...] = (
    agent_active,
    issue_there,
    not_held,
    not_blocked,
    issue_open,
    still_assigned,
    still_reviewer,
    may_continue,
)


def refusal_of(run: Waiting) -> Refusal | None:
    """Ask every gate in order; None means that the run may begin."""
    for gate in GATES:
        refusal = gate(run)
        if refusal is not None:
            return refusal
    return None
