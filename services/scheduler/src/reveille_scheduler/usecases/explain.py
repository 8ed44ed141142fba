"""Tell what the scheduler knows about a scope or an occurrence, in words an operator can act on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

from reveille_runtime.db import Database
from reveille_runtime.explain import Finding, iso, span_of, uuid_or_none
from reveille_scheduler.domain.occurrence import Execution
from reveille_scheduler.domain.rule import Cadence, CronRule, Hook, Once, Rule
from reveille_scheduler.domain.scope import Scope
from reveille_scheduler.domain.states import ExecutionState
from reveille_scheduler.store import ledger, scopes

_KEY = re.compile(r"schedule:([^:]+):(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)(?:#\d+)?")


class Explain:
    """Explains scopes (by their owner's id), executions and occurrence keys of schedules."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def __call__(self, wanted: str) -> list[Finding]:
        """Give what is known."""
        scope_id, plan_time = wanted, None
        if (key := _KEY.fullmatch(wanted)) is not None:
            scope_id = key[1]
            plan_time = datetime.fromisoformat(key[2])
        async with self._database.session() as tx:
            rows = await ledger.explain_scope(tx, scope_id, plan_time)
            if not rows and (execution_id := uuid_or_none(wanted)) is not None:
                rows = await ledger.explain(tx, execution_id)
            known = await scopes.explain(tx, scope_id)
        findings = [_occurrence(*row) for row in rows]
        if plan_time is None:
            findings += [
                _scope(
                    scopes.scope_of(row),
                    Facts(row["updated_at"], row["now"], row["paused_at"], row["pause_note"]),
                )
                for row in known
            ]
        return findings


@dataclass(frozen=True, slots=True)
class Facts:
    """What an explanation of a scope needs beside it."""

    changed: datetime
    now: datetime
    paused_at: datetime | None
    pause_note: str


def _words(rule: Rule) -> str:
    match rule:
        case CronRule(cron, time_zone):
            return f"“{cron}” in {time_zone or 'UTC'}"
        case Cadence(every):
            return f"every {span_of(every.total_seconds())}"
        case Once(at):
            return f"once at {iso(at)}"
        case Hook():
            return "as its job's owner plans it"
        case _:
            assert_never(rule)


def _scope(scope: Scope, facts: Facts) -> Finding:
    """Say whether a scope is planned, and when next."""
    rule, now, due = _words(scope.rule), facts.now, scope.next_plan_at
    command = ""
    if scope.deleted:
        state, text = "deleted", "its owner deleted it; it fires no more"
    elif not scope.enabled:
        state, text = "disabled", f"{rule} is switched off by its owner; it does not fire"
    elif facts.paused_at is not None:
        state = "paused"
        text = (
            f"{rule} waits: the job {scope.job_name} is paused since {iso(facts.paused_at)}"
            f" ({facts.pause_note})"
        )
        command = f"reveille jobs resume {scope.job_name}"
    elif scope.plan_error:
        state, text = "not_plannable", f"{rule} cannot be evaluated: {scope.plan_error}"
    elif due is None:
        state, text = "never", f"{rule} has no time left to fire"
    elif due > now:
        wait = span_of((due - now).total_seconds())
        what = "its owner is asked next" if isinstance(scope.rule, Hook) else "it is due next"
        state, text = "not_due", f"{rule}: {what} at {iso(due)}, in {wait}"
    else:
        wait = span_of((now - due).total_seconds())
        state = "due_late"
        text = (
            f"{rule} was due at {iso(due)} and has waited for {wait}: "
            "either its last occurrences still run, or no scheduler is planning"
        )
        command = f"reveille executions list --scope {scope.id}"
    return Finding(
        time=now if state in {"not_due", "due_late"} else facts.changed,
        subject="schedule",
        subject_id=scope.id,
        state=state,
        text=f"{text} (revision {scope.revision}, counting from {iso(scope.effective_from)})",
        rows=(("scheduler.scopes", f"{scope.job_name}/{scope.kind}/{scope.id}"),),
        command=command,
    )


def _occurrence(execution: Execution, stale_after: datetime | None, now: datetime) -> Finding:
    """Say what became of an occurrence."""
    when = iso(execution.plan_time)
    folded = (
        f"; {execution.collapsed} older ones were folded into it" if execution.collapsed else ""
    )
    command = ""
    match execution.state:
        case ExecutionState.RUNNING:
            state = "running"
            text = f"attempt {execution.attempt} of the occurrence of {when} is at its handler"
            if stale_after is not None and stale_after < now:
                state = "waiting_for_lease"
                text += ", but its executor's lease has run out; another replica will take over"
        case ExecutionState.SUCCESS:
            skipped = execution.result.get("skipped_reason")
            state = "suppressed" if skipped else "fired"
            text = f"fired for {when} and was handled"
            if skipped:
                text = f"fired for {when}, and its owner had nothing to run: {skipped}"
        case ExecutionState.FAILED if execution.next_retry_at is not None:
            state = "waiting_for_retry"
            text = (
                f"attempt {execution.attempt} of {execution.max_attempts} for {when} did not "
                f"succeed ({execution.message or 'no message'}); "
                f"it is tried again at {iso(execution.next_retry_at)}"
            )
        case ExecutionState.FAILED:
            state = "failed"
            text = f"the occurrence of {when} failed for good: {execution.message}"
            command = f"reveille executions retry {execution.id}"
        case ExecutionState.SKIPPED if execution.next_retry_at is not None:
            state = "waiting_for_backfill"
            text = f"the occurrence of {when} was missed, and a backfill has asked for it"
        case ExecutionState.SKIPPED:
            state = "skipped"
            text = f"the occurrence of {when} was not fired: {execution.message}"
            if execution.reason == "too_late":
                command = (
                    f"reveille scopes backfill {execution.job_name} {execution.scope_kind} "
                    f"{execution.scope_id} --from {when} --to {when}"
                )
    key = f"schedule:{execution.scope_id}:{iso(execution.plan_time)}"
    run_id = execution.result.get("run_id")
    return Finding(
        time=execution.finished_at or execution.started_at or execution.plan_time,
        subject="execution",
        subject_id=str(execution.id),
        state=state,
        reason=execution.reason,
        text=text + folded,
        rows=(("scheduler.executions", str(execution.id)),),
        command=command,
        related=(run_id,) if isinstance(run_id, str) else (key,),
    )
