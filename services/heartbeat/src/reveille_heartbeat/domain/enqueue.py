"""May this wish start work? Small decisions in one visible order, the first refusal counts.

Then `place` says where an accepted wish goes: to the queue, behind the run that holds its issue,
or into a wake that waits for the same work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import ISSUE_TERMINAL
from reveille_heartbeat.domain.values import (
    Agent,
    Issue,
    Refusal,
    WakeupSource,
    Wish,
    Workspace,
)


@dataclass(frozen=True, slots=True)
class Facts:
    """What the decisions may look at, read in one snapshot."""

    workspace: Workspace | None
    agent: Agent | None
    issue: Issue | None


Decision = Callable[[Wish, Facts], Refusal | None]


def workspace_active(wish: Wish, facts: Facts) -> Refusal | None:
    """The workspace is known here."""
    if facts.workspace is not None:
        return None
    return Refusal(
        Reason.WORKSPACE_INACTIVE, f"workspace {wish.workspace_id} is not known, or not active"
    )


def agent_exists(wish: Wish, facts: Facts) -> Refusal | None:
    """The agent belongs to this workspace."""
    if facts.agent is not None and facts.agent.workspace_id == wish.workspace_id:
        return None
    return Refusal(Reason.AGENT_NOT_FOUND, f"agent {wish.agent_id} is not in this workspace")


def agent_has_runtime(wish: Wish, facts: Facts) -> Refusal | None:  # noqa: ARG001 (a decision)
    """The agent has a place to run at; one that is away is waited for."""
    if facts.agent is None or facts.agent.runtime_id is not None:
        return None
    return Refusal(Reason.AGENT_RUNTIME_REQUIRED, f"agent {facts.agent.name} has no runtime")


def issue_exists(wish: Wish, facts: Facts) -> Refusal | None:
    """The issue it is about, if any, belongs to this workspace."""
    if wish.issue_id is None:
        return None
    if facts.issue is not None and facts.issue.workspace_id == wish.workspace_id:
        return None
    return Refusal(Reason.ISSUE_NOT_FOUND, f"issue {wish.issue_id} is not in this workspace")


def issue_open(wish: Wish, facts: Facts) -> Refusal | None:  # noqa: ARG001 (a decision)
    """Nothing is left to do on an issue that has ended."""
    if facts.issue is None or facts.issue.status not in ISSUE_TERMINAL:
        return None
    return Refusal(
        Reason.ISSUE_CLOSED, f"issue {facts.issue.identifier} is {facts.issue.status.value}"
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
    workspace_active,
    agent_exists,
    agent_has_runtime,
    issue_exists,
    issue_open,
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
    """Name the person who answers: the caller's choice, the clicker, the issue's, the workspace's.

    Never a made-up one: empty when nobody can be named.
    """
    if wish.origin.accountable_user_id:
        return wish.origin.accountable_user_id
    if wish.source is WakeupSource.ON_DEMAND and wish.origin.originator_user_id:
        return wish.origin.originator_user_id
    if facts.issue is not None and facts.issue.responsible_user_id:
        return facts.issue.responsible_user_id
    return facts.workspace.default_responsible_user_id if facts.workspace is not None else ""


class PlaceKind(StrEnum):
    """Where an accepted wish goes."""

    QUEUE = "queue"
    DEFER = "defer"
    JOIN = "join"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What else is under way, read after the issue's or the agent's lock was had."""

    # A wake of the same agent and issue that no attempt has taken up yet.
    joinable_wakeup_id: UUID | None
    # The issue has a run that is queued or holds it.
    issue_has_run: bool


@dataclass(frozen=True, slots=True)
class Place:
    """The decision, with the wake to join."""

    kind: PlaceKind
    joined_wakeup_id: UUID | None = None


def place(wish: Wish, around: Surroundings) -> Place:
    """Decide between queue, deferral and joining.

    A wish with an occurrence key is its own scope: it neither joins another nor waits behind one.
    A wake is joined only while its prompt is not built, so nothing that it says is lost.
    """
    if wish.origin.occurrence_key is not None:
        return Place(PlaceKind.QUEUE)
    if around.joinable_wakeup_id is not None:
        return Place(PlaceKind.JOIN, around.joinable_wakeup_id)
    if wish.issue_id is not None and around.issue_has_run:
        return Place(PlaceKind.DEFER)
    return Place(PlaceKind.QUEUE)
