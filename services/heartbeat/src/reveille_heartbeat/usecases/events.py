"""What heartbeat tells other services, as events of its feed."""

from __future__ import annotations

from collections.abc import Mapping

from reveille_heartbeat.domain.answer import for_event
from reveille_heartbeat.domain.states import IssueState
from reveille_heartbeat.domain.values import Issue, Run, Wakeup
from reveille_runtime.feed import FeedEvent


def wakeup_settled(wakeup: Wakeup, run: Run | None) -> FeedEvent:
    """A wakeup has its outcome; `run` is the attempt that gave it, if one did."""
    return FeedEvent(
        "wakeup.settled",
        wakeup.wakeup_id,
        wakeup.workspace_id,
        wakeup.occurrence_key or "",
        {
            "wakeup_id": str(wakeup.wakeup_id),
            "agent_id": str(wakeup.agent_id),
            "state": wakeup.state.value,
            "reason": wakeup.reason,
            "message": wakeup.message,
            "run_id": str(wakeup.run_id) if wakeup.run_id else None,
            "result": None if run is None else for_event(run.result, run.summary),
            "issue_id": str(wakeup.issue_id) if wakeup.issue_id else None,
        },
        wakeup.trace_carrier,
    )


def run_status(
    run: Run, occurrence_key: str | None, carrier: Mapping[str, str], kind: str = "run.status"
) -> FeedEvent:
    """An attempt moved; `run.queued` when it entered the queue."""
    return FeedEvent(
        kind,
        run.run_id,
        run.workspace_id,
        occurrence_key or "",
        {
            "run_id": str(run.run_id),
            "wakeup_id": str(run.wakeup_id),
            "state": run.state.value,
            "attempt": run.attempt,
            "reason": run.reason,
        },
        carrier,
    )


def issue_updated(issue: Issue, previous: IssueState) -> FeedEvent:
    """An issue moved."""
    return FeedEvent(
        "issue.updated",
        issue.issue_id,
        issue.workspace_id,
        issue.occurrence_key or "",
        {
            "issue_id": str(issue.issue_id),
            "identifier": issue.identifier,
            "status": issue.status.value,
            "previous_status": previous.value,
        },
        issue.trace_carrier,
    )
