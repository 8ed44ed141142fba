"""Settling: the one terminal write of attempts, with everything that their results change."""

from __future__ import annotations

from collections.abc import Sequence

from reveille_heartbeat.domain.outcome import Outcome
from reveille_heartbeat.domain.states import ISSUE_TERMINAL, IssueState, RunState
from reveille_heartbeat.domain.values import CommentStatus
from reveille_heartbeat.domain.wakes import NEEDS_COMMENT
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.usecases import events
from reveille_heartbeat.usecases.issues.authors import by_run
from reveille_heartbeat.usecases.issues.consequences import Consequences
from reveille_heartbeat.usecases.issues.moving import move_issue
from reveille_heartbeat.usecases.runs.ending_batch import HOLDERS_STATES, Ending, EndingBatch
from reveille_heartbeat.usecases.runs.run_events import RunEvent
from reveille_runtime.ids import new_id

# What is noted of an agent whose run was ended from outside, by whether it had something to say.
_LATE = ("run.late_result", "a result came after the run had ended, and changed nothing")
_STOPPED = ("run.stopped", "its agent does not run any more")
# An issue that got here by the run needs no other word from it.
_SAID_BY_STATUS = ISSUE_TERMINAL | {IssueState.IN_REVIEW, IssueState.BLOCKED}


async def settle(batch: EndingBatch, consequences: Consequences) -> None:
    """Give attempts their terminal states; whoever comes too late loses, and what it cost counts.

    An attempt that has ended already by its holder's own word was settled by an earlier try of
    this very batch, whose COMMIT nobody heard of.
    """
    brought: list[tuple[Ending, Outcome]] = []
    for ending in batch.endings:
        outcome = ending.item.outcome
        if outcome is None:
            continue
        if ending.state in HOLDERS_STATES and (ending.held or ending.follow_up_done):
            ending.won = True
            continue
        if not ending.held:
            continue
        brought.append((ending, outcome))
        if ending.finished_at is None:
            ending.end(outcome, batch.now)
            batch.ended.append((ending, outcome))
        else:
            _note_late(batch, ending, outcome)
    await _effects(batch, consequences)
    _tell(batch)
    await _book(batch, brought)


async def _effects(batch: EndingBatch, consequences: Consequences) -> None:
    """Let results move issues and speak, and see what else the attempts have left on them."""
    on_issues = [
        (ending, outcome)
        for ending, outcome in batch.ended
        if ending.item.loaded.run.issue_id is not None
    ]
    if not on_issues:
        return
    runs = [ending.item.loaded.run for ending, _ in on_issues]
    traces = {
        row["run_id"]: row
        for row in await batch.tx.fetch(
            Q["traces_of_runs"], [run.run_id for run in runs], [run.issue_id for run in runs]
        )
    }
    said: list[tuple[Ending, str]] = []
    for ending, outcome in on_issues:
        trace = traces[ending.run_id]
        moved = await _move(batch, ending, outcome, consequences)
        ending.left_progress |= trace["commented"] or trace["left_more"] or moved
        issue = batch.issue_of(ending)
        if outcome.state is not RunState.SUCCEEDED or issue is None:
            continue
        speaks = bool(outcome.summary) and not trace["commented"] and issue.deleted_at is None
        if speaks:
            said.append((ending, outcome.summary))
        if ending.item.loaded.wakeup.wake_reason in NEEDS_COMMENT and (
            speaks or trace["commented"] or issue.status in _SAID_BY_STATUS
        ):
            ending.comment_status = CommentStatus.SATISFIED
    await _speak(batch, said)


async def _move(
    batch: EndingBatch, ending: Ending, outcome: Outcome, consequences: Consequences
) -> bool:
    """Move the issue as the result says, with all that follows; False where it stays."""
    issue, run = batch.issue_of(ending), ending.item.loaded.run
    if issue is None or outcome.issue_status is None:
        return False
    moved = await move_issue(batch.tx, issue, outcome.issue_status, run.agent_id)
    if moved is None:
        return False
    batch.issues[issue.issue_id] = moved
    await consequences.follow(batch.tx, [(issue, moved)], by_run(run), batch.others)
    return True


async def _speak(batch: EndingBatch, said: Sequence[tuple[Ending, str]]) -> None:
    """Leave summaries as comments where nothing else was said."""
    if not said:
        return
    runs = [ending.item.loaded.run for ending, _ in said]
    comments = [new_id() for _ in said]
    await batch.tx.execute(
        Q["leave_summaries"],
        comments,
        [run.issue_id for run in runs],
        [run.workspace_id for run in runs],
        [str(run.agent_id) for run in runs],
        [run.run_id for run in runs],
        [summary for _, summary in said],
    )
    for (ending, _), comment_id in zip(said, comments, strict=True):
        issue = batch.issue_of(ending)
        if issue is not None:
            batch.told.append(
                events.issue_summarised(issue, comment_id, ending.item.loaded.run.agent_id)
            )


def _tell(batch: EndingBatch) -> None:
    for ending, outcome in batch.ended:
        facts = {"reason": ending.reason, "exit_code": outcome.exit_code}
        issue = batch.issue_of(ending)
        if issue is not None and outcome.issue_status is not None:
            facts["issue_status"] = issue.status.value
        message = ending.message or outcome.summary or _WELL
        kind = f"run.{ending.state.value}"
        batch.history.append(RunEvent(ending.run_id, ending.next_seq(), kind, message, facts))
        run, wakeup = ending.item.loaded.run, ending.item.loaded.wakeup
        batch.told.append(
            events.run_status_as(
                run, ending.state, ending.reason, wakeup.occurrence_key, wakeup.trace_carrier
            )
        )


def _note_late(batch: EndingBatch, ending: Ending, outcome: Outcome) -> None:
    """Somebody else ended it first: theirs stays, and this is written down."""
    kind, message = _LATE if outcome.brings_result else _STOPPED
    facts = {"state": outcome.state.value, "exit_code": outcome.exit_code}
    batch.history.append(RunEvent(ending.run_id, ending.next_seq(), kind, message, facts))
    batch.late.append(ending)


async def _book(batch: EndingBatch, brought: Sequence[tuple[Ending, Outcome]]) -> None:
    """Money that was spent is booked, whoever ended the run."""
    used = [
        (ending.item.loaded.run, usage) for ending, outcome in brought for usage in outcome.usage
    ]
    if not used:
        return
    await batch.tx.execute(
        Q["book_costs"],
        [run.run_id for run, _ in used],
        [run.workspace_id for run, _ in used],
        [run.agent_id for run, _ in used],
        [run.issue_id for run, _ in used],
        [usage.provider for _, usage in used],
        [usage.model for _, usage in used],
        [usage.input_tokens for _, usage in used],
        [usage.cached_input_tokens for _, usage in used],
        [usage.output_tokens for _, usage in used],
        [usage.cost_cents for _, usage in used],
    )


_WELL = "the agent ended well, and left no summary"
