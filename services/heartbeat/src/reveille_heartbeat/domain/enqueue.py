"""May this wish start work? Small decisions in one visible order, the first refusal counts.

What comes after is for `placing`: behind whom, together with whom, or now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from reveille_heartbeat.domain.invocability import may_invoke
from reveille_heartbeat.domain.limits import NOTHING_TODAY, PastRun, Today
from reveille_heartbeat.domain.obstacles import Blocker, HoldOver
from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import ISSUE_TERMINAL
from reveille_heartbeat.domain.targets import Target, no_work
from reveille_heartbeat.domain.values import (
    Issue,
    Refusal,
    Requester,
    RequesterKind,
    WakeupSource,
    Wish,
    Workspace,
    WorkspaceStatus,
)
from reveille_heartbeat.domain.wakes import APPROVAL, COMMENT_REASON, COMMENTED, WakeReason


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment of the wish's issue."""

    comment_id: UUID
    author: Requester
    run_id: UUID | None
    # Bytes of its text.
    size: int = 0


@dataclass(frozen=True, slots=True)
class Facts:
    """What the decisions may look at, read in one snapshot after the locks were had."""

    now: datetime
    suppressed: bool
    workspace: Workspace | None
    target: Target
    issue: Issue | None = None
    parent_responsible_user_id: str = ""
    hold: HoldOver | None = None
    blockers: tuple[Blocker, ...] = ()
    # Those the wish is about, as far as they are its issue's.
    comments: tuple[Comment, ...] = ()
    # Whether an issue waits for the agent; asked for timers that look before they wake.
    has_work: bool = True
    # What this agent did on this issue, newest first; asked for where a limit depends on it.
    past_runs: tuple[PastRun, ...] = ()
    today: Today = NOTHING_TODAY


Decision = Callable[[Wish, Facts], Refusal | None]


def not_suppressed(wish: Wish, facts: Facts) -> Refusal | None:  # noqa: ARG001 (a decision)
    """An operator can hold everything back."""
    if not facts.suppressed:
        return None
    return Refusal(
        Reason.SCHEDULING_SUPPRESSED, "no wakes are taken: REVEILLE_SCHEDULING_SUPPRESSED is set"
    )


def workspace_active(wish: Wish, facts: Facts) -> Refusal | None:
    """The workspace is known here, and work goes on in it."""
    workspace = facts.workspace
    if workspace is not None and workspace.status is WorkspaceStatus.ACTIVE:
        return None
    what = "not known" if workspace is None else workspace.status.value
    return Refusal(Reason.WORKSPACE_INACTIVE, f"workspace {wish.workspace_id} is {what}")


def agent_exists(wish: Wish, facts: Facts) -> Refusal | None:
    """The agent, or the squad with its leader, belongs to this workspace."""
    squad, agent = facts.target.squad, facts.target.agent
    if wish.squad_id is not None and (squad is None or squad.workspace_id != wish.workspace_id):
        return Refusal(Reason.AGENT_NOT_FOUND, f"squad {wish.squad_id} is not in this workspace")
    if agent is not None and agent.workspace_id == wish.workspace_id:
        return None
    return Refusal(Reason.AGENT_NOT_FOUND, f"agent {wish.agent_id} is not in this workspace")


def agent_takes_work(wish: Wish, facts: Facts) -> Refusal | None:  # noqa: ARG001 (a decision)
    """Neither the squad nor the agent rests, and everybody above the agent is still there."""
    return no_work(facts.target)


def requester_may_invoke(wish: Wish, facts: Facts) -> Refusal | None:
    """A person who wakes an agent, however, is one of those who may; members only come this far.

    Two wakes give an agent only what is its own, whoever occasions them: the decision that it asked
    for, and the work that a hold kept from it. Both are heartbeat's to make, and no caller's.
    """
    agent = facts.target.agent
    if (
        agent is None
        or _gives_its_own(wish)
        or wish.requester.kind is not RequesterKind.USER
        or may_invoke(agent, wish.requester.id, is_member=True)
    ):
        return None
    return Refusal(
        Reason.INVOCATION_NOT_ALLOWED, f"{wish.requester.id} may not wake {facts.target.words}"
    )


def _gives_its_own(wish: Wish) -> bool:
    # Who asks for such a wake again, by name, asks as for any other.
    return wish.source is WakeupSource.AUTOMATION and (
        APPROVAL in wish.context or wish.wake_reason == WakeReason.ISSUE_TREE_RESTORED
    )


def heartbeat_policy(wish: Wish, facts: Facts) -> Refusal | None:
    """The agent wants to be woken this way: by its timer, or by everything else."""
    agent = facts.target.agent
    if agent is None:
        return None
    if wish.source is WakeupSource.TIMER:
        if agent.heartbeat.timer_enabled:
            return None
        return Refusal(Reason.TIMER_DISABLED, f"the timer of {facts.target.words} is off")
    if agent.heartbeat.wake_on_demand:
        return None
    return Refusal(
        Reason.WAKE_ON_DEMAND_DISABLED, f"{facts.target.words} is woken by its timer only"
    )


def actionable_work(wish: Wish, facts: Facts) -> Refusal | None:
    """A timer's wake that is about nothing in particular finds something to do."""
    agent = facts.target.agent
    if agent is None or facts.has_work or not is_generic_timer(wish):
        return None
    if not agent.heartbeat.skip_timer_without_work:
        return None
    return Refusal(
        Reason.NO_ACTIONABLE_WORK, f"no issue waits for {facts.target.words} to work on it"
    )


def runtime_bound(wish: Wish, facts: Facts) -> Refusal | None:  # noqa: ARG001 (a decision)
    """The agent has a place to run at; one that is away is waited for."""
    agent = facts.target.agent
    if agent is None or agent.runtime_id is not None:
        return None
    return Refusal(Reason.AGENT_RUNTIME_REQUIRED, f"{facts.target.words} has no runtime")


def issue_exists(wish: Wish, facts: Facts) -> Refusal | None:
    """The issue it is about, if any, belongs to this workspace and is not deleted."""
    if wish.issue_id is None and not wish.issue_identifier:
        return None
    issue = facts.issue
    if issue is not None and issue.workspace_id == wish.workspace_id and issue.deleted_at is None:
        return None
    name = wish.issue_identifier or str(wish.issue_id)
    return Refusal(Reason.ISSUE_NOT_FOUND, f"issue {name} is not in this workspace")


def issue_open(wish: Wish, facts: Facts) -> Refusal | None:
    """Nothing is left to do on an issue that has ended, except to answer a comment."""
    issue = facts.issue
    if issue is None or issue.status not in ISSUE_TERMINAL or verified_comment(wish, facts):
        return None
    return Refusal(Reason.ISSUE_CLOSED, f"issue {issue.identifier} is {issue.status.value}")


def issue_not_held(wish: Wish, facts: Facts) -> Refusal | None:
    """Nobody holds the issue's tree, or its agent is told something on the issue itself."""
    if facts.hold is None or tells(wish, facts):
        return None
    why = f": {facts.hold.reason}" if facts.hold.reason else ""
    return Refusal(
        Reason.ISSUE_TREE_HELD, f"{facts.hold.root_identifier} and all below it are held{why}"
    )


def somebody_answers(wish: Wish, facts: Facts) -> Refusal | None:
    """A person can be named who answers for what the agent does."""
    if responsible_user(wish, facts):
        return None
    return Refusal(
        Reason.RESPONSIBLE_USER_UNRESOLVED,
        "nobody can be named who answers for this, by the caller, the issue or the workspace",
    )


DECISIONS: tuple[Decision, ...] = (
    not_suppressed,
    workspace_active,
    agent_exists,
    agent_takes_work,
    requester_may_invoke,
    heartbeat_policy,
    actionable_work,
    runtime_bound,
    issue_exists,
    issue_open,
    issue_not_held,
    somebody_answers,
)


def judge(wish: Wish, facts: Facts) -> Refusal | None:
    """Ask every decision in order; None means that the wish may start work."""
    for decision in DECISIONS:
        refusal = decision(wish, facts)
        if refusal is not None:
            return refusal
    return None


def responsible_user(wish: Wish, facts: Facts) -> str:
    """Name the person who answers for it, never a made-up one; empty when nobody can be named.

    The caller's choice, the person who woke the agent by hand, the issue's, the parent issue's, for
    an issue the workspace's, the person who asked, the workspace's.
    """
    default = facts.workspace.default_responsible_user_id if facts.workspace is not None else ""
    asked = wish.origin.originator_user_id
    if not asked and wish.requester.kind is RequesterKind.USER:
        asked = wish.requester.id
    by_hand = wish.source is WakeupSource.ON_DEMAND and not wish.wake_reason.startswith("issue_")
    issue = facts.issue
    return (
        wish.origin.accountable_user_id
        or (asked if by_hand else "")
        or ("" if issue is None else issue.responsible_user_id)
        or facts.parent_responsible_user_id
        or ("" if issue is None else default)
        or asked
        or default
    )


def is_generic_timer(wish: Wish) -> bool:
    """Tell a timer's wake about nothing in particular from one that names issue or task."""
    return (
        wish.source is WakeupSource.TIMER
        and wish.issue_id is None
        and not wish.issue_identifier
        and not wish.comment_ids
        and wish.task_key in ("", TIMER_TASK)
    )


# What a timer's wakes have in common where nothing else keeps them together.
TIMER_TASK = "__heartbeat__"


def verified_comment(wish: Wish, facts: Facts) -> bool:
    """Tell whether the wish speaks of comments that are there, and were written by who asks.

    Heartbeat itself is believed; everybody else speaks for nobody else. One that was verified and
    joined another wake makes that one speak, too.
    """
    reason = wish.context.get(COMMENT_REASON, wish.wake_reason)
    if reason not in COMMENTED or not facts.comments:
        return False
    if wish.requester.kind is RequesterKind.SYSTEM or COMMENT_REASON in wish.context:
        return True
    return any(comment.author == wish.requester for comment in facts.comments)


def tells(wish: Wish, facts: Facts) -> bool:
    """Tell whether the wish says something to its agent, and so may pass holds and blockers.

    That is a comment, or the decision that the agent asked for: only heartbeat writes that there.
    """
    return APPROVAL in wish.context or verified_comment(wish, facts)


def from_a_person(wish: Wish, facts: Facts) -> bool:
    """Tell whether a person has just said or asked something, and waits for it."""
    by_hand = wish.source is WakeupSource.ON_DEMAND and wish.requester.kind is RequesterKind.USER
    return by_hand or any(comment.author.kind is RequesterKind.USER for comment in facts.comments)


def notes(wish: Wish, facts: Facts) -> Mapping[str, Any]:
    """Give what the agent should know of why it was woken nevertheless."""
    found: dict[str, Any] = {}
    if not tells(wish, facts):
        return found
    if verified_comment(wish, facts):
        found[COMMENT_REASON] = wish.context.get(COMMENT_REASON, wish.wake_reason)
    if facts.hold is not None:
        found["tree_hold_interaction"] = True
        found["tree_hold"] = {
            "hold_id": str(facts.hold.hold_id),
            "root_issue_id": str(facts.hold.root_issue_id),
            "root_identifier": facts.hold.root_identifier,
            "reason": facts.hold.reason,
        }
    if facts.blockers:
        found["dependency_blocked_interaction"] = True
        found["unresolved_blocker_count"] = len(facts.blockers)
        found["unresolved_blockers"] = [
            {
                "issue_id": str(each.issue_id),
                "identifier": each.identifier,
                "title": each.title,
                "status": each.status.value,
            }
            for each in facts.blockers
        ]
    return found
