"""Rows in plain words, for whoever asks why something did or did not run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import (
    ISSUE_TERMINAL,
    ISSUE_TRANSITIONS,
    AgentState,
    IssueState,
    RunState,
    WakeupState,
)
from reveille_heartbeat.domain.values import CommentStatus, Issue, Run, Wakeup
from reveille_heartbeat.domain.waiting import more_for_today, names_of, to_unblock, why_it_waits
from reveille_heartbeat.domain.wakes import WakeReason
from reveille_heartbeat.usecases.why.explaining import Scene
from reveille_runtime.explain import Finding


def about_wakeup(wakeup: Wakeup, scene: Scene) -> Finding:
    """Tell where a wakeup stands and why, and what would change it."""
    holder = None if wakeup.issue_id is None else scene.holders.get(wakeup.issue_id)
    behind = f"attempt {holder}, which holds its issue" if holder else "its turn on its issue"
    words = {
        WakeupState.QUEUED: "waits in the queue",
        WakeupState.DEFERRED: f"waits for {behind}",
        WakeupState.CLAIMED: f"is being worked on, attempt {wakeup.attempts}",
        WakeupState.COALESCED: f"joined wakeup {wakeup.joined_wakeup_id}, which is about the same",
        WakeupState.SKIPPED: "was refused by a rule and never ran",
        WakeupState.COMPLETED: "is done",
        WakeupState.FAILED: "failed",
        WakeupState.CANCELLED: "was cancelled",
    }
    text = f"Wakeup “{wakeup.title}” {words[wakeup.state]}"
    if wakeup.coalesced_count:
        text += f" (and carries {wakeup.coalesced_count} more that joined it)"
    return Finding(
        time=wakeup.finished_at or wakeup.claimed_at or wakeup.created_at,
        subject="wakeup",
        subject_id=str(wakeup.wakeup_id),
        state=wakeup.state.value,
        reason=wakeup.reason,
        # What it waits for or joined is said already.
        text=_sentence(text, "" if wakeup.state in _SAID else wakeup.message),
        rows=(("heartbeat.wakeup_requests", str(wakeup.wakeup_id)),),
        command=_for_wakeup(wakeup, scene, holder),
        related=_ids(
            wakeup.run_id,
            wakeup.issue_id,
            wakeup.joined_wakeup_id,
            wakeup.occurrence_key,
            wakeup.autopilot_run_id,
        ),
    )


def about_run(run: Run, scene: Scene, *, complained: bool = False) -> Finding:
    """Tell what an attempt does or did; `complained`: it has written to stderr."""
    state, command = run.state.value, _logs(run, complained=complained)
    related: tuple[str, ...] = ()
    around = scene.waits.get(run.run_id)
    if around is not None:
        wait = why_it_waits(around)
        state, words, command, related = wait.state, wait.words, wait.command, wait.related
    else:
        words = _done(run)
    text = f"Attempt {run.attempt} {words}"
    if run.retry_reason:
        text += f" (it repeats {run.retry_of_run_id} because of {run.retry_reason})"
    if run.comment_status in {CommentStatus.RETRY_QUEUED, CommentStatus.RETRY_EXHAUSTED}:
        text += "; it left no comment although people wait for one"
    if run.occupied and run.lease_expires_at is not None and run.lease_expires_at < scene.now:
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
        command=command,
        related=(*_ids(run.wakeup_id, run.issue_id, run.retry_of_run_id), *related),
    )


def about_issue(
    issue: Issue, wakeups: Sequence[Wakeup], scene: Scene, *, under_way: bool
) -> Finding:
    """Tell where an issue stands, who holds it and what keeps it, or that nothing waits for it.

    `wakeups` are its newest ones, newest first; `under_way`: one of all of them is not settled.
    """
    text = f"Issue {issue.identifier} “{issue.title}” is {issue.status.value.replace('_', ' ')}"
    command = f"reveille issues get {issue.issue_id}"
    related: tuple[str, ...] = ()
    holder = scene.holders.get(issue.issue_id)
    hold, blockers = scene.holds.get(issue.issue_id), scene.blockers.get(issue.issue_id, ())
    if holder is not None:
        text += f", held by attempt {holder}"
    if issue.deleted_at is not None:
        text += "; it was deleted"
    elif hold is not None:
        why = f" ({hold.reason})" if hold.reason else ""
        text += f"; {hold.root_identifier} and all below it are held{why}"
        command = f"reveille issues unhold {hold.root_identifier}"
        related = _ids(hold.root_issue_id if hold.root_issue_id != issue.issue_id else None)
    elif blockers and issue.status not in ISSUE_TERMINAL:
        text += f"; it waits for {names_of(blockers)}"
        command = to_unblock(issue.issue_id, blockers[0])
        related = tuple(str(each.issue_id) for each in blockers)
    elif issue.status is IssueState.IN_REVIEW:
        judge, ask = _judge(issue, wakeups, scene)
        text, command = f"{text}; {judge}", ask or command
    elif holder is None and not under_way:
        rests, change = _at_rest(issue, wakeups)
        text, command = f"{text}{rests}", change or command
    return Finding(
        time=issue.updated_at,
        subject="issue",
        subject_id=str(issue.issue_id),
        state=issue.status.value,
        text=_sentence(text, ""),
        rows=(("heartbeat.issues", str(issue.issue_id)),),
        command=command,
        related=(*_ids(holder, issue.occurrence_key, issue.assignee_agent_id), *related),
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


def _done(run: Run) -> str:
    """Say what became of an attempt that does not wait."""
    words = {
        RunState.SUCCEEDED: "succeeded",
        RunState.INTERRUPTED: "was interrupted when its executor stopped",
        RunState.FAILED: "failed",
        RunState.CANCELLED: "was cancelled",
        RunState.TIMED_OUT: "took too long",
    }
    if run.state is not RunState.RUNNING:
        return words[run.state]
    text = f"runs on {run.executor_id}"
    if not run.executor_id:
        text = "goes on although its executor has stopped, and waits for another one of its place"
    if run.deadline_at is not None:
        text += f", until {run.deadline_at:%Y-%m-%d %H:%M} UTC at the latest"
    if run.last_output_at is not None:
        text += f"; it was last heard of at {run.last_output_at:%H:%M:%S} UTC"
    if run.progress and run.progress.get("message"):
        text += f"; it says: {run.progress['message']}"
    return text


def _for_wakeup(wakeup: Wakeup, scene: Scene, holder: object) -> str:
    """Give the command that tells more of a wakeup, or would have made it run."""
    if wakeup.state is WakeupState.SKIPPED:
        change = _CHANGES.get(wakeup.reason)
        return "" if change is None else change(wakeup, scene)
    if wakeup.state is WakeupState.COALESCED:
        return f"reveille wakeups get {wakeup.joined_wakeup_id}"
    if wakeup.state is WakeupState.DEFERRED and holder is not None:
        return f"reveille agent-runs watch {holder}"
    if wakeup.state is WakeupState.FAILED and wakeup.run_id is not None:
        return f"reveille agent-runs retry {wakeup.run_id}"
    return f"reveille agent-runs get {wakeup.run_id}" if wakeup.run_id else ""


def _resume(wakeup: Wakeup, scene: Scene) -> str:
    agent = scene.agents.get(wakeup.agent_id)
    if agent is not None and agent.state is AgentState.PAUSED:
        return f"reveille agents resume {wakeup.agent_id}"
    return f"reveille agents get {wakeup.agent_id}"


def _unhold(wakeup: Wakeup, scene: Scene) -> str:
    hold = None if wakeup.issue_id is None else scene.holds.get(wakeup.issue_id)
    return "" if hold is None else f"reveille issues unhold {hold.root_identifier}"


def _unblock(wakeup: Wakeup, scene: Scene) -> str:
    if wakeup.issue_id is None or not scene.blockers.get(wakeup.issue_id):
        return ""
    return to_unblock(wakeup.issue_id, scene.blockers[wakeup.issue_id][0])


def _by_hand(wakeup: Wakeup, scene: Scene) -> str:  # noqa: ARG001 (one of many)
    """A person's wake waits neither for a cooldown nor for the throttle."""
    return _again(wakeup.agent_id, wakeup.issue_id)


def _again(agent_id: UUID, issue_id: UUID | None) -> str:
    command = f"reveille wakeups create again --agent {agent_id}"
    return command if issue_id is None else f"{command} --issue {issue_id}"


def _daily(wakeup: Wakeup, scene: Scene) -> str:
    agent = scene.agents.get(wakeup.agent_id)
    return "" if agent is None else more_for_today(agent, wakeup.reason)


def _settings(change: str) -> Callable[[Wakeup, Scene], str]:
    return lambda wakeup, _: f"reveille agents update {wakeup.agent_id} {change}"


_CHANGES: Mapping[str, Callable[[Wakeup, Scene], str]] = {
    Reason.AGENT_NOT_INVOKABLE: _resume,
    Reason.TIMER_DISABLED: _settings("--timer true"),
    Reason.WAKE_ON_DEMAND_DISABLED: _settings("--wake-on-demand true"),
    Reason.NO_ACTIONABLE_WORK: _settings("--timer-needs-work false"),
    Reason.INVOCATION_NOT_ALLOWED: _settings("--invocation workspace"),
    Reason.ISSUE_TREE_HELD: _unhold,
    Reason.ISSUE_DEPENDENCIES_BLOCKED: _unblock,
    Reason.ISSUE_CLOSED: lambda wakeup, _: f"reveille issues move {wakeup.issue_id} todo",
    Reason.REWAKE_THROTTLED: _by_hand,
    Reason.COOLDOWN: _by_hand,
    Reason.DAILY_RUN_LIMIT: _daily,
    Reason.DAILY_COST_LIMIT: _daily,
}


def _logs(run: Run, *, complained: bool) -> str:
    """Name the output that tells most: what failed says why on stderr, if it says anything."""
    if run.started_at is None:
        return ""
    if run.state is RunState.RUNNING:
        return f"reveille agent-runs watch {run.run_id}"
    command = f"reveille agent-runs logs {run.run_id}"
    failed = run.state in {RunState.FAILED, RunState.TIMED_OUT}
    return f"{command} --stream stderr" if failed and complained else command


def _at_rest(issue: Issue, wakeups: Sequence[Wakeup]) -> tuple[str, str]:
    """Say what is missing where nothing is under way, and the command that does it."""
    if wakeups and wakeups[0].state is WakeupState.COMPLETED:
        if IssueState.DONE not in ISSUE_TRANSITIONS[issue.status]:
            return "", ""
        return (
            "; its agent ended without closing it, and nothing is under way to do so",
            f"reveille issues move {issue.issue_id} done",
        )
    if issue.assignee_agent_id is None or issue.status not in _TO_GO_ON:
        return "", ""
    return (
        "; nothing waits for it, and its agent does not begin by itself",
        _again(issue.assignee_agent_id, issue.issue_id),
    )


def _judge(issue: Issue, wakeups: Sequence[Wakeup], scene: Scene) -> tuple[str, str]:
    """Say who is to judge an issue, and the command that asks an agent that nobody has asked."""
    if issue.reviewer_agent_id is None:
        return f"{issue.reviewer_user_id or 'somebody'} is to judge it, and no agent is asked", ""
    agent = scene.agents.get(issue.reviewer_agent_id)
    words = f"agent {agent.name if agent else issue.reviewer_agent_id} is to judge it"
    asked = next(
        (
            each.state
            for each in wakeups
            if each.agent_id == issue.reviewer_agent_id
            and each.wake_reason == WakeReason.EXECUTION_REVIEW_REQUESTED
        ),
        None,
    )
    if asked is not None and asked not in {WakeupState.SKIPPED, WakeupState.CANCELLED}:
        return words, ""
    return f"{words}, and was not asked", _again(issue.reviewer_agent_id, issue.issue_id)


def _sentence(text: str, detail: str) -> str:
    return f"{text}: {detail}" if detail else f"{text}."


def _ids(*ids: object) -> tuple[str, ...]:
    return tuple(str(each) for each in ids if each)


_SAID = frozenset({WakeupState.COALESCED, WakeupState.DEFERRED})
_TO_GO_ON = frozenset({IssueState.TODO, IssueState.IN_PROGRESS, IssueState.BLOCKED})
