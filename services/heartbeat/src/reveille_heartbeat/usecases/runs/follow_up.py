"""Follow-up: what comes after attempts, once nothing of them runs any more.

The successor or the wakeup's outcome, the issue given back, a deferred wake promoted, the slot
free. It can be repeated from the rows alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from reveille_heartbeat.domain.answer import for_event
from reveille_heartbeat.domain.followup import (
    Ended,
    Retry,
    Settle,
    comment_after,
    joined_state,
    next_step,
)
from reveille_heartbeat.domain.queue import NO_PRIORITY, ready_rank
from reveille_heartbeat.domain.retries import Ledger, TurnLimit
from reveille_heartbeat.domain.states import IssueState, RunState
from reveille_heartbeat.domain.values import CommentStatus
from reveille_heartbeat.domain.wakes import NEEDS_COMMENT
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_wakeup
from reveille_heartbeat.usecases import events
from reveille_heartbeat.usecases.issues.obstacles import open_blockers
from reveille_heartbeat.usecases.runs.ending_batch import Ending, EndingBatch
from reveille_heartbeat.usecases.runs.run_events import RunEvent
from reveille_heartbeat.usecases.wakeups.deciding import Decider
from reveille_heartbeat.usecases.wakeups.promote_deferred import Promotion
from reveille_heartbeat.usecases.wakeups.recording import NewRun, queue_runs, queued_event

_FIRST = Ledger(1, {"": 1})


@dataclass(frozen=True, slots=True)
class Following:
    """An attempt, and the decision about what follows it."""

    ending: Ending
    step: Retry | Settle
    # The next attempt's id, where there is one.
    successor_id: UUID | None


class FollowUp:
    """Decides what follows the attempts of a batch, and writes it once their rows are written."""

    def __init__(self, decider: Decider, promotion: Promotion, jitter: Callable[[], float]) -> None:
        self._decider = decider
        self._promotion = promotion
        # At random from 0 to 1: replicas that failed together must not come back together.
        self._jitter = jitter

    async def decide(self, batch: EndingBatch) -> list[Following]:
        """Decide for every attempt that nothing of runs any more, and that we hold."""
        endings = [each for each in batch.endings if each.follows]
        missing = await _comments_missing(batch, endings)
        ledgers = await _ledgers(batch, endings, missing)
        followed = [self._decide(batch, each, ledgers, missing) for each in endings]
        for each in followed:
            _note(batch, each, ledgers)
        return followed

    async def carry_out(self, batch: EndingBatch, followed: Sequence[Following]) -> None:
        """Write what was decided."""
        await _free(batch, followed)
        await self._repeat(batch, [each for each in followed if each.successor_id is not None])
        await _settle(batch, [each for each in followed if each.successor_id is None])
        free = [each.ending.item.loaded.run for each in followed if each.successor_id is None]
        await self._promotion.promote(
            batch.tx, {run.issue_id: run.run_id for run in free if run.issue_id is not None}
        )

    def _decide(
        self,
        batch: EndingBatch,
        ending: Ending,
        ledgers: Mapping[UUID, Ledger],
        missing: Collection[UUID],
    ) -> Following:
        loaded = ending.item.loaded
        ledger = ledgers.get(loaded.run.wakeup_id, _FIRST)
        ended = Ended(
            ending.state,
            ending.reason,
            ending.message,
            ending.failure,
            comment_missing=ending.run_id in missing,
        )
        issue, policy = batch.issue_of(ending), loaded.agent.heartbeat
        step = next_step(
            ended,
            ledger,
            TurnLimit(
                policy.max_turn_continuations,
                policy.max_turn_delay,
                may_continue=issue is not None
                and issue.status is IssueState.IN_PROGRESS
                and issue.execution_run_id == ending.run_id,
            ),
            cancel_requested=ending.cancel_requested,
            now=batch.now,
            jitter=self._jitter(),
        )
        ending.comment_status = comment_after(ended, ledger, step) or ending.comment_status
        successor_id = self._decider.new_id() if isinstance(step, Retry) else None
        return Following(ending, step, successor_id)

    async def _repeat(self, batch: EndingBatch, repeated: Sequence[Following]) -> None:
        """Make successors: in the queue, or waiting for their time."""
        if not repeated:
            return
        runs = [each.ending.item.loaded.run for each in repeated]
        issues = {run.issue_id for run in runs if run.issue_id is not None}
        blocked = await open_blockers(batch.tx, issues)
        successors = [
            self._successor(batch, each, waits=run.issue_id in blocked)
            for each, run in zip(repeated, runs, strict=True)
        ]
        await queue_runs(batch.tx, successors)
        await batch.tx.execute(
            Q["queue_next_attempts"],
            [run.wakeup_id for run in successors],
            [run.run_id for run in successors],
        )
        for each, successor in zip(repeated, successors, strict=True):
            wakeup = each.ending.item.loaded.wakeup
            batch.told.append(queued_event(successor, wakeup.occurrence_key, wakeup.trace_carrier))

    def _successor(self, batch: EndingBatch, each: Following, *, waits: bool) -> NewRun:
        run, wakeup = each.ending.item.loaded.run, each.ending.item.loaded.wakeup
        if each.successor_id is None or not isinstance(each.step, Retry):
            raise AssertionError("only what is repeated has a successor")
        issue = batch.issue_of(each.ending)
        run_carrier, agent_carrier = self._decider.carriers(wakeup.trace_carrier)
        return NewRun(
            run_id=each.successor_id,
            wakeup_id=run.wakeup_id,
            workspace_id=run.workspace_id,
            agent_id=run.agent_id,
            issue_id=run.issue_id,
            ready_rank=ready_rank(None if issue is None else issue.status, waits=waits),
            priority=NO_PRIORITY if issue is None else issue.priority,
            responsible_user_id=run.responsible_user_id,
            run_carrier=run_carrier,
            agent_carrier=agent_carrier,
            attempt=run.attempt + 1,
            retry_of_run_id=run.run_id,
            retry_reason=each.step.repeat.reason.value,
            due_at=each.step.repeat.due_at,
        )


async def _comments_missing(batch: EndingBatch, endings: Sequence[Ending]) -> set[UUID]:
    """Name the attempts that ended well without the comment that people wait for."""
    silent = [
        ending
        for ending in endings
        if ending.state is RunState.SUCCEEDED
        and ending.comment_status is CommentStatus.NOT_APPLICABLE
        and ending.item.loaded.run.issue_id is not None
        and ending.item.loaded.wakeup.wake_reason in NEEDS_COMMENT
    ]
    if not silent:
        return set()
    issues = [ending.item.loaded.run.issue_id for ending in silent]
    awaited = {row["issue_id"] for row in await batch.tx.fetch(Q["comments_awaited"], issues)}
    missing: set[UUID] = set()
    for ending in silent:
        # A comment that waits for the agent has it come back anyway.
        if ending.item.loaded.run.issue_id in awaited:
            ending.comment_status = CommentStatus.SATISFIED
        else:
            missing.add(ending.run_id)
    return missing


async def _ledgers(
    batch: EndingBatch, endings: Sequence[Ending], missing: Collection[UUID]
) -> dict[UUID, Ledger]:
    """Read the attempts of wakeups where they decide something."""
    wakeups = [
        ending.item.loaded.run.wakeup_id
        for ending in endings
        if ending.run_id in missing or ending.state not in (RunState.SUCCEEDED, RunState.CANCELLED)
    ]
    if not wakeups:
        return {}
    by_reason: dict[UUID, dict[str, int]] = {}
    for row in await batch.tx.fetch(Q["attempts_of_wakeups"], wakeups):
        by_reason.setdefault(row["wakeup_id"], {})[row["retry_reason"]] = row["attempts"]
    return {key: Ledger(sum(counts.values()), counts) for key, counts in by_reason.items()}


def _note(batch: EndingBatch, each: Following, ledgers: Mapping[UUID, Ledger]) -> None:
    """Write into the history of an attempt that it is repeated, or is not any more."""
    ending = each.ending
    if isinstance(each.step, Retry):
        repeat = each.step.repeat
        kind, message = "run.retry_queued", f"it is repeated: {repeat.reason.value}"
        facts = {"run_id": str(each.successor_id), "reason": repeat.reason.value}
        if repeat.due_at is not None:
            kind, facts = "run.retry_scheduled", {**facts, "due_at": repeat.due_at.isoformat()}
    else:
        ledger = ledgers.get(ending.item.loaded.run.wakeup_id)
        if ledger is None or ledger.attempts == 1 or ending.cancel_requested:
            return
        if ending.state is RunState.SUCCEEDED:
            return
        kind = "run.retries_exhausted"
        message = f"it is not repeated any more after {ledger.attempts} attempts"
        facts = {"attempts": str(ledger.attempts)}
    batch.history.append(RunEvent(ending.run_id, ending.next_seq(), kind, message, facts))


async def _free(batch: EndingBatch, followed: Sequence[Following]) -> None:
    """Give issues to successors, or to nobody."""
    runs = [(each.ending.item.loaded.run, each.successor_id) for each in followed]
    with_issue = [(run, successor) for run, successor in runs if run.issue_id is not None]
    if with_issue:
        await batch.tx.execute(
            Q["pass_execution"],
            [run.issue_id for run, _ in with_issue],
            [run.run_id for run, _ in with_issue],
            [successor for _, successor in with_issue],
        )


async def _settle(batch: EndingBatch, settled: Sequence[Following]) -> None:
    """Give wakeups, and whatever joined them, their outcomes, and tell of it."""
    if not settled:
        return
    await _read_results(batch, [each.ending for each in settled])
    steps = {
        each.ending.item.loaded.run.wakeup_id: each.step
        for each in settled
        if isinstance(each.step, Settle)
    }
    rows = await batch.tx.fetch(
        Q["settle_claimed"],
        list(steps),
        [step.state.value for step in steps.values()],
        [step.reason for step in steps.values()],
        [step.message for step in steps.values()],
    )
    # A wakeup that is missing had its outcome before.
    ended = {row["wakeup_id"] for row in rows}
    results: dict[UUID, Mapping[str, Any] | None] = {}
    for each in settled:
        wakeup, ending = each.ending.item.loaded.wakeup, each.ending
        if wakeup.wakeup_id not in ended:
            continue
        step = steps[wakeup.wakeup_id]
        results[wakeup.wakeup_id] = ending.result
        batch.told.append(
            events.wakeup_settled_as(wakeup, step.state, step.reason, step.message, ending.result)
        )
    rows = await batch.tx.fetch(
        Q["settle_all_joined"],
        list(results),
        [joined_state(steps[wakeup_id].state).value for wakeup_id in results],
        [steps[wakeup_id].reason for wakeup_id in results],
        [steps[wakeup_id].message for wakeup_id in results],
    )
    for joined in map(to_wakeup, rows):
        result = results[joined.joined_wakeup_id] if joined.joined_wakeup_id else None
        batch.told.append(
            events.wakeup_settled_as(joined, joined.state, joined.reason, joined.message, result)
        )


async def _read_results(batch: EndingBatch, endings: Sequence[Ending]) -> None:
    """Read what attempts answered that were settled before."""
    before = [ending for ending in endings if not ending.won or ending.item.outcome is None]
    if not before:
        return
    rows = await batch.tx.fetch(Q["results_of_runs"], [ending.run_id for ending in before])
    said = {row["run_id"]: for_event(row["result"], row["summary"]) for row in rows}
    for ending in before:
        ending.result = said[ending.run_id]
