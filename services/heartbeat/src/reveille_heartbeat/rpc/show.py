"""The domain's values as messages."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TypeVar, assert_never

from google.protobuf.descriptor import EnumDescriptor

from reveille.heartbeat.v1 import issue_pb2, run_pb2, wakeup_pb2
from reveille_heartbeat.domain.states import IssueState, RunState, WakeupState
from reveille_heartbeat.domain.tail import Happened, Moved, News, Over, Said
from reveille_heartbeat.domain.values import (
    NOBODY,
    Carrier,
    CommentStatus,
    FailureClass,
    LogStream,
    Run,
    Wakeup,
    WakeupSource,
)
from reveille_heartbeat.usecases.wakeups.known_wishes import Enqueued
from reveille_runtime.carrier import SpanSeed
from reveille_runtime.reasons import reason_value
from reveille_runtime.validation import to_timestamp

E = TypeVar("E", bound=StrEnum)


def known(ours: type[E], theirs: EnumDescriptor, prefix: str) -> dict[int, E]:
    """Map an enum of the contract to ours, by its names."""
    return {theirs.values_by_name[f"{prefix}_{each.name}"].number: each for each in ours}


WAKEUP_STATES = known(WakeupState, wakeup_pb2.WakeupState.DESCRIPTOR, "WAKEUP_STATE")
WAKEUP_SOURCES = known(WakeupSource, wakeup_pb2.WakeupSource.DESCRIPTOR, "WAKEUP_SOURCE")
RUN_STATES = known(RunState, run_pb2.RunState.DESCRIPTOR, "RUN_STATE")
ISSUE_STATES = known(IssueState, issue_pb2.IssueStatus.DESCRIPTOR, "ISSUE_STATUS")
LOG_STREAMS = known(LogStream, run_pb2.LogStream.DESCRIPTOR, "LOG_STREAM")
_FAILURES = {
    each: run_pb2.FailureClass.Value(
        f"FAILURE_CLASS_{'UNSPECIFIED' if each is FailureClass.NONE else each.name}"
    )
    for each in FailureClass
}
_COMMENTS = {
    each: run_pb2.CommentStatus.Value(
        f"COMMENT_STATUS_{'UNSPECIFIED' if each is CommentStatus.NOT_APPLICABLE else each.name}"
    )
    for each in CommentStatus
}


def wakeup_state(state: WakeupState) -> wakeup_pb2.WakeupState.ValueType:
    """Show a wakeup's state."""
    return wakeup_pb2.WakeupState.Value(f"WAKEUP_STATE_{state.name}")


def wakeup(each: Wakeup) -> wakeup_pb2.WakeupRecord:
    """Show a wakeup."""
    return wakeup_pb2.WakeupRecord(
        wakeup_id=str(each.wakeup_id),
        workspace_id=str(each.workspace_id),
        agent_id="" if each.agent_id == NOBODY else str(each.agent_id),
        source=wakeup_pb2.WakeupSource.Value(f"WAKEUP_SOURCE_{each.source.name}"),
        wake_reason=each.wake_reason,
        title=each.title,
        state=wakeup_state(each.state),
        reason=reason_value(each.reason),
        message=each.message,
        issue_id=_id(each.issue_id),
        run_id=_id(each.run_id),
        occurrence_key=each.occurrence_key or "",
        joined_wakeup_id=_id(each.joined_wakeup_id),
        responsible_user_id=each.responsible_user_id,
        trace_id=_trace_id(each.trace_carrier),
        create_time=to_timestamp(each.created_at),
        claim_time=to_timestamp(each.claimed_at),
        finish_time=to_timestamp(each.finished_at),
        squad_id=_id(each.squad_id),
        requester_kind=each.requester.kind.value,
        requester_id=each.requester.id,
        task_key=each.task_key,
        comment_ids=[str(comment) for comment in each.comment_ids],
        coalesced_count=each.coalesced_count,
        attempts=each.attempts,
    )


def enqueued(each: Enqueued) -> wakeup_pb2.WakeupResult:
    """Show what became of a wish."""
    return wakeup_pb2.WakeupResult(
        wakeup_id=str(each.wakeup_id),
        state=wakeup_state(each.state),
        reason=reason_value(each.reason),
        message=each.message,
        existed=each.existed,
    )


def run(each: Run, cost_cents: float | None = None) -> run_pb2.HeartbeatRun:
    """Show an attempt."""
    waits = each.state is RunState.SCHEDULED_RETRY
    return run_pb2.HeartbeatRun(
        run_id=str(each.run_id),
        workspace_id=str(each.workspace_id),
        agent_id=str(each.agent_id),
        wakeup_id=str(each.wakeup_id),
        issue_id=_id(each.issue_id),
        state=run_pb2.RunState.Value(f"RUN_STATE_{each.state.name}"),
        attempt=each.attempt,
        retry_of_run_id=_id(each.retry_of_run_id),
        retry_reason=reason_value(each.retry_reason),
        reason=reason_value(each.reason),
        message=each.message,
        exit_code=each.exit_code,
        summary=each.summary,
        result=each.result or b"",
        executor_id=each.executor_id,
        responsible_user_id=each.responsible_user_id,
        occupied=each.occupied,
        trace_id=_trace_id(each.trace_carrier),
        create_time=to_timestamp(each.created_at),
        start_time=to_timestamp(each.started_at),
        finish_time=to_timestamp(each.finished_at),
        failure_class=_FAILURES[each.failure_class],
        retry_time=to_timestamp(each.scheduled_retry_at if waits else None),
        comment_status=_COMMENTS[each.comment_status],
        deadline=to_timestamp(each.deadline_at),
        idle_deadline=to_timestamp(each.idle_deadline_at),
        last_output_time=to_timestamp(each.last_output_at),
        progress=_progress(each),
        cost_cents=cost_cents,
    )


def news(each: News) -> run_pb2.WatchRunResponse:
    """Show a piece of news of an attempt that is followed."""
    match each:
        case Moved():
            return run_pb2.WatchRunResponse(run=run(each.run))
        case Happened():
            event = run_pb2.RunEvent(
                seq=each.seq,
                type=each.type,
                message=each.message,
                facts_json=json.dumps(each.facts, ensure_ascii=False, separators=(",", ":")),
                create_time=to_timestamp(each.created_at),
            )
            return run_pb2.WatchRunResponse(event=event)
        case Said():
            stream = run_pb2.LogStream.Value(f"LOG_STREAM_{each.stream.name}")
            chunk = run_pb2.RunLogChunk(stream=stream, offset=each.offset, data=each.data)
            return run_pb2.WatchRunResponse(log=chunk)
        case Over():
            return run_pb2.WatchRunResponse(end=True)
        case _:
            assert_never(each)


def _progress(each: Run) -> str:
    """Tell in one line what a run that is at work says it is doing."""
    if each.state is not RunState.RUNNING or not each.progress:
        return ""
    words = ": ".join(filter(None, (each.progress.get(part) for part in ("phase", "message"))))
    tool = each.progress.get("tool")
    return f"{words} ({tool})".strip() if tool else words


def _id(value: object) -> str:
    return "" if value is None else str(value)


def _trace_id(carrier: Carrier) -> str:
    seed = SpanSeed.from_carrier(carrier)
    return "" if seed is None else f"{seed.trace_id:032x}"
