"""Rows in plain words, for whoever asks why something did or did not run."""

from __future__ import annotations

from datetime import datetime

from reveille_heartbeat.domain.states import (
    ISSUE_TRANSITIONS,
    IssueState,
    RunState,
    WakeupState,
)
from reveille_heartbeat.domain.values import Issue, Run, Wakeup
from reveille_runtime.explain import Finding


def about_wakeup(wakeup: Wakeup) -> Finding:
    """Tell where a wakeup stands and why."""
    words = {
        WakeupState.QUEUED: "waits in the queue for a free slot of its agent",
        WakeupState.DEFERRED: "waits for the run that holds its issue",
        WakeupState.CLAIMED: f"is being worked on, attempt {wakeup.attempts}",
        WakeupState.COALESCED: f"joined wakeup {wakeup.joined_wakeup_id}",
        WakeupState.SKIPPED: "was refused by a rule and never ran",
        WakeupState.COMPLETED: "is done",
        WakeupState.FAILED: "failed",
        WakeupState.CANCELLED: "was cancelled",
    }
    return Finding(
        time=wakeup.finished_at or wakeup.claimed_at or wakeup.created_at,
        subject="wakeup",
        subject_id=str(wakeup.wakeup_id),
        state=wakeup.state.value,
        reason=wakeup.reason,
        text=_sentence(f"Wakeup “{wakeup.title}” {words[wakeup.state]}", wakeup.message),
        rows=(("heartbeat.wakeup_requests", str(wakeup.wakeup_id)),),
        command=f"reveille agent-runs get {wakeup.run_id}" if wakeup.run_id else "",
        related=_ids(
            wakeup.run_id,
            wakeup.issue_id,
            wakeup.joined_wakeup_id,
            wakeup.occurrence_key,
            wakeup.autopilot_run_id,
        ),
    )


def about_run(run: Run, now: datetime, *, complained: bool = False) -> Finding:
    """Tell what an attempt does or did; `complained`: it has written to stderr."""
    words = {
        RunState.QUEUED: f"waits for a slot, until {run.start_by:%Y-%m-%d %H:%M} UTC at the latest",
        RunState.RUNNING: f"runs on {run.executor_id}",
        RunState.SUCCEEDED: "succeeded",
        RunState.FAILED: "failed",
        RunState.CANCELLED: "was cancelled",
        RunState.TIMED_OUT: "took too long",
    }
    text = f"Attempt {run.attempt} {words[run.state]}"
    if run.retry_reason:
        text += f" (it repeats {run.retry_of_run_id} because of {run.retry_reason})"
    state = run.state.value
    if run.occupied and run.lease_expires_at is not None and run.lease_expires_at < now:
        state = "waiting_lease"
        text += "; its executor has not been heard of, and is given up once that is confirmed"
    elif run.occupied and run.finished_at is not None:
        state = "finishing"
        text += "; its follow-up is not done yet"
    return Finding(
        time=run.finished_at or run.started_at or run.created_at,
        subject="agent_run",
        subject_id=str(run.run_id),
        state=state,
        reason=run.reason,
        text=_sentence(text, run.message or run.summary),
        rows=(("heartbeat.runs", str(run.run_id)),),
        command=_logs(run, complained=complained),
        related=_ids(run.wakeup_id, run.issue_id, run.retry_of_run_id),
    )


def about_issue(issue: Issue, latest: Wakeup | None) -> Finding:
    """Tell where an issue stands and who holds it; `latest` is the newest wakeup for it."""
    text = f"Issue {issue.identifier} “{issue.title}” is {issue.status.value.replace('_', ' ')}"
    if issue.execution_run_id is not None:
        text += f", held by attempt {issue.execution_run_id}"
    command = f"reveille issues get {issue.issue_id}"
    if _left_open(issue, latest):
        text += "; its agent ended without closing it, and nothing is under way to do so"
        command = f"reveille issues move {issue.issue_id} done"
    return Finding(
        time=issue.updated_at,
        subject="issue",
        subject_id=str(issue.issue_id),
        state=issue.status.value,
        text=_sentence(text, ""),
        rows=(("heartbeat.issues", str(issue.issue_id)),),
        command=command,
        related=_ids(issue.execution_run_id, issue.occurrence_key, issue.assignee_agent_id),
    )


def about_cancelled_occurrence(key: str, cancelled_at: datetime) -> Finding:
    """Tell that an occurrence was cancelled before it made anything."""
    return Finding(
        time=cancelled_at,
        subject="occurrence",
        subject_id=key,
        state="cancelled",
        reason="cancelled",
        text="This occurrence was cancelled before it made anything, and will make nothing.",
        rows=(("heartbeat.occurrences", key),),
    )


def _logs(run: Run, *, complained: bool) -> str:
    """Name the output that tells most: what failed says why on stderr, if it says anything."""
    if run.started_at is None:
        return ""
    command = f"reveille agent-runs logs {run.run_id}"
    failed = run.state in {RunState.FAILED, RunState.TIMED_OUT}
    return f"{command} --stream stderr" if failed and complained else command


def _left_open(issue: Issue, latest: Wakeup | None) -> bool:
    """Whether an agent has done what it was asked to, and the issue could be done but is not."""
    return (
        latest is not None
        and latest.state is WakeupState.COMPLETED
        and issue.execution_run_id is None
        and IssueState.DONE in ISSUE_TRANSITIONS[issue.status]
    )


def _sentence(text: str, detail: str) -> str:
    return f"{text}: {detail}" if detail else f"{text}."


def _ids(*ids: object) -> tuple[str, ...]:
    return tuple(str(each) for each in ids if each)
