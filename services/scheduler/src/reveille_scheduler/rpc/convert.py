"""Between messages and the scheduler's values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import assert_never

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from reveille.scheduler.v1 import execution_pb2, job_pb2, scheduler_service_pb2
from reveille.scheduler.v1.scheduler_service_pb2 import PreviewScheduleRequest
from reveille_runtime.carrier import SpanSeed
from reveille_runtime.reasons import reason_value
from reveille_runtime.validation import Violations, to_duration, to_timestamp
from reveille_scheduler.domain.job import CatchUp, Job, StoredJob
from reveille_scheduler.domain.occurrence import Execution
from reveille_scheduler.domain.rule import Cadence, CronRule, Hook, Once, Rule
from reveille_scheduler.domain.scope import Scope, ScopeDeletion, ScopeWish
from reveille_scheduler.domain.states import ExecutionState

STATES: Mapping[int, ExecutionState] = {
    execution_pb2.EXECUTION_STATE_RUNNING: ExecutionState.RUNNING,
    execution_pb2.EXECUTION_STATE_SUCCESS: ExecutionState.SUCCESS,
    execution_pb2.EXECUTION_STATE_FAILED: ExecutionState.FAILED,
    execution_pb2.EXECUTION_STATE_SKIPPED: ExecutionState.SKIPPED,
}
_STATE_VALUES = {
    state: execution_pb2.ExecutionState.Value(f"EXECUTION_STATE_{state.name}")
    for state in ExecutionState
}
CATCH_UPS: Mapping[int, CatchUp] = {
    job_pb2.CATCH_UP_LATEST_ONLY: CatchUp.LATEST_ONLY,
    job_pb2.CATCH_UP_EVERY_PLAN: CatchUp.EVERY_PLAN,
}
_CATCH_UP_VALUES = {mode: job_pb2.CatchUp.Value(f"CATCH_UP_{mode.name}") for mode in CatchUp}
_ANY = timedelta(days=400_000)


def read_job(found: Violations, message: job_pb2.Job) -> Job:
    """Parse a job; what its lengths must satisfy is judged by the domain."""
    return Job(
        name=message.name,
        handler=message.handler,
        catch_up_window=_length(found, "job.catch_up_window", message.catch_up_window),
        max_lateness=_length(found, "job.max_lateness", message.max_lateness) or None,
        run_timeout=_length(found, "job.run_timeout", message.run_timeout),
        stale_timeout=_length(found, "job.stale_timeout", message.stale_timeout),
        heartbeat_interval=_length(found, "job.heartbeat_interval", message.heartbeat_interval),
        max_attempts=message.max_attempts,
        retry_backoff=tuple(
            _length(found, f"job.retry_backoff[{index}]", wait)
            for index, wait in enumerate(message.retry_backoff)
        ),
        retry_deadline=_length(found, "job.retry_deadline", message.retry_deadline),
        schedule_delay=_length(found, "job.schedule_delay", message.schedule_delay),
        catch_up=_catch_up(found, "job.catch_up", message.catch_up) or CatchUp.LATEST_ONLY,
        max_plans_per_tick=message.max_plans_per_tick,
        allow_stale_reentry=(
            not message.HasField("allow_stale_reentry") or message.allow_stale_reentry
        ),
        plans_per_scope=message.plans_per_scope or 1,
        jitter=_length(found, "job.jitter", message.jitter),
    )


def write_job(stored: StoredJob) -> job_pb2.Job:
    """Show a job."""
    job = stored.job
    return job_pb2.Job(
        name=job.name,
        handler=job.handler,
        catch_up_window=to_duration(job.catch_up_window),
        max_lateness=to_duration(job.max_lateness or timedelta(0)),
        run_timeout=to_duration(job.run_timeout),
        stale_timeout=to_duration(job.stale_timeout),
        heartbeat_interval=to_duration(job.heartbeat_interval),
        max_attempts=job.max_attempts,
        retry_backoff=[to_duration(wait) for wait in job.retry_backoff],
        retry_deadline=to_duration(job.retry_deadline),
        create_time=to_timestamp(stored.created_at),
        update_time=to_timestamp(stored.updated_at),
        schedule_delay=to_duration(job.schedule_delay),
        catch_up=_CATCH_UP_VALUES[job.catch_up],
        max_plans_per_tick=job.max_plans_per_tick,
        allow_stale_reentry=job.allow_stale_reentry,
        plans_per_scope=job.plans_per_scope,
        jitter=to_duration(job.jitter),
        paused=stored.paused_at is not None,
        pause_note=stored.pause_note,
        pause_time=to_timestamp(stored.paused_at),
    )


def read_scope(found: Violations, index: int, message: job_pb2.Scope) -> ScopeWish:
    """Parse a wish."""
    at = f"scopes[{index}]"
    return ScopeWish(
        job_name=found.text(f"{at}.job_name", message.job_name, minimum=1, maximum=100),
        kind=found.text(f"{at}.kind", message.kind, minimum=1, maximum=100),
        id=found.text(f"{at}.id", message.id, minimum=1, maximum=200),
        rule=read_rule(found, at, message) or CronRule("", ""),
        enabled=message.enabled,
        revision=message.revision,
        effective_from=read_moment(
            found,
            f"{at}.effective_from",
            message.effective_from if message.HasField("effective_from") else None,
        ),
        catch_up=_catch_up(found, f"{at}.catch_up", message.catch_up),
        max_lateness=(
            found.duration(f"{at}.max_lateness", message.max_lateness)
            if message.HasField("max_lateness")
            else None
        ),
    )


def read_rule(
    found: Violations,
    at: str,
    message: job_pb2.Scope | PreviewScheduleRequest,
) -> Rule | None:
    """Parse the one source of a scope; None when there is none, a violation when several."""
    dot = f"{at}." if at else ""
    rules: dict[str, Rule] = {}
    if message.cron:
        rules["cron"] = CronRule(message.cron, message.time_zone)
    if message.HasField("cadence"):
        rules["cadence"] = Cadence(_length(found, f"{dot}cadence", message.cadence))
    if message.HasField("run_at"):
        rules["run_at"] = Once(found.timestamp(f"{dot}run_at", message.run_at))
    if isinstance(message, job_pb2.Scope) and message.hook:
        rules["hook"] = Hook()
    if len(rules) > 1:
        found.add(
            f"{dot}{list(rules)[-1]}", f"stands beside {next(iter(rules))}: a scope has one source"
        )
    return next(iter(rules.values()), None)


def read_deletion(
    found: Violations, index: int, key: scheduler_service_pb2.ScopeKey
) -> ScopeDeletion:
    """Parse a deletion."""
    at = f"scopes[{index}]"
    return ScopeDeletion(
        job_name=found.text(f"{at}.job_name", key.job_name, minimum=1, maximum=100),
        kind=found.text(f"{at}.kind", key.kind, minimum=1, maximum=100),
        id=found.text(f"{at}.id", key.id, minimum=1, maximum=200),
        revision=key.revision,
    )


def write_scope(scope: Scope) -> job_pb2.Scope:
    """Show a scope."""
    message = job_pb2.Scope(
        job_name=scope.job_name,
        kind=scope.kind,
        id=scope.id,
        enabled=scope.enabled,
        revision=scope.revision,
        effective_from=to_timestamp(scope.effective_from),
        next_plan_time=to_timestamp(scope.next_plan_at),
        deleted=scope.deleted,
        plan_error=scope.plan_error,
        catch_up=(
            job_pb2.CATCH_UP_UNSPECIFIED
            if scope.catch_up is None
            else _CATCH_UP_VALUES[scope.catch_up]
        ),
    )
    if scope.max_lateness is not None:
        message.max_lateness.FromTimedelta(scope.max_lateness)
    match scope.rule:
        case CronRule(cron, time_zone):
            message.cron, message.time_zone = cron, time_zone
        case Cadence(every):
            message.cadence.FromTimedelta(every)
        case Once(at):
            message.run_at.FromDatetime(at)
        case Hook():
            message.hook = True
        case _:
            assert_never(scope.rule)
    return message


def write_execution(execution: Execution) -> execution_pb2.Execution:
    """Show an occurrence."""
    seed = SpanSeed.from_carrier(execution.carrier)
    return execution_pb2.Execution(
        execution_id=str(execution.id),
        job_name=execution.job_name,
        scope_kind=execution.scope_kind,
        scope_id=execution.scope_id,
        plan_time=to_timestamp(execution.plan_time),
        state=_STATE_VALUES[execution.state],
        attempt=execution.attempt,
        max_attempts=execution.max_attempts,
        next_retry_time=to_timestamp(execution.next_retry_at),
        runner_id=execution.runner_id,
        start_time=to_timestamp(execution.started_at),
        finish_time=to_timestamp(execution.finished_at),
        reason=reason_value(execution.reason),
        message=execution.message,
        result=json.dumps(execution.result, ensure_ascii=False).encode()
        if execution.result
        else b"",
        collapsed=execution.collapsed,
        trace_id="" if seed is None else f"{seed.trace_id:032x}",
        retry_until=to_timestamp(execution.retry_until),
        request_time=to_timestamp(execution.requested_at),
    )


def read_moment(found: Violations, field: str, value: Timestamp | None) -> datetime | None:
    """Parse an instant that may be absent."""
    return None if value is None else found.timestamp(field, value)


def _catch_up(found: Violations, field: str, value: int) -> CatchUp | None:
    if value == job_pb2.CATCH_UP_UNSPECIFIED:
        return None
    return found.enum(field, value, CATCH_UPS)


def _length(found: Violations, field: str, value: Duration) -> timedelta:
    """Parse a length; the bounds are the domain's, so that all violations are told together."""
    return found.duration(field, value, minimum=-_ANY, maximum=_ANY)
