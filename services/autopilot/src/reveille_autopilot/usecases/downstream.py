"""Runs as requests to heartbeat, and its answers as steps of runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from reveille.heartbeat.v1 import issue_pb2 as issue_pb
from reveille.heartbeat.v1 import wakeup_pb2 as wake_pb
from reveille_autopilot.domain.models import Payload, Run
from reveille_autopilot.domain.outcomes import (
    IssueEnd,
    IssueFacts,
    Step,
    WakeFacts,
    WakeState,
    enqueued,
    issue_made,
)
from reveille_autopilot.usecases.peers import Heartbeat
from reveille_runtime.reasons import reason_name

WAKE_REASON = "autopilot_run"
_STATES: Mapping[int, WakeState] = {
    wake_pb.WakeupState.Value(f"WAKEUP_STATE_{state.name}"): state for state in WakeState
}
_ENDS: Mapping[int, IssueEnd] = {
    issue_pb.ISSUE_STATUS_DONE: IssueEnd.DONE,
    issue_pb.ISSUE_STATUS_CANCELLED: IssueEnd.CANCELLED,
}


async def enqueue_wakeups(
    heartbeat: Heartbeat, batch: Sequence[Run], payloads: Mapping[UUID, Payload]
) -> dict[UUID, Step]:
    """Enqueue one wakeup per run; a run without a step could not be decided."""
    response = await heartbeat.wakeups.EnqueueWakeups(
        wake_pb.EnqueueWakeupsRequest(wakeups=[_wakeup(run, payloads[run.id]) for run in batch])
    )
    return {
        run.id: enqueued(wake_facts(result))
        for run, result in zip(batch, response.results, strict=True)
        if not result.unavailable
    }


async def create_issue(
    heartbeat: Heartbeat, run: Run, payload: Payload, subscribers: Sequence[str]
) -> dict[UUID, Step]:
    """Create a run's issue, which enqueues the wakeup of its assignment too."""
    response = await heartbeat.issues.CreateIssue(
        issue_pb.CreateIssueRequest(
            workspace_id=str(run.workspace_id),
            title=run.title,
            description=run.prompt,
            # An issue stays with its squad; the leader of the moment is woken for it.
            assignee_agent_id=_text(run.agent_id) if run.squad_id is None else "",
            assignee_squad_id=_text(run.squad_id),
            project_id=_text(run.project_id),
            subscriber_user_ids=subscribers,
            origin=_origin(run),
            payload=_payload(run, payload),
        )
    )
    wake = response.wakeup if response.HasField("wakeup") else None
    issue = issue_facts(response.issue) if response.HasField("issue") else None
    if issue is None and wake is not None and wake.unavailable:
        return {}
    return {run.id: issue_made(issue, None if wake is None else wake_facts(wake))}


async def cancel_wakeups(
    heartbeat: Heartbeat, batch: Sequence[Run]
) -> list[tuple[Run, WakeFacts, bool]]:
    """Cancel what runs have made; tells also whether the key was unknown and is now recorded."""
    response = await heartbeat.wakeups.CancelWakeups(
        wake_pb.CancelWakeupsRequest(
            cancellations=[
                wake_pb.OccurrenceCancellation(
                    workspace_id=str(run.workspace_id),
                    occurrence_key=run.occurrence_key,
                    user_id=run.cancel_requested_by or "",
                )
                for run in batch
            ]
        )
    )
    return [
        (
            run,
            WakeFacts(
                state=wake_state(result.state),
                wakeup_id=optional_id(result.wakeup_id),
                issue_id=optional_id(result.issue_id),
            ),
            result.recorded,
        )
        for run, result in zip(batch, response.results, strict=True)
    ]


def wake_facts(result: wake_pb.WakeupResult) -> WakeFacts:
    """Read what an answer says about a wakeup."""
    return WakeFacts(
        state=wake_state(result.state),
        wakeup_id=optional_id(result.wakeup_id),
        reason=reason_name(result.reason),
        message=result.message,
    )


def wake_state(value: int) -> WakeState:
    """Read a wakeup's state; one that this release does not know yet is one that goes on."""
    return _STATES.get(value, WakeState.QUEUED)


def issue_facts(issue: issue_pb.Issue) -> IssueFacts:
    """Read what an answer says about an issue."""
    return IssueFacts(UUID(issue.issue_id), _ENDS.get(issue.status))


def optional_id(text: str | None) -> UUID | None:
    """Read an id that may be empty."""
    return UUID(text) if text else None


def result_json(value: Any) -> bytes:
    """Write an agent's answer down, as the run keeps it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _wakeup(run: Run, payload: Payload) -> wake_pb.Wakeup:
    source = (
        wake_pb.WAKEUP_SOURCE_ON_DEMAND
        if run.source.on_request
        else wake_pb.WAKEUP_SOURCE_AUTOMATION
    )
    return wake_pb.Wakeup(
        workspace_id=str(run.workspace_id),
        agent_id=_text(run.agent_id),
        source=source,
        reason=WAKE_REASON,
        title=run.title,
        prompt=run.prompt,
        origin=_origin(run),
        payload=_payload(run, payload),
    )


def _origin(run: Run) -> wake_pb.Origin:
    return wake_pb.Origin(
        occurrence_key=run.occurrence_key,
        originator_user_id=run.originator_user_id or "",
        accountable_user_id=run.accountable_user_id or "",
        autopilot_run_id=str(run.id),
        trace_carrier=run.trace_carrier,
    )


def _text(some_id: UUID | None) -> str:
    return "" if some_id is None else str(some_id)


def _payload(run: Run, payload: Payload) -> wake_pb.Payload:
    return wake_pb.Payload(
        content_type=payload.content_type,
        body=b"" if payload.omitted else payload.body,
        delivery_id=str(run.delivery_id) if payload.omitted and run.delivery_id else "",
        facts=payload.facts,
    )
