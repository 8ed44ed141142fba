"""What heartbeat tells other services, as events of its feed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import asyncpg

from reveille_heartbeat.domain.agents import AgentStatus
from reveille_heartbeat.domain.answer import for_event
from reveille_heartbeat.domain.discussion import Approval, Comment
from reveille_heartbeat.domain.states import IssueState, RunState, WakeupState
from reveille_heartbeat.domain.targets import Squad
from reveille_heartbeat.domain.values import Agent, Issue, Run, Wakeup
from reveille_heartbeat.usecases.runs.run_events import RunEvent
from reveille_runtime.feed import FeedEvent

_LONGEST_MESSAGE = 1000
_LARGEST_FACTS = 8 * 1024


def wakeup_settled(wakeup: Wakeup, run: Run | None) -> FeedEvent:
    """A wakeup has its outcome; `run` is the attempt that gave it, if one did."""
    result = None if run is None else for_event(run.result, run.summary)
    return wakeup_settled_as(wakeup, wakeup.state, wakeup.reason, wakeup.message, result)


def wakeup_settled_as(
    wakeup: Wakeup,
    state: WakeupState,
    reason: str,
    message: str,
    result: Mapping[str, Any] | None,
) -> FeedEvent:
    """A wakeup gets this outcome."""
    return FeedEvent(
        "wakeup.settled",
        wakeup.wakeup_id,
        wakeup.workspace_id,
        wakeup.occurrence_key or "",
        {
            "wakeup_id": str(wakeup.wakeup_id),
            "agent_id": str(wakeup.agent_id),
            "state": state.value,
            "reason": reason,
            "message": message,
            "run_id": str(wakeup.run_id) if wakeup.run_id else None,
            "result": result,
            "issue_id": str(wakeup.issue_id) if wakeup.issue_id else None,
        },
        wakeup.trace_carrier,
    )


def run_status(
    run: Run, occurrence_key: str | None, carrier: Mapping[str, str], kind: str = "run.status"
) -> FeedEvent:
    """An attempt moved; `run.queued` when it entered the queue."""
    return run_status_as(run, run.state, run.reason, occurrence_key, carrier, kind)


def run_status_as(
    run: Run,
    state: RunState,
    reason: str,
    occurrence_key: str | None,
    carrier: Mapping[str, str],
    kind: str = "run.status",
) -> FeedEvent:
    """An attempt gets this state."""
    return FeedEvent(
        kind,
        run.run_id,
        run.workspace_id,
        occurrence_key or "",
        {
            "run_id": str(run.run_id),
            "wakeup_id": str(run.wakeup_id),
            "state": state.value,
            "attempt": run.attempt,
            "reason": reason,
        },
        carrier,
    )


def run_event(run: asyncpg.Record, event: RunEvent) -> FeedEvent:
    """Something that an adapter told of happened in an attempt; `run` is what it belongs to.

    The feed carries small things: large particulars are with the run, under `seq`.
    """
    large = len(json.dumps(event.facts, ensure_ascii=False)) > _LARGEST_FACTS
    return FeedEvent(
        "run.event",
        run["run_id"],
        run["workspace_id"],
        run["occurrence_key"] or "",
        {
            "run_id": str(run["run_id"]),
            "wakeup_id": str(run["wakeup_id"]),
            "agent_id": str(run["agent_id"]),
            "issue_id": str(run["issue_id"]) if run["issue_id"] else None,
            "seq": event.seq,
            "type": event.type,
            "message": event.message[:_LONGEST_MESSAGE],
            "facts": None if large else dict(event.facts),
            "truncated": large or len(event.message) > _LONGEST_MESSAGE,
        },
        run["trace_carrier"],
    )


def issue_updated(
    issue: Issue, previous: IssueState, changed: Sequence[str] = ("status",)
) -> FeedEvent:
    """An issue moved, or was changed otherwise."""
    return _of_issue(
        "issue.updated", issue, {"previous_status": previous.value, "changed": sorted(changed)}
    )


def issue_created(issue: Issue) -> FeedEvent:
    """There is an issue."""
    return _of_issue("issue.created", issue, {})


def issue_deleted(issue: Issue) -> FeedEvent:
    """An issue is there no more."""
    return _of_issue("issue.deleted", issue, {})


def issue_commented(issue: Issue, comment: Comment) -> FeedEvent:
    """Somebody said something; what, is read where the caller may."""
    return _of_issue(
        "issue.commented",
        issue,
        {
            "comment_id": str(comment.comment_id),
            "author_kind": comment.author.kind.value,
            "author_id": comment.author.id,
        },
    )


def issue_summarised(issue: Issue, comment_id: UUID, agent_id: UUID) -> FeedEvent:
    """What an attempt said at its end became its comment."""
    return _of_issue(
        "issue.commented",
        issue,
        {"comment_id": str(comment_id), "author_kind": "agent", "author_id": str(agent_id)},
    )


def tree_held(root: Issue, hold_id: UUID, mode: str, kind: str = "issue.held") -> FeedEvent:
    """A hold came into force; `issue.released` when it ended."""
    return _of_issue(kind, root, {"hold_id": str(hold_id), "mode": mode})


def approval(each: Approval, kind: str) -> FeedEvent:
    """A decision was asked for (`approval.requested`) or made (`approval.resolved`)."""
    return FeedEvent(
        kind,
        each.approval_id,
        each.workspace_id,
        "",
        {
            "approval_id": str(each.approval_id),
            "issue_id": str(each.issue_id) if each.issue_id else None,
            "status": each.status.value,
        },
        {},
    )


def _of_issue(kind: str, issue: Issue, more: Mapping[str, Any]) -> FeedEvent:
    return FeedEvent(
        kind,
        issue.issue_id,
        issue.workspace_id,
        issue.occurrence_key or "",
        {
            "issue_id": str(issue.issue_id),
            "identifier": issue.identifier,
            "status": issue.status.value,
            **more,
        },
        issue.trace_carrier,
    )


def agent_status(agent: Agent, previous: AgentStatus) -> FeedEvent:
    """An agent does something else than before."""
    return FeedEvent(
        "agent.status",
        agent.agent_id,
        agent.workspace_id,
        "",
        {
            "agent_id": str(agent.agent_id),
            "status": AgentStatus.of(agent).value,
            "previous": previous.value,
        },
        {},
    )


def agent_archived(agent: Agent) -> FeedEvent:
    """An agent takes no work any more."""
    return FeedEvent(
        "agent.archived",
        agent.agent_id,
        agent.workspace_id,
        "",
        {"agent_id": str(agent.agent_id)},
        {},
    )


def squad_updated(squad: Squad, *, leader_has_runtime: bool) -> FeedEvent:
    """A squad has another form, perhaps another leader."""
    return FeedEvent(
        "squad.updated",
        squad.squad_id,
        squad.workspace_id,
        "",
        {
            "squad_id": str(squad.squad_id),
            "leader_agent_id": str(squad.leader_agent_id),
            "leader_has_runtime": leader_has_runtime,
        },
        {},
    )


def squad_archived(squad: Squad) -> FeedEvent:
    """A squad is never woken again; whoever pointed at it may point at its leader."""
    return FeedEvent(
        "squad.archived",
        squad.squad_id,
        squad.workspace_id,
        "",
        {"squad_id": str(squad.squad_id), "leader_agent_id": str(squad.leader_agent_id)},
        {},
    )


def runtime_deleted(runtime_id: UUID, workspace_id: UUID, agent_ids: Sequence[UUID]) -> FeedEvent:
    """A runtime is gone, and these agents have none."""
    return FeedEvent(
        "runtime.deleted",
        runtime_id,
        workspace_id,
        "",
        {"runtime_id": str(runtime_id), "agent_ids": [str(each) for each in agent_ids]},
        {},
    )
