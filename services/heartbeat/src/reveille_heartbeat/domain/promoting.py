"""What becomes of a wake that waited, once its issue is free."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from reveille_heartbeat.domain.enqueue import (
    Decision,
    Facts,
    agent_exists,
    agent_takes_work,
    issue_exists,
    issue_not_held,
    issue_open,
    runtime_bound,
    workspace_active,
)
from reveille_heartbeat.domain.placing import dependencies_done
from reveille_heartbeat.domain.states import ISSUE_TERMINAL, WakeupState
from reveille_heartbeat.domain.values import Origin, Payload, Refusal, RequesterKind, Wakeup, Wish


@dataclass(frozen=True, slots=True)
class Promote:
    """It gets its turn."""

    # Its issue has ended, and a person wants it to go on.
    reopens: bool = False


@dataclass(frozen=True, slots=True)
class GiveUp:
    """It never gets a turn; the next one may."""

    state: WakeupState
    refusal: Refusal


# Asked in this order, each with the end that its refusal means.
_OBSTACLES: tuple[tuple[Decision, WakeupState], ...] = (
    (workspace_active, WakeupState.FAILED),
    (agent_exists, WakeupState.FAILED),
    (agent_takes_work, WakeupState.FAILED),
    (runtime_bound, WakeupState.FAILED),
    (issue_exists, WakeupState.CANCELLED),
    (issue_open, WakeupState.SKIPPED),
    (issue_not_held, WakeupState.CANCELLED),
    (dependencies_done, WakeupState.SKIPPED),
)


def promotion_of(wish: Wish, facts: Facts, ended_run_id: UUID | None) -> Promote | GiveUp:
    """Decide about the oldest wake that waits for an issue, after a run on it has ended."""
    reopens = _reopens(facts, ended_run_id)
    for obstacle, end in _OBSTACLES:
        if reopens and obstacle is issue_open:
            continue
        refusal = obstacle(wish, facts)
        if refusal is not None:
            return GiveUp(end, refusal)
    return Promote(reopens)


def _reopens(facts: Facts, ended_run_id: UUID | None) -> bool:
    """A person's comment opens an issue again; what the run that ended it said itself does not."""
    if facts.issue is None or facts.issue.status not in ISSUE_TERMINAL:
        return False
    return any(
        comment.author.kind is RequesterKind.USER
        and (comment.run_id is None or comment.run_id != ended_run_id)
        for comment in facts.comments
    )


def wish_of(wakeup: Wakeup) -> Wish:
    """Give a recorded wake as the wish that it was, without what only its agent reads."""
    return Wish(
        wakeup_id=wakeup.wakeup_id,
        workspace_id=wakeup.workspace_id,
        agent_id=wakeup.agent_id,
        source=wakeup.source,
        wake_reason=wakeup.wake_reason,
        title=wakeup.title,
        prompt="",
        issue_id=wakeup.issue_id,
        caller="",
        idempotency_key=None,
        origin=Origin(
            occurrence_key=wakeup.occurrence_key,
            originator_user_id=wakeup.originator_user_id,
            accountable_user_id=wakeup.accountable_user_id,
            autopilot_run_id=wakeup.autopilot_run_id,
            trace_carrier=wakeup.trace_carrier,
        ),
        payload=Payload(),
        requester=wakeup.requester,
        squad_id=wakeup.squad_id,
        task_key=wakeup.task_key,
        comment_ids=wakeup.comment_ids,
        fresh_session=wakeup.fresh_session,
        context=wakeup.context,
    )
